//! The signals that ask for a clean stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receiver of the stop signals. It listens from its creation on, so that a signal during startup
/// is not lost.
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Listens for SIGINT and SIGTERM.
    pub fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    pub async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
