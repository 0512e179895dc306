//! Limits that more than one crate must agree on. Limits of a single crate are defined there.

/// Longest value of an extended attribute kept as it is, bytes; longer ones are kept as a digest.
pub const XATTR_VALUE_BYTES_MAX: usize = 256;
/// Most extended attributes kept of one entry.
pub const XATTRS_MAX: usize = 64;
/// Largest body of one session on the wire, bytes. Above it the server answers 413.
pub const SESSION_BYTES_MAX: usize = 20 * 1024 * 1024;
/// Target size of one session of an agent, bytes: 5 MiB less 64 KiB (`docs/reference/wire.md`,
/// "Sessions: size and id").
pub const SESSION_BYTES_TARGET: usize = 5 * 1024 * 1024 - 64 * 1024;
/// Largest body of one document or event, bytes.
pub const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;
/// Longest document id, bytes.
pub const DOCUMENT_ID_BYTES_MAX: usize = 512;
/// Most documents and events in one session.
pub const SESSION_VALUES_MAX: usize = 100_000;
/// Time for which the server remembers a deleted document, seconds: 7 days.
pub const TOMBSTONE_SECONDS: u64 = 7 * 24 * 3600;
/// Longest path the agent records, bytes; the kernel's own limit for one call.
pub const PATH_BYTES_MAX: usize = 4096;
/// An agent's clock that differs from the server's by more than this is wrong, microseconds: a day.
pub const CLOCK_OFF_US: u64 = 24 * 3600 * 1_000_000;
