//! Parts: immutable sets of samples, each of one partition and one range of positions.
//!
//! A file holds one part, or the parts of several partitions that were written together: first
//! chunks, each with its checksum, then the index of each part. An index consists of blocks of
//! rows, each with its checksum, and of the top. A block has a directory that is searched in place,
//! and for each chunk its location, its times and the summaries of its columns. The top has the
//! locations of the blocks and the set of rows. The top is read when the part is opened, a block
//! when one of its rows is requested. Byte format: docs/format/series.md.

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
