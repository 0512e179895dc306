//! Limits of watch rules, each with its unit.

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
