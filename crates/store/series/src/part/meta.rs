//! The description of a part in the manifest.

const MAGIC: &[u8; 8] = b"hfsepart";
/// Version of new parts.
pub(crate) const VERSION: u16 = 2;
/// Version of parts with an index of one block, whose checksum is in the manifest.
pub(crate) const VERSION_WHOLE_INDEX: u16 = 1;
/// Maximum number of rows in a chunk.
pub(crate) const CHUNK_ROWS_MAX: usize = 1024;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PartMeta {
    pub(crate) id: u64,
    pub(crate) partition: i64,
    /// 0 for samples, otherwise the step of the roll-up in seconds.
    pub(crate) step_s: u32,
    pub(crate) position_min: u64,
    pub(crate) position_max: u64,
    /// Size of its chunks and its index, in bytes.
    pub(crate) bytes: u64,
    pub(crate) index_bytes: u64,
    /// Checksum of the top of the index.
    pub(crate) index_crc: u32,
    pub(crate) rows: u32,
    pub(crate) samples: u64,
    /// Tombstones up to this position are applied.
    pub(crate) applied: u64,
    /// True for a roll-up whose samples were removed.
    pub(crate) alone: bool,
    pub(crate) version: u16,
    /// Number of its file: the number of the first part in the file.
    pub(crate) file: u64,
    /// Offset of its index in the file.
    pub(crate) index_at: u64,
    /// Size of the top of the index, which is at its end, in bytes.
    pub(crate) top_bytes: u32,
}

impl PartMeta {
    pub(crate) fn file_name(&self) -> String {
        format!("part-{:016x}", self.file)
    }

    /// Returns the offset of the end of the part in the file.
    pub(crate) fn end(&self) -> u64 {
        self.index_at.saturating_add(self.index_bytes)
    }

    pub(super) fn header(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&[0, 0]);
        bytes.extend_from_slice(&self.step_s.to_le_bytes());
        if self.version == VERSION_WHOLE_INDEX {
            bytes.extend_from_slice(&self.partition.to_le_bytes());
            bytes.extend_from_slice(&self.position_min.to_le_bytes());
            bytes.extend_from_slice(&self.position_max.to_le_bytes());
        } else {
            bytes.extend_from_slice(&self.file.to_le_bytes());
        }
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }
}
