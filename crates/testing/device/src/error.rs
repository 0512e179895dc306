//! Why a device cannot be had or used.

use std::io;
use std::path::PathBuf;

/// A failure around a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// This machine or user cannot have one; tests skip then.
    #[error("no block device in user space here: {0}")]
    Unavailable(String),
    /// A size out of bounds.
    #[error("a device of {bytes} bytes: ask for {min} to {max} bytes")]
    Size {
        /// Size that was asked for.
        bytes: u64,
        min: u64,
        max: u64,
    },
    /// A program failed.
    #[error("{command}: {output}")]
    Program {
        /// Its command line.
        command: String,
        /// Its output, or its exit status.
        output: String,
    },
    /// The operating system refused something.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl DeviceError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
