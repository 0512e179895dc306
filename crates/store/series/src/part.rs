//! Parts: immutable sets of samples of one partition each, of a range of positions.
//!
//! A file holds one part, or those of several partitions that were written together: chunks, each
//! with its checksum, then per part an index. The index is blocks of rows, each with its checksum
//! (a directory that is searched in place, and per chunk where it is, its times and what its
//! columns sum up to), then its top: where the blocks are, and which rows there are. Of an index
//! the top is read when the part is opened, a block when a row of it is asked for. The bytes:
//! docs/format/series.md.

mod file;
mod handle;
pub(crate) mod index;
mod meta;
mod open_parts;
pub(crate) mod stats;
mod write;

pub(crate) use file::PartFile;
pub(crate) use handle::Part;
pub(crate) use index::{ChunkRef, Entry};
pub(crate) use meta::{CHUNK_ROWS_MAX, PartMeta, VERSION, VERSION_WHOLE_INDEX};
pub(crate) use open_parts::OpenParts;
pub(crate) use write::PartWriter;
