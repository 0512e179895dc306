//! Parts: immutable files of one partition each, with the samples of a range of positions.
//!
//! A part is chunks, row by row, each with its checksum, then an index (a directory of rows that
//! is searched in place, and per chunk where it is, its times and what its columns sum up to),
//! then a footer. The bytes: docs/format/series.md.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use env::files::{Access, File, Files};
use parking_lot::Mutex;

use crate::bytes::{Input, push_signed, push_varint};
use crate::error::{Damage, ReadError, WriteError, refused, unread};
use crate::head::partition_range;
use crate::model::{Summary, TimeRange};
use crate::table::{Table, Want, Work};

pub(crate) mod index;
pub(crate) use index::{ChunkRef, Entry};

const MAGIC: &[u8; 8] = b"hfsepart";
/// Version of parts written.
pub(crate) const VERSION: u16 = 1;
const HEADER_BYTES: usize = 44;
/// Most rows of one chunk.
pub(crate) const CHUNK_ROWS_MAX: usize = 1024;
/// Bytes collected before they are written.
const BUFFER_BYTES: usize = 256 << 10;

/// What the manifest says of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PartMeta {
    pub(crate) id: u64,
    pub(crate) partition: i64,
    /// 0 for samples; the step of roll-ups in seconds otherwise.
    pub(crate) step_s: u32,
    pub(crate) position_min: u64,
    pub(crate) position_max: u64,
    pub(crate) bytes: u64,
    pub(crate) index_bytes: u64,
    pub(crate) index_crc: u32,
    pub(crate) rows: u32,
    pub(crate) samples: u64,
    /// Tombstones up to this position are applied.
    pub(crate) applied: u64,
    /// A roll-up whose samples are gone.
    pub(crate) alone: bool,
}

impl PartMeta {
    pub(crate) fn file_name(&self) -> String {
        format!("part-{:016x}", self.id)
    }

    fn header(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0, 0]);
        bytes.extend_from_slice(&self.step_s.to_le_bytes());
        bytes.extend_from_slice(&self.partition.to_le_bytes());
        bytes.extend_from_slice(&self.position_min.to_le_bytes());
        bytes.extend_from_slice(&self.position_max.to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }
}

/// Writes a part. Rows must come ascending.
pub(crate) struct PartWriter {
    meta: PartMeta,
    file: Arc<dyn File>,
    path: PathBuf,
    buffer: Vec<u8>,
    written: u64,
    index: index::Builder,
}

impl PartWriter {
    pub(crate) fn create(
        files: &dyn Files,
        dir: &Path,
        meta: PartMeta,
    ) -> Result<Self, WriteError> {
        let meta = PartMeta { rows: 0, samples: 0, applied: 0, ..meta };
        let path = dir.join(meta.file_name());
        let file = files.open(&path, Access::CREATE).map_err(refused(&path, "cannot create"))?;
        file.set_size(0).map_err(refused(&path, "cannot empty"))?;
        let base = partition_range(meta.partition).from_ns;
        let (buffer, index) = (meta.header(), index::Builder::new(base, meta.step_s == 0));
        Ok(Self { meta, file, path, buffer, written: 0, index })
    }

    /// Add the settled rows of a row series.
    pub(crate) fn row(
        &mut self,
        id: u32,
        table: &Table,
        work: &mut Work,
    ) -> Result<(), WriteError> {
        if table.is_empty() {
            return Ok(());
        }
        self.index.row(id, table.columns.len());
        let mut begin = 0;
        for end in table.chunk_ends(CHUNK_ROWS_MAX) {
            let at = self.buffer.len();
            let offset = self.written + at as u64;
            table.encode(begin, end, work, &mut self.buffer);
            let crc = crc32c::crc32c(self.buffer.get(at..).unwrap_or_default());
            let length = self.buffer.len() - at;
            self.buffer.extend_from_slice(&crc.to_le_bytes());
            self.index.chunk(offset, length, table, begin, end);
            begin = end;
        }
        self.meta.rows += 1;
        self.meta.samples += table.samples() as u64;
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.meta.rows == 0
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        let written = self.file.write_all_at(&self.buffer, self.written);
        written.map_err(refused(&self.path, "cannot write"))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Finish and persist the file (not its name).
    pub(crate) fn finish(mut self) -> Result<PartMeta, WriteError> {
        let index = std::mem::take(&mut self.index).finish();
        self.meta.index_bytes = index.len() as u64;
        self.meta.index_crc = crc32c::crc32c(&index);
        self.buffer.extend_from_slice(&index);
        self.flush()?;
        self.meta.bytes = self.written;
        self.file.persist().map_err(refused(&self.path, "cannot persist"))?;
        Ok(self.meta)
    }
}

/// What is kept of a part between two reads.
struct Opened {
    file: Arc<dyn File>,
    index: Box<[u8]>,
}

/// Counts the reads of all parts: the order in which they were last read.
static READS: AtomicU64 = AtomicU64::new(0);

/// A part on disk. Its file goes when it was replaced and nobody reads it any more.
pub(crate) struct Part {
    pub(crate) meta: PartMeta,
    path: PathBuf,
    files: Arc<dyn Files>,
    opened: Mutex<Option<Arc<Opened>>>,
    /// The last read, by [`READS`].
    read_last: AtomicU64,
    replaced: AtomicBool,
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.replaced.load(Ordering::Acquire) {
            // What cannot be removed is removed at the next opening.
            let _ = self.files.remove(&self.path);
        }
    }
}

impl Part {
    pub(crate) fn new(files: &Arc<dyn Files>, dir: &Path, meta: PartMeta) -> Self {
        let (path, files) = (dir.join(meta.file_name()), Arc::clone(files));
        let (read_last, replaced) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { meta, path, files, opened: Mutex::new(None), read_last, replaced }
    }

    /// When it was last read, if its file and index are kept open.
    pub(crate) fn open_since(&self) -> Option<u64> {
        self.opened.lock().as_ref().map(|_| self.read_last.load(Ordering::Relaxed))
    }

    /// Let go of file and index; who reads it now reads on, the next one opens it again.
    pub(crate) fn close(&self) {
        self.opened.lock().take();
    }

    /// Remove the file once nobody reads it.
    pub(crate) fn replace(&self) {
        self.replaced.store(true, Ordering::Release);
    }

    fn damage(&self, offset: u64, what: &str) -> ReadError {
        Damage { file: self.path.clone(), offset, what: what.into() }.into()
    }

    fn open(&self) -> Result<Arc<dyn File>, ReadError> {
        self.files.open(&self.path, Access::READ).map_err(unread(&self.path, "cannot open"))
    }

    fn read(&self, file: &dyn File, offset: u64, bytes: usize) -> Result<Vec<u8>, ReadError> {
        let mut buffer = vec![0; bytes];
        let read = file.read_at(&mut buffer, offset);
        if read.map_err(unread(&self.path, "cannot read"))? < bytes {
            return Err(self.damage(offset, "the file is too short"));
        }
        Ok(buffer)
    }

    fn opened(&self) -> Result<Arc<Opened>, ReadError> {
        self.read_last.store(READS.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let mut kept = self.opened.lock();
        if let Some(opened) = &*kept {
            return Ok(Arc::clone(opened));
        }
        let file = self.open()?;
        let begin = self.meta.bytes.saturating_sub(self.meta.index_bytes);
        let index = self.read(&*file, begin, self.meta.index_bytes as usize)?;
        if crc32c::crc32c(&index) != self.meta.index_crc {
            return Err(self.damage(begin, "the index is damaged"));
        }
        let opened = Arc::new(Opened { file, index: index.into() });
        *kept = Some(Arc::clone(&opened));
        Ok(opened)
    }

    fn odd_index(&self) -> ReadError {
        self.damage(self.meta.bytes - self.meta.index_bytes, "the index is no index")
    }

    /// Rows in it, ascending.
    pub(crate) fn rows(&self) -> Result<Vec<u32>, ReadError> {
        index::rows(&self.opened()?.index).ok_or_else(|| self.odd_index())
    }

    /// What it has of a row, with the summaries of the columns that are wanted.
    pub(crate) fn entry(&self, row: u32, want: Want) -> Result<Option<Entry>, ReadError> {
        let base = partition_range(self.meta.partition).from_ns;
        let entry = index::find(&self.opened()?.index, row, base, self.meta.step_s == 0, want);
        let entry = entry.ok_or_else(|| self.odd_index())?;
        Ok((!entry.chunks.is_empty()).then_some(entry))
    }

    /// Append the rows of a chunk.
    pub(crate) fn chunk(
        &self,
        chunk: &ChunkRef,
        want: Want,
        into: &mut Table,
        work: &mut Work,
    ) -> Result<(), ReadError> {
        let opened = self.opened()?;
        let bytes = self.read(&*opened.file, chunk.offset, chunk.length + 4)?;
        let (body, crc) = bytes.split_at_checked(chunk.length).unwrap_or((&[], &[]));
        if crc != crc32c::crc32c(body).to_le_bytes() {
            return Err(self.damage(chunk.offset, "a chunk is damaged"));
        }
        let decoded = into.decode(body, want, work);
        decoded.ok_or_else(|| self.damage(chunk.offset, "a chunk cannot be decoded"))
    }

    /// All rows of a row series in a range, sorted.
    pub(crate) fn table(
        &self,
        row: u32,
        range: TimeRange,
        want: Want,
        work: &mut Work,
    ) -> Result<Option<Table>, ReadError> {
        let Some(entry) = self.entry(row, Want::None)? else { return Ok(None) };
        let mut table = Table::with_columns(want.of(entry.columns));
        for chunk in entry.chunks.iter().filter(|c| range.touches(c.first, c.last)) {
            self.chunk(chunk, want, &mut table, work)?;
        }
        table.keep(|t| range.contains(t));
        Ok(Some(table))
    }

    /// Look at every byte: what is wrong with it, one line each.
    pub(crate) fn verify(&self) -> Vec<ReadError> {
        let mut found = Vec::new();
        match self.open().and_then(|file| self.read(&*file, 0, HEADER_BYTES)) {
            Ok(header) if header == self.meta.header() => {}
            Ok(_) => found.push(self.damage(0, "the header is damaged")),
            Err(e) => found.push(e),
        }
        let rows = self.rows();
        for row in rows.as_deref().unwrap_or_default() {
            self.verify_row(*row, &mut found);
        }
        found.extend(rows.err());
        found
    }

    fn verify_row(&self, row: u32, found: &mut Vec<ReadError>) {
        let entry = self.entry(row, Want::All);
        let entry = entry.and_then(|entry| entry.ok_or_else(|| self.odd_index()));
        let mut work = Work::default();
        match entry {
            Ok(entry) => found.extend(entry.chunks.iter().filter_map(|chunk| {
                let mut table = Table::with_columns(entry.columns);
                self.chunk(chunk, Want::All, &mut table, &mut work).err()
            })),
            Err(e) => found.push(e),
        }
    }
}

/// The summary of a column's samples; `None` when they say less than they should: NaN among them,
/// or nothing.
pub(crate) fn summary_of(times: &[i64], bits: &[u64]) -> Option<Summary> {
    let count = times.len().min(bits.len());
    let (times, bits) = (times.get(..count)?, bits.get(..count)?);
    let value = |i: usize| bits.get(i).map_or(f64::NAN, |b| f64::from_bits(*b));
    let (first_ns, last_ns) = (*times.first()?, *times.last()?);
    let mut sum = -0.0;
    // Where the extremes are: behind the last one while there were only NaN.
    let (mut low, mut high) = (f64::NAN, f64::NAN);
    let (mut low_at, mut high_at) = (count - 1, count - 1);
    let numbers = bits.iter().position(|b| !f64::from_bits(*b).is_nan()).unwrap_or(count);
    bits.iter().take(numbers).for_each(|b| sum += f64::from_bits(*b));
    if numbers < count {
        (low, high) = (value(numbers), value(numbers));
        (low_at, high_at) = (numbers, numbers);
    }
    for (i, b) in bits.iter().enumerate().skip(numbers) {
        let v = f64::from_bits(*b);
        sum += v;
        if v < low {
            (low, low_at) = (v, i);
        }
        if v > high {
            (high, high_at) = (v, i);
        }
    }
    let time = |i: usize| times.get(i).copied().unwrap_or(last_ns);
    Some(Summary {
        count: count as u64,
        min: low,
        min_ns: time(low_at),
        max: high,
        max_ns: time(high_at),
        sum,
        first: value(0),
        first_ns,
        last: value(count - 1),
        last_ns,
    })
}

pub(crate) fn push_stats(into: &mut Vec<u8>, all: &Summary) {
    let numbers = [all.min, all.max, all.sum, all.first, all.last];
    let ten = [1.0, 10.0, 100.0, 1000.0];
    let fits = |t: &f64| {
        numbers.iter().all(|v| {
            let digits = (v * t).round();
            // By way of the integer that is written: it has no negative zero.
            digits.abs() < 1e15 && (digits as i64 as f64 / t).to_bits() == v.to_bits()
        })
    };
    let exponent = ten.iter().position(fits).unwrap_or(ten.len());
    into.push(exponent as u8);
    for v in numbers {
        match ten.get(exponent) {
            Some(t) => push_signed(into, (v * t).round() as i64),
            None => into.extend_from_slice(&v.to_le_bytes()),
        }
    }
    push_varint(into, (all.min_ns - all.first_ns) as u64);
    push_varint(into, (all.max_ns - all.first_ns) as u64);
}

/// Pass over what [`push_stats`] wrote.
pub(crate) fn skip_stats(input: &mut Input<'_>) -> Option<()> {
    match input.u8()? {
        0..=3 => (0..5).try_for_each(|_| input.skip_varint())?,
        _ => drop(input.take(5 * size_of::<f64>())?),
    }
    input.skip_varint()?;
    input.skip_varint()
}

pub(crate) fn read_stats(
    input: &mut Input<'_>,
    first: i64,
    last: i64,
    count: u64,
) -> Option<Summary> {
    let exponent = input.u8()?;
    let mut numbers = [0.0; 5];
    for v in &mut numbers {
        *v = match exponent {
            0..=3 => {
                input.signed()? as f64 / [1.0, 10.0, 100.0, 1000.0].get(usize::from(exponent))?
            }
            _ => input.f64()?,
        };
    }
    let [min, max, sum, first_value, last_value] = numbers;
    let min_ns = first.checked_add(i64::try_from(input.varint()?).ok()?)?;
    let max_ns = first.checked_add(i64::try_from(input.varint()?).ok()?)?;
    Some(Summary {
        count,
        min,
        min_ns,
        max,
        max_ns,
        sum,
        first: first_value,
        first_ns: first,
        last: last_value,
        last_ns: last,
    })
}
