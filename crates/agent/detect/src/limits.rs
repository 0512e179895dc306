//! Limits of detection, each with its unit. Limits of reading: [`observe::limits`].

use std::time::Duration;

/// Operations committed together.
pub const BATCH_OPS: usize = 1000;
/// Default number of reader threads.
pub const READERS_DEFAULT: usize = 2;
/// A file whose inode changed within this time before the scan began is read again by the next
/// scan.
pub const RACY: Duration = Duration::from_secs(2);
/// Coarseness of the ctime that file systems set: one tick of the slowest kernel timer.
pub const CTIME_STEP: Duration = Duration::from_millis(10);
/// Longest wait for readers before due checks are run.
pub const PATIENCE: Duration = Duration::from_millis(5);
/// Names of one directory above which a check reads the baseline of the whole directory.
pub const NAMES_ONE_BY_ONE: usize = 64;
/// Operations of one call of [`crate::Scanner::check`] up to which moves are recognized. Above, they
/// are reported as deletions and creations.
pub const MOVE_OPS: usize = 65_536;
/// Size above which a file is not read while other checks wait, bytes.
pub const LARGE_BYTES: u64 = 8 * 1024 * 1024;
/// Most gaps remembered, so that each is reported once; further ones are reported by every scan.
pub const GAPS_MAX: usize = 10_000;
/// Most directories entered through symbolic links in one scan of a root.
pub const FOLLOWED_MAX: usize = 100_000;
