//! Limits of rules files, each with its unit.

/// Largest rules file, bytes.
pub const RULE_BYTES_MAX: usize = 64 * 1024;
/// Most files in the folder.
pub const FILES_MAX: usize = 5_000;
/// Longest name of a file, bytes.
pub const NAME_BYTES_MAX: usize = 128;
/// Most bytes of cached files.
pub const KEPT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Longest title, characters, as in the Sigma specification.
pub const TITLE_CHARS_MAX: usize = 256;
/// Most selections of one rule.
pub const SELECTIONS_MAX: usize = 256;
/// Deepest nesting of parentheses and `not` in a condition.
pub const CONDITION_DEPTH_MAX: usize = 32;
/// Longest condition, bytes.
pub const CONDITION_BYTES_MAX: usize = 4 * 1024;
