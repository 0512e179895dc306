//! The head: unsealed samples by row, compressed as they arrive.
//!
//! A row begins with a small buffer of uncompressed rows. When it is full, it becomes a chunk. Rows
//! may arrive in any order; of two with the same time the later one is valid.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::batch::Batch;
use crate::model::TimeRange;
use crate::options::PARTITION_NS;
use crate::pages::Pages;
use crate::sharing::{Shared, SharedSeries};
use crate::table::{ScratchBuffers, Table, Want};

mod stretch;
pub(crate) use stretch::ChunkRange;

/// Number of rows that are kept uncompressed before they become a chunk.
const OPEN_ROWS_MAX: usize = 64;
/// The same for rows of few metrics, in which times take most of the space.
const OPEN_ROWS_MAX_NARROW: usize = 16;
/// Rows with fewer metrics than this are narrow.
const NARROW_COLUMNS: usize = 4;
/// Bytes of bookkeeping assumed per row.
const ROW_BYTES: usize = 136;

/// Returns the partition of a time.
pub(crate) fn partition_of(time_ns: i64) -> i64 {
    time_ns.div_euclid(PARTITION_NS)
}

/// Returns the time range of a partition.
pub(crate) fn partition_range(partition: i64) -> TimeRange {
    let from_ns = partition.saturating_mul(PARTITION_NS);
    TimeRange { from_ns, to_ns: from_ns.saturating_add(PARTITION_NS) }
}

/// A compressed run of rows.
struct Chunk {
    first: i64,
    last: i64,
    bytes: Box<[u8]>,
}

impl Chunk {
    /// Adds the partitions of the chunk's rows to `into`.
    fn partitions(&self, work: &mut ScratchBuffers, into: &mut BTreeSet<i64>) {
        let (first, last) = (partition_of(self.first), partition_of(self.last));
        into.extend([first, last]);
        if last > first + 1 {
            let mut table = Table::default();
            // The head encoded the chunk itself, so decoding cannot fail.
            let _ = table.decode(&self.bytes, Want::None, work);
            into.extend(table.times.iter().map(|t| partition_of(*t)));
        }
    }
}

/// One row series of the head.
pub(crate) struct RowHead {
    columns: u16,
    events: bool,
    chunks: Vec<Chunk>,
    /// Uncompressed rows: the time, then the bits of the values, row after row.
    open: Vec<u64>,
    /// State that most rows never need.
    rare: Option<Box<RareState>>,
}

/// The portion of a row to read: some of its chunks, with or without the open rows.
#[derive(Clone, Copy)]
struct Runs<'a> {
    chunks: &'a [Chunk],
    with_open: bool,
}

/// Values of a row at one time.
struct RowValues {
    bits: Vec<u64>,
    /// Columns that hold integers.
    integers: Vec<u32>,
}

/// State that only few open rows need.
#[derive(Default)]
struct RareState {
    /// Indexes into `open` of integers.
    integers: Vec<u32>,
    texts: Vec<Box<[u8]>>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Head {
    rows: Vec<RowHead>,
    /// Index of each row in `rows`, plus one, by row number.
    places: Pages<NonZeroU32>,
    /// Row numbers in the order of `rows`.
    ids: Vec<u32>,
    samples: u64,
    bytes: usize,
    work: ScratchBuffers,
    table: Table,
    batches: u64,
}

/// A head, shared by writers and readers.
#[derive(Default)]
pub(crate) struct HeadCell {
    pub(crate) head: RwLock<Head>,
    /// First position, and the last position once the head is closed.
    first: AtomicU64,
    last: AtomicU64,
}

impl HeadCell {
    /// Creates a head that begins at a position.
    pub(crate) fn new(first: u64) -> Self {
        Self {
            head: RwLock::default(),
            first: AtomicU64::new(first),
            last: AtomicU64::new(u64::MAX),
        }
    }

    pub(crate) fn close(&self, last: u64) {
        self.last.store(last, Ordering::Release);
    }

    pub(crate) fn first(&self) -> u64 {
        self.first.load(Ordering::Acquire)
    }

    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }
}

impl RowHead {
    fn width(&self) -> usize {
        1 + usize::from(self.columns)
    }

    fn shape(&self) -> usize {
        if self.events { 0 } else { usize::from(self.columns) }
    }

    /// Returns the indexes into `open` of integers.
    fn integers(&self) -> &[u32] {
        self.rare.as_ref().map_or(&[], |rare| &rare.integers)
    }

    /// Copies the open rows to a table, in order of arrival.
    fn open_table(&self, table: &mut Table) {
        let width = self.width();
        let begin = table.times.len();
        if self.events {
            table.times.extend(self.open.iter().map(|t| *t as i64));
            table.texts.extend(self.rare.iter().flat_map(|rare| rare.texts.iter().cloned()));
            return;
        }
        table
            .times
            .extend(self.open.chunks_exact(width).map(|row| row.first().map_or(0, |t| *t as i64)));
        for (i, column) in table.columns.iter_mut().enumerate() {
            column.bits.extend(self.open.iter().skip(1 + i).step_by(width));
        }
        for index in self.integers() {
            let (row, column) = (*index as usize / width, *index as usize % width - 1);
            let Some(column) = table.columns.get_mut(column) else { continue };
            column.integers.resize(column.bits.len(), false);
            if let Some(flag) = column.integers.get_mut(begin + row) {
                *flag = true;
            }
        }
    }

    /// Compresses the open rows. Returns the change of memory, in bytes.
    fn close(&mut self, table: &mut Table, work: &mut ScratchBuffers) -> usize {
        if table.columns.len() != self.shape() {
            *table = Table::with_columns(self.shape());
        }
        table.clear();
        self.open_table(table);
        table.sort_rows();
        let (mut begin, mut more) = (0, 0);
        for end in table.chunk_ends(OPEN_ROWS_MAX) {
            let mut bytes = Vec::new();
            table.encode(begin, end, work, &mut bytes);
            let at = |i: usize| table.times.get(i).copied().unwrap_or_default();
            let chunk = Chunk { first: at(begin), last: at(end - 1), bytes: bytes.into() };
            let room = self.chunks.capacity();
            if self.chunks.len() == room {
                // The capacity doubles, starting with one: most rows need few chunks before they
                // are sealed.
                self.chunks.reserve_exact(room.max(1));
            }
            more += chunk.bytes.len() + (self.chunks.capacity() - room) * size_of::<Chunk>();
            self.chunks.push(chunk);
            begin = end;
        }
        self.open.clear();
        if let Some(rare) = &mut self.rare {
            rare.integers.clear();
            rare.texts.clear();
        }
        more
    }

    /// Appends the rows of a range, unsettled, in order of arrival.
    fn read(
        &self,
        from: Runs<'_>,
        range: TimeRange,
        want: Want,
        into: &mut Table,
        work: &mut ScratchBuffers,
    ) -> Option<()> {
        for chunk in from.chunks {
            if range.touches(chunk.first, chunk.last) {
                into.decode(&chunk.bytes, want, work)?;
            }
        }
        if self.open.is_empty() || !from.with_open {
            return Some(());
        }
        let mut open = Table::with_columns(self.shape());
        self.open_table(&mut open);
        if let Want::One(column) = want
            && !self.events
        {
            let one = open.columns.get_mut(usize::from(column)).map(std::mem::take)?;
            open.columns = vec![one];
        }
        into.append(&open);
        Some(())
    }

    /// Returns the samples of some chunks, and of the open rows if requested, in a range, settled.
    fn table(
        &self,
        id: u32,
        from: Runs<'_>,
        range: TimeRange,
        want: Want,
        work: &mut ScratchBuffers,
    ) -> Table {
        let columns = if self.events { self.shape() } else { want.of(self.shape()) };
        let mut table = Table::with_columns(columns);
        if self.read(from, range, want, &mut table, work).is_none() {
            // This cannot happen: the head encoded the chunk itself.
            tracing::error!(row = id, "a chunk of the head cannot be decoded");
        }
        table.retain_rows(|t| range.contains(t));
        table.sort_rows();
        table
    }

    /// Returns the row at a time: its values, and which columns are integers.
    fn at(&self, time: i64, work: &mut ScratchBuffers) -> Option<RowValues> {
        let width = self.width();
        let same = |(_, row): &(usize, &[u64])| row.first().is_some_and(|t| *t as i64 == time);
        if let Some((i, row)) = self.open.chunks_exact(width).enumerate().rev().find(same) {
            let begin = (i * width) as u32;
            let own = begin + 1..begin + width as u32;
            let flags = self.integers().iter().filter(|index| own.contains(index));
            let integers = flags.map(|index| index - begin - 1).collect();
            return Some(RowValues { bits: row.get(1..)?.to_vec(), integers });
        }
        let covering = |chunk: &&Chunk| chunk.first <= time && time <= chunk.last;
        for chunk in self.chunks.iter().rev().filter(covering) {
            let mut table = Table::with_columns(self.shape());
            table.decode(&chunk.bytes, Want::All, work)?;
            let Ok(i) = table.times.binary_search(&time) else { continue };
            let flags = table.columns.iter().zip(0..).filter(|(c, _)| c.is_integer(i));
            let integers = flags.map(|(_, column)| column).collect();
            let bits = table.columns.iter().filter_map(|c| c.bits.get(i)).copied().collect();
            return Some(RowValues { bits, integers });
        }
        None
    }
}

impl Head {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.places.bytes()
    }

    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    pub(crate) fn active_rows(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batches == 0
    }

    /// Applies a batch.
    pub(crate) fn apply(&mut self, batch: &Batch, sharing: &SharedSeries) {
        self.batches += 1;
        self.samples += batch.samples() as u64;
        let mut values = &*batch.values;
        let mut integers = batch.integers.iter().peekable();
        let (mut index, mut flags) = (0u32, Vec::new());
        for ((id, columns), time) in batch.rows.iter().zip(&batch.columns).zip(&batch.times) {
            let (row, rest) =
                values.split_at_checked(usize::from(*columns)).unwrap_or((values, &[]));
            values = rest;
            flags.clear();
            while let Some(i) = integers.next_if(|i| **i < index + u32::from(*columns)) {
                flags.push(*i - index);
            }
            index += u32::from(*columns);
            let place = self.get_or_insert_row(*id, *columns, false);
            self.push(place, *time, row, &flags);
            if !sharing.is_empty() {
                self.agree(sharing.of(*id), *time, row, &flags);
            }
        }
        for (id, time, text) in batch.events() {
            let place = self.get_or_insert_row(id, 1, true);
            let Some(head) = self.rows.get_mut(place) else { continue };
            head.open.push(time as u64);
            head.rare.get_or_insert_default().texts.push(text.into());
            self.bytes += 8 + 16 + text.len();
            if head.open.len() >= OPEN_ROWS_MAX {
                self.bytes += head.close(&mut self.table, &mut self.work);
            }
        }
    }

    /// Adds a row. `flags` are the columns that hold integers.
    fn push(&mut self, place: usize, time: i64, row: &[u64], flags: &[u32]) {
        let Some(head) = self.rows.get_mut(place) else { return };
        let before = head.open.capacity();
        if before - head.open.len() <= row.len() {
            head.grow();
        }
        let begin = head.open.len() as u32 + 1;
        head.open.push(time as u64);
        head.open.extend_from_slice(row);
        if !flags.is_empty() {
            let rare = head.rare.get_or_insert_default();
            rare.integers.extend(flags.iter().map(|column| begin + column));
        }
        self.bytes += (head.open.capacity() - before) * 8;
        if head.open.len() >= open_rows_max(usize::from(head.columns)) * head.width() {
            self.bytes += head.close(&mut self.table, &mut self.work);
        }
    }

    /// Copies the values of a new row to the rows that share a series with it, where they have a
    /// sample at its time.
    fn agree(&mut self, shared: &[Shared], time: i64, row: &[u64], flags: &[u32]) {
        for Shared { own, row: other, column } in shared {
            let Some(place) = self.place_of(*other) else { continue };
            let head = self.rows.get(place);
            let found = head.and_then(|head| head.at(time, &mut self.work));
            let Some(RowValues { bits: mut values, mut integers }) = found else { continue };
            let Some(new) = row.get(usize::from(*own)) else { continue };
            let (integer, column) = (flags.contains(&u32::from(*own)), u32::from(*column));
            let Some(old) = values.get_mut(column as usize) else { continue };
            if old == new && integers.contains(&column) == integer {
                continue;
            }
            *old = *new;
            integers.retain(|c| *c != column);
            integers.extend(integer.then_some(column));
            integers.sort_unstable();
            self.push(place, time, &values, &integers);
        }
    }

    /// Returns the index of a row's head, if it has one.
    fn place_of(&self, id: u32) -> Option<usize> {
        self.places.get(id).map(|place| place.get() as usize - 1)
    }

    /// Returns the index of a row's head, creating it if there is none.
    fn get_or_insert_row(&mut self, id: u32, columns: u16, events: bool) -> usize {
        if let Some(place) = self.place_of(id) {
            return place;
        }
        let (chunks, open) = (Vec::new(), Vec::new());
        self.rows.push(RowHead { columns, events, chunks, open, rare: None });
        self.ids.push(id);
        self.bytes += ROW_BYTES;
        if let Some(place) = NonZeroU32::new(self.rows.len() as u32) {
            self.places.insert(id, place);
        }
        self.rows.len() - 1
    }

    fn row(&self, id: u32) -> Option<&RowHead> {
        self.rows.get(self.place_of(id)?)
    }

    /// Returns the samples of a row in a range, settled. Empty if there are none.
    pub(crate) fn read(
        &self,
        id: u32,
        range: TimeRange,
        want: Want,
        work: &mut ScratchBuffers,
    ) -> Table {
        let Some(row) = self.row(id) else { return Table::default() };
        row.table(id, Runs { chunks: &row.chunks, with_open: true }, range, want, work)
    }

    /// Returns the numbers of its rows, ascending.
    pub(crate) fn row_ids(&self) -> Vec<u32> {
        let mut ids = self.ids.clone();
        ids.sort_unstable();
        ids
    }

    /// Returns the maximum number of samples of a row.
    pub(crate) fn samples_of(&self, id: u32) -> usize {
        self.row(id).map_or(0, |row| {
            let rows = row.chunks.len() * OPEN_ROWS_MAX + row.open.len() / row.width().max(1);
            rows * usize::from(row.columns)
        })
    }

    /// Returns true if the head has samples of a row.
    pub(crate) fn has(&self, id: u32) -> bool {
        self.place_of(id).is_some()
    }

    /// Returns true if a row may have samples in a range, by the first and last times of its chunks.
    pub(crate) fn reaches(&self, id: u32, range: TimeRange) -> bool {
        self.row(id).is_some_and(|row| {
            row.chunks.iter().any(|chunk| range.touches(chunk.first, chunk.last))
                || row.open_times().any(|time_ns| range.contains(time_ns))
        })
    }

    /// Returns the partitions of its rows, ascending.
    pub(crate) fn partitions(&self) -> Vec<i64> {
        let (mut found, mut work) = (BTreeSet::new(), ScratchBuffers::default());
        for row in &self.rows {
            row.chunks.iter().for_each(|chunk| chunk.partitions(&mut work, &mut found));
            found.extend(row.open_times().map(partition_of));
        }
        found.into_iter().collect()
    }
}

impl RowHead {
    /// Reserves space for more open rows: doubles a small buffer, up to the full size.
    fn grow(&mut self) {
        let width = self.width();
        let rows = self.open.capacity() / width;
        let more = if rows == 0 { 4 } else { rows };
        let most = open_rows_max(usize::from(self.columns)).saturating_sub(rows);
        self.open
            .reserve_exact(self.open.capacity() - self.open.len() + more.min(most.max(1)) * width);
    }
}

fn open_rows_max(columns: usize) -> usize {
    if columns < NARROW_COLUMNS { OPEN_ROWS_MAX_NARROW } else { OPEN_ROWS_MAX }
}
