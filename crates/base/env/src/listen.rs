//! The remedy for an address that cannot be bound.

use std::io::{Error, ErrorKind};

use rustix::io::Errno;

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
}
