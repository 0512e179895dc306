//! Samples of one series in one partition, one time window after another. Memory depends neither on
//! the number of samples nor on the overlap of chunks.
//!
//! Windows are planned from the times of chunks, so that few chunks are cut by them. A window with
//! more samples than expected is shortened while it is read. If chunks overlap so much that they
//! cannot be cut, they are sorted first: see [`super::sorted`].

use std::collections::VecDeque;

use super::piece::{SampleRun, Span};
use super::snapshot::{Snapshot, Source, note};
use super::sorted::Sorted;
use crate::error::SeriesReadError;
use crate::model::{Direction, Series, TimeRange};
use crate::table::{ScratchBuffers, Table};

/// Approximate number of samples in a window.
pub(super) const ROWS: usize = 1 << 16;
/// A window is cut when it holds this many times the intended number of samples.
pub(super) const ROWS_OVER: usize = 8;

/// See the module.
pub(super) struct Windows {
    /// Sources with lower positions first.
    pieces: Vec<SampleRun>,
    /// The ranges still to be read, ascending.
    left: VecDeque<TimeRange>,
    rows: usize,
    /// The sorted part of a window, with its memory; `None` if these windows are themselves sorted.
    sorted: Option<(Box<Windows>, usize)>,
    is_sorted: bool,
}

impl Windows {
    /// Creates windows of about `rows` samples over pieces, sources with lower positions first.
    pub(super) fn new(pieces: Vec<SampleRun>, range: TimeRange, rows: usize) -> Self {
        let all: usize = pieces.iter().map(|piece| piece.span().rows).sum();
        let left = if all <= rows {
            VecDeque::from([range])
        } else {
            planned(&pieces.iter().map(SampleRun::span).collect::<Vec<_>>(), range, rows)
        };
        Self { pieces, left, rows, sorted: None, is_sorted: false }
    }

    /// Returns the memory for spans of chunks and sorted blocks, in bytes.
    fn bytes(&self) -> usize {
        let sorted = self.sorted.as_ref().map_or(0, |(_, bytes)| *bytes);
        self.pieces.len() * size_of::<SampleRun>() + sorted
    }

    /// Returns true if the chunks of a window should be sorted, because the window would be cut and
    /// each chunk read many times.
    fn is_tangled(&self, window: TimeRange) -> bool {
        let touching = self.pieces.iter().filter(|piece| piece.touches(window));
        !self.is_sorted
            && touching.map(|piece| piece.span().rows).sum::<usize>()
                > self.rows.saturating_mul(ROWS_OVER)
    }

    /// Sorts the samples of a window, or of a part of it. Returns that part.
    fn sort(
        &mut self,
        window: TimeRange,
        snapshot: &Snapshot,
        direction: Direction,
        work: &mut ScratchBuffers,
        torn: &mut Option<SeriesReadError>,
    ) -> TimeRange {
        let rows = self.rows;
        let sorted = Sorted::of(&self.pieces, window, rows, direction, snapshot, work, torn);
        self.leave_out(sorted.lost);
        let pieces = sorted.blocks.into_iter().map(SampleRun::Sorted).collect();
        let windows = Self { is_sorted: true, ..Self::new(pieces, sorted.window, self.rows) };
        self.sorted = Some((Box::new(windows), sorted.bytes));
        sorted.window
    }

    /// Removes pieces that cannot be read. `lost` is ascending.
    fn leave_out(&mut self, lost: Vec<usize>) {
        lost.into_iter().rev().for_each(|i| drop(self.pieces.remove(i)));
    }

    /// Puts the unread rest of a window back.
    fn put_back(&mut self, planned: TimeRange, window: TimeRange) {
        if window.to_ns < planned.to_ns {
            self.left.push_front(TimeRange { from_ns: window.to_ns, ..planned });
        }
        if window.from_ns > planned.from_ns {
            self.left.push_back(TimeRange { to_ns: window.from_ns, ..planned });
        }
    }

    /// Returns the readable samples of the next window, settled; `None` after the last one. A piece
    /// that cannot be read is reported once and left out from then on.
    pub(super) fn next(
        &mut self,
        snapshot: &Snapshot,
        direction: Direction,
        work: &mut ScratchBuffers,
        torn: &mut Option<SeriesReadError>,
    ) -> Option<Table> {
        if let Some((sorted, _)) = &mut self.sorted {
            match sorted.next(snapshot, direction, work, torn) {
                None => self.sorted = None,
                table => return table,
            }
        }
        let planned = match direction {
            Direction::Forward => self.left.pop_front()?,
            Direction::Backward => self.left.pop_back()?,
        };
        if self.is_tangled(planned) {
            let window = self.sort(planned, snapshot, direction, work, torn);
            self.put_back(planned, window);
            return self.next(snapshot, direction, work, torn);
        }
        let (mut window, mut lost) = (planned, Vec::new());
        let mut all: Option<Table> = None;
        for (i, piece) in self.pieces.iter().enumerate() {
            if !piece.touches(window) {
                continue;
            }
            match (snapshot.open_piece(piece, window, work), &mut all) {
                (Ok(table), Some(all)) => all.append(&table),
                (Ok(table), None) => all = Some(table),
                (Err(e), _) => {
                    note(torn, e);
                    lost.push(i);
                }
            }
            if let Some(all) = all.as_mut().filter(|t| t.len() / ROWS_OVER > self.rows) {
                window = cut(all, window, self.rows.saturating_mul(ROWS_OVER / 2), direction);
            }
        }
        self.leave_out(lost);
        self.put_back(planned, window);
        let mut all = all.unwrap_or_default();
        all.sort_rows();
        Some(all)
    }
}

/// Cuts a range into windows at the beginnings of chunks, each of at least `rows` samples. Chunks
/// with more samples than a window are not cut, because they would be read on both sides.
pub(crate) fn planned(blocks: &[Span], range: TimeRange, rows: usize) -> VecDeque<TimeRange> {
    let mut from_ns = range.from_ns;
    let mut windows = VecDeque::new();
    if blocks.iter().map(|block| block.rows).sum::<usize>() > rows {
        let of = |end: fn(&Span) -> i64| {
            let mut ends: Vec<(i64, usize)> = blocks.iter().map(|b| (end(b), b.rows)).collect();
            ends.sort_unstable();
            ends.into_iter()
        };
        let mut lasts = of(|block| block.last).peekable();
        // Samples of chunks that began in the window, and of chunks that continue.
        let (mut begun, mut open) = (0, 0);
        for (first, some) in of(|block| block.first) {
            while let Some((_, gone)) = lasts.next_if(|(last, _)| *last < first) {
                open -= gone;
            }
            if begun >= rows && open <= begun && first > from_ns {
                windows.push_back(TimeRange { from_ns, to_ns: first });
                (from_ns, begun) = (first, 0);
            }
            begun += some;
            open += some;
        }
    }
    windows.push_back(TimeRange { from_ns, ..range });
    windows
}

/// Settles the samples of a window and keeps `rows` of them. Returns the window of the samples
/// kept.
fn cut(all: &mut Table, window: TimeRange, rows: usize, direction: Direction) -> TimeRange {
    all.sort_rows();
    let beyond = all.len().saturating_sub(rows);
    let at = if direction == Direction::Forward { rows } else { beyond };
    let Some(time) = all.times.get(at).copied().filter(|_| beyond > 0) else { return window };
    if direction == Direction::Forward {
        *all = all.rows(0, at);
        TimeRange { to_ns: time, ..window }
    } else {
        *all = all.rows(at, all.len());
        TimeRange { from_ns: time, ..window }
    }
}

impl Snapshot {
    /// Returns all readable samples of a series in a partition and range, settled.
    pub(crate) fn read(
        &self,
        source: &Source<'_>,
        work: &mut ScratchBuffers,
        torn: &mut Option<SeriesReadError>,
    ) -> Table {
        let pieces = self.pieces(source, torn);
        let mut one = Windows::new(pieces, source.here(), usize::MAX);
        one.next(self, Direction::Forward, work, torn).unwrap_or_default()
    }
}

/// Reads all samples of a series in a range, window by window, in the direction of a scan.
pub(super) struct Reading {
    snapshot: Snapshot,
    series: Series,
    range: TimeRange,
    direction: Direction,
    heads: Vec<SampleRun>,
    partitions: VecDeque<i64>,
    windows: Option<Windows>,
    pub(super) rows: usize,
    work: ScratchBuffers,
    /// A read error that is not reported yet, and the samples that could be read.
    torn: Option<SeriesReadError>,
    table: Option<Table>,
}

impl Reading {
    /// Creates a reading in windows of about `rows` samples.
    pub(super) fn new(
        snapshot: Snapshot,
        series: &Series,
        range: TimeRange,
        direction: Direction,
        rows: usize,
    ) -> Self {
        let mut it = Self {
            snapshot,
            series: series.clone(),
            range,
            direction,
            heads: Vec::new(),
            partitions: VecDeque::new(),
            windows: None,
            rows,
            work: ScratchBuffers::default(),
            torn: None,
            table: None,
        };
        it.start_series(series);
        it
    }

    /// Begins with another series. Buffers are kept.
    pub(super) fn start_series(&mut self, series: &Series) {
        self.series.clone_from(series);
        self.heads = self.snapshot.of_heads(series, self.range);
        self.partitions = self.snapshot.partitions(self.range, &self.heads).into_iter().collect();
        (self.windows, self.torn, self.table) = (None, None, None);
    }

    /// Returns the memory for spans of chunks and sorted blocks, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let windows = self.windows.as_ref().map_or(0, Windows::bytes);
        self.heads.len() * size_of::<SampleRun>() + windows
    }

    /// Moves to the next partition. Returns `None` after the last one.
    fn advance(&mut self) -> Option<()> {
        let partition = match self.direction {
            Direction::Forward => self.partitions.pop_front()?,
            Direction::Backward => self.partitions.pop_back()?,
        };
        let (columns, range, heads) = (&*self.series.columns, self.range, &*self.heads);
        let source = Source { columns, partition, range, heads };
        let pieces = self.snapshot.pieces(&source, &mut self.torn);
        self.windows = Some(Windows::new(pieces, source.here(), self.rows));
        Some(())
    }
}

impl Iterator for Reading {
    /// Settled samples in ascending order. An error precedes the readable samples.
    type Item = Result<Table, SeriesReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(e) = self.torn.take() {
                return Some(Err(e));
            }
            if let Some(table) = self.table.take().filter(|table| !table.is_empty()) {
                return Some(Ok(table));
            }
            let (work, torn) = (&mut self.work, &mut self.torn);
            let windows = self.windows.as_mut();
            self.table = windows.and_then(|w| w.next(&self.snapshot, self.direction, work, torn));
            if self.table.is_none() {
                self.windows = None;
                self.advance()?;
            }
        }
    }
}
