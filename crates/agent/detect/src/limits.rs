//! Limits of detection, each with its unit. Limits of reading: [`observe::limits`].

use std::time::Duration;

/// Operations committed together.
pub const BATCH_OPS: usize = 1000;
/// Default number of reader threads.
pub const READERS_DEFAULT: usize = 2;
/// A file whose inode changed within this time before the scan began is read again by the next
/// scan.
pub const RACY: Duration = Duration::from_secs(2);
/// Longest wait for readers before due checks are run.
pub const PATIENCE: Duration = Duration::from_millis(5);
/// Names of one directory above which a check reads the baseline of the whole directory.
pub const NAMES_ONE_BY_ONE: usize = 64;
/// Operations of one call of [`crate::Scanner::check`] up to which moves are recognized. Above, they
/// are reported as deletions and creations.
pub const MOVE_OPS: usize = 65_536;
/// Size above which a file is not read while other checks wait, bytes.
pub const LARGE_BYTES: u64 = 8 * 1024 * 1024;
/// Default number of days in which every file is read again once.
pub const REHASH_DAYS_DEFAULT: u32 = 7;
/// Longest rolling period, days.
pub const REHASH_DAYS_MAX: u32 = 3650;
/// Default size above which content is not read, bytes.
pub const HASH_BYTES_MAX_DEFAULT: u64 = 1 << 30;
/// Most watched paths in one set of rules.
pub const WATCHES_MAX: usize = 1000;
/// Most patterns in one list of a rule.
pub const PATTERNS_MAX: usize = 10_000;
/// Largest `max_depth` of a rule; a path cannot have more components.
pub const DEPTH_MAX: u32 = 2048;
/// Most gaps remembered, so that each is reported once; further ones are reported by every scan.
pub const GAPS_MAX: usize = 10_000;
/// Most directories entered through symbolic links in one scan of a root.
pub const FOLLOWED_MAX: usize = 100_000;
