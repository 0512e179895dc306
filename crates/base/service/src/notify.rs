//! Messages to the service manager, as `sd_notify(3)` describes them: one datagram with lines of
//! `NAME=VALUE` to the unix socket that `NOTIFY_SOCKET` names. Without it nothing is sent.
//!
//! `READY=1` is sent once all listeners are open, `STOPPING=1` when a stop begins,
//! and `STATUS=` when an agent connects. If
//! `WATCHDOG_USEC` (microseconds) is set, the service manager restarts a program that does not send
//! `WATCHDOG=1` within that time. It is sent at half that interval, each time after a task has run
//! on an async and on a blocking thread, so that a process that hangs sends nothing.

use std::env::{var, var_os};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tokio::task::JoinHandle;
use tracing::warn;

/// The connection to the service manager.
#[derive(Debug)]
pub struct Notify {
    socket: Option<UnixDatagram>,
}

impl Notify {
    /// Connects to the socket named in the environment.
    pub fn of_environment() -> Self {
        let Some(name) = var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Self { socket: None };
        };
        match connect(name.as_bytes()) {
            Ok(socket) => Self { socket: Some(socket) },
            Err(cause) => {
                warn!(
                    "NOTIFY_SOCKET {}: {cause}: the service manager is not notified",
                    name.display()
                );
                Self { socket: None }
            }
        }
    }

    /// Returns true if a service manager is notified, which can start the program again.
    pub fn is_connected(&self) -> bool {
        self.socket.is_some()
    }

    /// Reports that the program is ready, and notifies the watchdog until the result is dropped.
    pub fn ready(&self) -> Watchdog {
        self.send("READY=1");
        let every = watchdog_interval(
            var("WATCHDOG_USEC").ok().as_deref(),
            var("WATCHDOG_PID").ok().as_deref(),
            std::process::id(),
        );
        let socket = self.socket.as_ref().and_then(|socket| socket.try_clone().ok());
        Watchdog(every.zip(socket).map(|(every, socket)| tokio::spawn(feed(socket, every))))
    }

    /// Sets the text that the service manager shows for the program.
    pub fn status(&self, text: &str) {
        self.send(&format!("STATUS={text}"));
    }

    /// Reports that a stop has begun.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    fn send(&self, text: &str) {
        if let Some(socket) = &self.socket
            && let Err(cause) = socket.send(text.as_bytes())
        {
            warn!("the service manager does not accept {text}: {cause}");
        }
    }
}

/// The task that notifies the service manager's watchdog; dropping this stops it.
#[derive(Debug)]
pub struct Watchdog(Option<JoinHandle<()>>);

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

async fn feed(socket: UnixDatagram, every: Duration) {
    loop {
        // No message is sent while no thread for blocking work is available.
        if tokio::task::spawn_blocking(|| ()).await.is_ok()
            && let Err(cause) = socket.send(b"WATCHDOG=1")
        {
            warn!("the service manager does not accept WATCHDOG=1: {cause}");
        }
        tokio::time::sleep(every).await;
    }
}

/// Connects to a socket. A name that starts with `@` is in the abstract namespace (unix(7)).
fn connect(name: &[u8]) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    match name.strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(std::ffi::OsStr::from_bytes(name))?,
    }
    // A manager that does not read must not stop the program.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Returns half of the service manager's time limit, if it watches this process.
fn watchdog_interval(usec: Option<&str>, pid: Option<&str>, own: u32) -> Option<Duration> {
    let usec: u64 = usec?.parse().ok().filter(|usec| *usec > 0)?;
    let watched = pid.is_none_or(|pid| pid.parse() == Ok(own));
    watched.then(|| Duration::from_micros(usec / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchdog_is_notified_at_half_its_time_by_its_process_only() {
        let half = Some(Duration::from_secs(15));
        assert_eq!(watchdog_interval(Some("30000000"), None, 7), half);
        assert_eq!(watchdog_interval(Some("30000000"), Some("7"), 7), half);
        assert_eq!(watchdog_interval(Some("30000000"), Some("8"), 7), None);
        for nothing in [None, Some(""), Some("0"), Some("-1"), Some("soon")] {
            assert_eq!(watchdog_interval(nothing, None, 7), None, "{nothing:?}");
        }
    }
}
