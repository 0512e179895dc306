//! Limits of reading, each with its unit.

/// Most reader threads of one pool.
pub const READERS_MAX: usize = 8;
/// Bytes of content that one system call reads.
pub const READ_BYTES: usize = 256 * 1024;
/// Bytes of the buffer that directory entries are read into.
pub const ENTRIES_BYTES: usize = 64 * 1024;
/// Files in one chunk, which is handed to a reader at once.
pub const CHUNK_FILES: usize = 64;
/// Bytes of content after which a chunk is full.
pub const CHUNK_BYTES: u64 = 4 * 1024 * 1024;
/// Directories kept open for one chunk.
pub const CHUNK_DIRECTORIES: usize = 8;
/// Chunks waiting in the queue, per reader thread.
pub const CHUNKS_WAITING_PER_READER: usize = 2;
/// Number of times that a file is read again because it changed while it was read.
pub const UNSTABLE_RETRIES: u32 = 2;
/// Most bytes of the names of one entry's extended attributes.
pub const XATTR_LIST_BYTES_MAX: usize = 64 * 1024;
