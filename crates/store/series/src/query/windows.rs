//! Samples of one series in one partition, a window of time after another: what is in memory follows
//! neither how many there are nor how blocks overlap.
//!
//! Windows are planned from what blocks say of their times, so that few blocks are cut by them. Where
//! more samples than expected turn out to be in one, it becomes shorter while it is read.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::{Snapshot, Source, note};
use crate::error::ReadError;
use crate::head::{HeadCell, Stretch, partition_of};
use crate::model::{Direction, Series, TimeRange};
use crate::part::{ChunkRef, Part};
use crate::table::{Table, Work};

/// Samples of a window, about.
pub(super) const ROWS: usize = 1 << 16;
/// A window is cut when it holds so many times what it should.
const ROWS_OVER: usize = 8;

/// A run of samples of one series that is not read yet: a chunk of a part, or chunks of a head.
#[derive(Clone)]
pub(crate) enum Piece {
    Chunk(Arc<Part>, ChunkRef, (u32, u16)),
    Head(Arc<HeadCell>, Stretch, (u32, u16)),
}

impl Piece {
    /// Its first and its last time.
    pub(super) fn span(&self) -> (i64, i64) {
        match self {
            Self::Chunk(_, chunk, _) => (chunk.first, chunk.last),
            Self::Head(_, stretch, _) => (stretch.first, stretch.last),
        }
    }

    /// Samples at most.
    fn rows(&self) -> usize {
        match self {
            Self::Chunk(_, chunk, _) => chunk.rows as usize,
            Self::Head(_, stretch, _) => stretch.rows,
        }
    }

    pub(super) fn touches(&self, range: TimeRange) -> bool {
        let (first, last) = self.span();
        range.touches(first, last)
    }

    /// Add the partitions that it has samples of.
    pub(super) fn partitions(&self, into: &mut BTreeSet<i64>, work: &mut Work) {
        let (first, last) = self.span();
        let (first, last) = (partition_of(first), partition_of(last));
        into.extend([first, last]);
        if let Self::Head(cell, stretch, (row, _)) = self
            && last > first.saturating_add(1)
        {
            cell.head.read().touched(*row, stretch, work, into);
        }
    }
}

/// See the module.
pub(super) struct Windows {
    /// Sources with lower positions first.
    pieces: Vec<Piece>,
    /// What is to be read, ascending.
    left: VecDeque<TimeRange>,
    rows: usize,
}

impl Windows {
    /// Windows of about so many samples over pieces, sources with lower positions first.
    pub(super) fn new(pieces: Vec<Piece>, range: TimeRange, rows: usize) -> Self {
        let left = planned(&pieces, range, rows);
        Self { pieces, left, rows }
    }

    /// What can be read of the next window, settled; `None` behind the last one. A piece that cannot
    /// be read is noted once and left out from then on.
    pub(super) fn next(
        &mut self,
        snapshot: &Snapshot,
        direction: Direction,
        work: &mut Work,
        torn: &mut Option<ReadError>,
    ) -> Option<Table> {
        let planned = match direction {
            Direction::Forward => self.left.pop_front()?,
            Direction::Backward => self.left.pop_back()?,
        };
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
        lost.into_iter().rev().for_each(|i| drop(self.pieces.remove(i)));
        if window.to_ns < planned.to_ns {
            self.left.push_front(TimeRange { from_ns: window.to_ns, ..planned });
        }
        if window.from_ns > planned.from_ns {
            self.left.push_back(TimeRange { to_ns: window.from_ns, ..planned });
        }
        let mut all = all.unwrap_or_default();
        all.settle();
        Some(all)
    }
}

/// Cut a range into windows where blocks begin, each of so many samples or more. No cut where the
/// blocks that it goes through are more than the window: they are read on both sides.
fn planned(pieces: &[Piece], range: TimeRange, rows: usize) -> VecDeque<TimeRange> {
    let mut from_ns = range.from_ns;
    let mut windows = VecDeque::new();
    if pieces.iter().map(Piece::rows).sum::<usize>() > rows {
        let of = |end: fn((i64, i64)) -> i64| {
            let mut ends: Vec<(i64, usize)> =
                pieces.iter().map(|p| (end(p.span()), p.rows())).collect();
            ends.sort_unstable();
            ends.into_iter()
        };
        let mut lasts = of(|(_, last)| last).peekable();
        // Samples of blocks that began in the window, and of those that go on.
        let (mut begun, mut open) = (0, 0);
        for (first, some) in of(|(first, _)| first) {
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

/// Settle the samples of a window and drop those behind so many; the window of those left.
fn cut(all: &mut Table, window: TimeRange, rows: usize, direction: Direction) -> TimeRange {
    all.settle();
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

/// All that a series has in a range, a window after another, in the direction of a scan.
pub(super) struct Reading {
    snapshot: Snapshot,
    series: Series,
    range: TimeRange,
    direction: Direction,
    heads: Vec<Piece>,
    partitions: VecDeque<i64>,
    windows: Option<Windows>,
    pub(super) rows: usize,
    work: Work,
    /// What could not be read and is not told yet; what was read beside it.
    torn: Option<ReadError>,
    table: Option<Table>,
}

impl Reading {
    /// Windows of about so many samples.
    pub(super) fn new(
        snapshot: Snapshot,
        series: &Series,
        range: TimeRange,
        direction: Direction,
        rows: usize,
    ) -> Self {
        let heads = snapshot.of_heads(series, range);
        let partitions = snapshot.partitions(range, &heads).into_iter().collect();
        Self {
            snapshot,
            series: series.clone(),
            range,
            direction,
            heads,
            partitions,
            windows: None,
            rows,
            work: Work::default(),
            torn: None,
            table: None,
        }
    }

    /// Memory of what it knows of blocks, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let pieces = self.windows.as_ref().map_or(0, |windows| windows.pieces.len());
        (self.heads.len() + pieces) * size_of::<Piece>()
    }

    /// Look what there is in the next partition; `None` behind the last one.
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
    /// Samples, settled and ascending within; an error before what could be read beside it.
    type Item = Result<Table, ReadError>;

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
