//! The manifest: the valid parts, the valid length of the catalogue, and the tombstones. It is
//! replaced as a whole by a rename.

use std::collections::BTreeMap;
use std::path::Path;

use env::files::{Access, Files};

use crate::error::{SeriesDamage, SeriesOpenError, WriteError, refused};
use crate::part::{PartMeta, VERSION_WHOLE_INDEX};
use crate::record::Tombstone;
use codec::bytes::Input;

const MAGIC: &[u8; 8] = b"hfsemani";
/// The version that is written. From version 4 on, a store may have markers of the end of a series,
/// and control characters in names, which an older program would take for something else.
const VERSION: u16 = 4;
/// The last version without unreadable partitions.
const VERSION_WITHOUT_UNREAD: u16 = 2;
const NAME: &str = "manifest";
/// File name of the first catalogue; a rewritten one has its number appended.
const CATALOG: &str = "catalog";
/// Flags of a part.
const ALONE: u32 = 1;
const WHOLE_INDEX: u32 = 2;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Manifest {
    /// All records up to this position are in parts.
    pub(crate) sealed: u64,
    /// Position of a record minus its position in the log.
    pub(crate) log_base: u64,
    /// Log position that is known to be persisted.
    pub(crate) log_expected: u64,
    /// Number of the catalogue's file, its valid bytes, and the row after the last one ever written
    /// to it.
    pub(crate) catalog: u64,
    pub(crate) catalog_bytes: u64,
    pub(crate) catalog_rows: u32,
    /// Number of the next part.
    pub(crate) next_part: u64,
    /// True if the store was closed cleanly and nothing was written since.
    pub(crate) clean: bool,
    pub(crate) parts: Vec<PartMeta>,
    pub(crate) tombstones: Vec<Tombstone>,
    /// Partitions that could not be read, with the seconds of refusals: see [`crate::unread`].
    pub(crate) unread: BTreeMap<i64, u32>,
}

impl Manifest {
    fn encode(&self) -> Vec<u8> {
        let mut b = MAGIC.to_vec();
        b.extend_from_slice(&VERSION.to_le_bytes());
        b.extend_from_slice(&[u8::from(self.clean), 0]);
        for n in [
            self.sealed,
            self.log_base,
            self.log_expected,
            self.catalog,
            self.catalog_bytes,
            self.next_part,
        ] {
            b.extend_from_slice(&n.to_le_bytes());
        }
        b.extend_from_slice(&self.catalog_rows.to_le_bytes());
        b.extend_from_slice(&(self.parts.len() as u32).to_le_bytes());
        self.parts.iter().for_each(|part| push_part(part, &mut b));
        b.extend_from_slice(&(self.tombstones.len() as u32).to_le_bytes());
        for t in &self.tombstones {
            b.extend_from_slice(&t.position.to_le_bytes());
            t.encode(&mut b);
        }
        b.extend_from_slice(&(self.unread.len() as u32).to_le_bytes());
        for (partition, seconds) in &self.unread {
            b.extend_from_slice(&partition.to_le_bytes());
            b.extend_from_slice(&seconds.to_le_bytes());
        }
        b.extend_from_slice(&crc32c::crc32c(&b).to_le_bytes());
        b
    }

    /// Returns `None` if the bytes are malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, crc) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
        if crc != crc32c::crc32c(body).to_le_bytes() {
            return None;
        }
        let mut input = Input(body);
        input.take_bytes(MAGIC.len())?;
        let version = input.u16()?;
        let mut it = Self { clean: input.u16()? == 1, ..Self::default() };
        it.sealed = input.u64()?;
        it.log_base = input.u64()?;
        it.log_expected = input.u64()?;
        it.catalog = if version == 1 { 0 } else { input.u64()? };
        it.catalog_bytes = input.u64()?;
        it.next_part = input.u64()?;
        it.catalog_rows = input.u32()?;
        for _ in 0..input.u32()? {
            it.parts.push(read_part(&mut input, version)?);
        }
        for _ in 0..input.u32()? {
            let position = input.u64()?;
            it.tombstones.push(Tombstone::decode(&mut input, position)?);
        }
        if version == 1 {
            it.unapply_partial();
        }
        for _ in 0..if version > VERSION_WITHOUT_UNREAD { input.u32()? } else { 0 } {
            it.unread.insert(input.i64()?, input.u32()?);
        }
        input.is_empty().then_some(it)
    }

    /// Marks deletes of some of a row's metrics as not applied: merges of version 1 left them to
    /// the reader.
    fn unapply_partial(&mut self) {
        for t in self.tombstones.iter().filter(|t| t.is_partial()) {
            let before = |p: &&mut PartMeta| p.step_s == 0 && p.position_max < t.position;
            for part in self.parts.iter_mut().filter(before) {
                part.applied = part.applied.min(t.position - 1);
            }
        }
    }

    /// Returns the name of the catalogue's file.
    pub(crate) fn catalog_name(&self) -> String {
        match self.catalog {
            0 => CATALOG.to_owned(),
            number => format!("{CATALOG}-{number:016x}"),
        }
    }

    /// Returns true if `name` is the name of a catalogue file.
    pub(crate) fn is_catalog(name: &str) -> bool {
        let number = name.strip_prefix(CATALOG).map(|rest| rest.strip_prefix('-'));
        number.is_some_and(|number| match number {
            None => name == CATALOG,
            Some(digits) => digits.len() == 16 && u64::from_str_radix(digits, 16).is_ok(),
        })
    }

    /// Reads the manifest of a folder. Returns `None` if there is none.
    pub(crate) fn load(files: &dyn Files, dir: &Path) -> Result<Option<Self>, SeriesOpenError> {
        let path = dir.join(NAME);
        let failed =
            |source| SeriesOpenError::Io { path: path.clone(), what: "cannot read", source };
        let file = match files.open(&path, Access::READ) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(failed)?,
        };
        let mut bytes = vec![0; file.size().map_err(failed)? as usize];
        let read = file.read_at(&mut bytes, 0).map_err(failed)?;
        bytes.truncate(read);
        let mut input = Input(&bytes);
        if input.take_bytes(MAGIC.len()) == Some(MAGIC)
            && let Some(found) = input.u16().filter(|v| *v > VERSION)
        {
            return Err(SeriesOpenError::NewerVersion { file: path, found, known: VERSION });
        }
        let damage = || SeriesDamage {
            file: path.clone(),
            offset: 0,
            what: "the manifest is damaged".into(),
        };
        Ok(Some(Self::decode(&bytes).ok_or_else(damage)?))
    }

    /// Replaces the manifest in the folder durably. Returns the bytes written.
    pub(crate) fn store(&self, files: &dyn Files, dir: &Path) -> Result<u64, WriteError> {
        let (path, new) = (dir.join(NAME), dir.join(format!("{NAME}.new")));
        let bytes = self.encode();
        let write = || {
            let file = files.open(&new, Access::CREATE)?;
            file.set_size(bytes.len() as u64)?;
            file.write_all_at(&bytes, 0)?;
            file.persist()?;
            files.rename(&new, &path)?;
            files.persist_dir(dir)
        };
        write().map_err(refused(&path, "cannot replace"))?;
        Ok(bytes.len() as u64)
    }
}

fn push_part(p: &PartMeta, b: &mut Vec<u8>) {
    for n in [
        p.id,
        p.partition as u64,
        p.position_min,
        p.position_max,
        p.bytes,
        p.index_bytes,
        p.samples,
        p.applied,
        p.file,
        p.index_at,
    ] {
        b.extend_from_slice(&n.to_le_bytes());
    }
    let whole = if p.version == VERSION_WHOLE_INDEX { WHOLE_INDEX } else { 0 };
    let flags = whole | if p.alone { ALONE } else { 0 };
    for n in [p.step_s, p.index_crc, p.rows, p.top_bytes, flags] {
        b.extend_from_slice(&n.to_le_bytes());
    }
}

fn read_part(input: &mut Input<'_>, version: u16) -> Option<PartMeta> {
    let mut p = PartMeta {
        id: input.u64()?,
        partition: input.i64()?,
        position_min: input.u64()?,
        position_max: input.u64()?,
        bytes: input.u64()?,
        index_bytes: input.u64()?,
        samples: input.u64()?,
        applied: input.u64()?,
        version: VERSION_WHOLE_INDEX,
        ..PartMeta::default()
    };
    (p.file, p.index_at) = (p.id, p.bytes.saturating_sub(p.index_bytes));
    if version > 1 {
        (p.file, p.index_at) = (input.u64()?, input.u64()?);
    }
    (p.step_s, p.index_crc, p.rows) = (input.u32()?, input.u32()?, input.u32()?);
    if version > 1 {
        p.top_bytes = input.u32()?;
    }
    let flags = input.u32()?;
    p.alone = flags & ALONE != 0;
    if version > 1 && flags & WHOLE_INDEX == 0 {
        p.version = crate::part::VERSION;
    }
    Some(p)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TimeRange;

    #[test]
    fn manifest_round_trips_and_flipped_bits_are_rejected() {
        let part = PartMeta {
            id: 3,
            partition: -2,
            rows: 9,
            index_crc: 77,
            alone: true,
            version: crate::part::VERSION,
            file: 2,
            index_at: 400,
            top_bytes: 30,
            ..PartMeta::default()
        };
        let tombstone = Tombstone { position: 9, range: TimeRange::ALL, rows: vec![(4, vec![1])] };
        let mut it = Manifest {
            sealed: 12,
            log_base: 1,
            log_expected: 11,
            catalog: 8,
            catalog_bytes: 5,
            catalog_rows: 2,
            next_part: 4,
            clean: true,
            parts: vec![part],
            tombstones: vec![tombstone],
            unread: BTreeMap::new(),
        };
        for unread in [&[][..], &[(-2, 3600), (7, 1)]] {
            it.unread = unread.iter().copied().collect();
            let mut bytes = it.encode();
            assert_eq!(bytes[8..10], u16::to_le_bytes(4));
            assert_eq!(Manifest::decode(&bytes).as_ref(), Some(&it));
            for i in 0..bytes.len() {
                bytes[i] ^= 4;
                assert_eq!(Manifest::decode(&bytes), None, "byte {i}");
                bytes[i] ^= 4;
            }
        }
    }
}
