//! Limits of one text.

/// Longest text, bytes.
pub const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Most levels of a tree, and of open parentheses.
pub const DEPTH_MAX: u16 = 256;
