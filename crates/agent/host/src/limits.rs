//! Limits of a package database and of the fields of a package.

/// Largest status database, bytes. A system of 100,000 packages has about 100 MB.
pub const DATABASE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Longest line, bytes.
pub const LINE_BYTES_MAX: usize = 1024 * 1024;
/// Largest stanza, bytes.
pub const STANZA_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most fields of one stanza.
pub const FIELDS_MAX: usize = 256;
/// Most installed packages.
pub const PACKAGES_MAX: usize = 100_000;
/// Longest name of a package, bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// Longest version, bytes.
pub const VERSION_BYTES_MAX: usize = 256;
/// Longest architecture, bytes.
pub const ARCHITECTURE_BYTES_MAX: usize = 64;
/// Longest other text, bytes; longer texts are cut.
pub const TEXT_BYTES_MAX: usize = 512;
