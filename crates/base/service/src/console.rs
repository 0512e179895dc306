//! Lines for people on stdout. The first failure to print is recorded, but stops nothing: an agent or a
//! server works without a reader.

use std::io::{self, Write as _};
use std::sync::OnceLock;

/// The first failure to print.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Prints lines for people. All instances print to stdout.
#[derive(Debug, Clone, Default)]
pub struct Console;

impl Console {
    #[must_use]
    pub fn new() -> Self {
        Self
    }

    /// Prints a line and flushes it.
    pub fn line(&self, text: &str) {
        // A closed stdout is no reason to stop watching.
        let mut out = io::stdout().lock();
        if let Err(e) = writeln!(out, "{text}").and_then(|()| out.flush()) {
            let _ = LOST.set(e);
        }
    }

    /// Returns why a line could not be printed, if one could not.
    pub fn lost() -> Option<&'static io::Error> {
        LOST.get()
    }
}
