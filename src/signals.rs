//! The signals that ask for a clean stop.

use tokio::signal::unix::{SignalKind, signal};

/// Wait for SIGINT or SIGTERM; its name.
pub(crate) async fn stop() -> anyhow::Result<&'static str> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(tokio::select! {
        _ = interrupt.recv() => "SIGINT",
        _ = terminate.recv() => "SIGTERM",
    })
}
