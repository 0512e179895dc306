//! Failures of listeners: the remedy for an address that cannot be bound, and the log lines about
//! connections that cannot be accepted.

use std::io::{Error, ErrorKind};
use std::time::Instant;

use rustix::io::Errno;

use crate::sources::LogLimit;

/// Returns what to do after `cause` prevented listening on an address.
pub fn bind_remedy(cause: &Error) -> &'static str {
    match (cause.kind(), Errno::from_io_error(cause)) {
        (_, Some(Errno::MFILE)) => {
            "the limit of open files of this process is reached: raise it (`ulimit -n`, LimitNOFILE)"
        }
        (_, Some(Errno::NFILE)) => {
            "the limit of open files of the system is reached: raise fs.file-max"
        }
        (ErrorKind::AddrInUse, _) => "choose another address or stop what uses it",
        (ErrorKind::AddrNotAvailable, _) => "choose an address of this machine",
        (ErrorKind::PermissionDenied, _) => "choose a port from 1024 on, or allow this one",
        _ => "check the system's log",
    }
}

/// Limits the log lines about failed accepts of one listener. Without file descriptors, every accept
/// fails until a connection is closed.
pub struct AcceptFailures {
    begun: Instant,
    lines: LogLimit,
}

impl AcceptFailures {
    pub fn new() -> Self {
        Self { begun: Instant::now(), lines: LogLimit::default() }
    }

    /// Returns the line for a failed accept, or `None` if enough lines were logged in this minute.
    pub fn line(&mut self, cause: &Error) -> Option<String> {
        let suppressed = self.lines.line(None, self.begun.elapsed())?;
        let remedy = bind_remedy(cause);
        Some(format!("cannot accept connections: {cause}: {remedy}; suppressed={suppressed}"))
    }
}

impl Default for AcceptFailures {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedy_names_the_limit_of_open_files() {
        let remedy = |errno: Errno| bind_remedy(&Error::from(errno));
        assert!(remedy(Errno::MFILE).contains("LimitNOFILE"));
        assert!(remedy(Errno::NFILE).contains("fs.file-max"));
        assert!(remedy(Errno::ADDRINUSE).contains("another address"));
        assert!(!remedy(Errno::IO).contains("address"));
    }

    #[test]
    fn failed_accepts_name_the_limit_and_do_not_fill_the_log() {
        let mut failures = AcceptFailures::new();
        let full = Error::from(Errno::MFILE);
        let lines: Vec<String> = (0..1_000).filter_map(|_| failures.line(&full)).collect();
        assert!(!lines.is_empty() && lines.len() < 30, "{} lines", lines.len());
        assert!(lines[0].contains("LimitNOFILE"), "{}", lines[0]);
    }
}
