//! A wall clock that a test shifts for real processes, with a preloaded library (`shift.c`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const HOUR: i64 = 3_600;
pub(crate) const DAY: i64 = 24 * HOUR;
pub(crate) const YEAR: i64 = 365 * DAY;

/// The wall clock of the processes that are started with [`ShiftedClock::env`].
pub(crate) struct ShiftedClock {
    library: String,
    file: PathBuf,
}

impl ShiftedClock {
    /// Builds the library into `base`. The clock starts without a shift.
    pub(crate) fn new(base: &Path, name: &str) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/common/shift.c");
        let library = base.join("shift.so");
        if !library.exists() {
            let built = Command::new("cc")
                .args(["-O1", "-shared", "-fPIC", "-o"])
                .args([&library, &source])
                .status();
            assert!(built.expect("a C compiler").success(), "shift.c was not built");
        }
        let clock = Self {
            library: library.to_str().unwrap().to_owned(),
            file: base.join(format!("{name}.shift")),
        };
        clock.set(0);
        clock
    }

    /// Sets the clock to `seconds` after the real time, also for running processes.
    pub(crate) fn set(&self, seconds: i64) {
        use std::os::unix::fs::FileExt as _;
        let file = fs::File::options().write(true).create(true).truncate(false).open(&self.file);
        file.unwrap().write_all_at(&seconds.to_le_bytes(), 0).unwrap();
    }

    pub(crate) fn env(&self) -> [(&str, &str); 2] {
        [("LD_PRELOAD", &self.library), ("HOLDFAST_SHIFT", self.file.to_str().unwrap())]
    }
}
