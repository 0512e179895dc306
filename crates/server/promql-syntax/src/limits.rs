//! Limits of one text.

/// Longest text, bytes.
pub const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Most regular expressions in one text.
pub const REGEXPS_MAX: usize = 64;
/// Stack that a thread needs to parse, print or evaluate the deepest tree, bytes.
pub const STACK_BYTES: usize = 16 << 20;
/// Most levels of a tree, and of open parentheses.
pub const DEPTH_MAX: u16 = 256;
