//! Rows in memory, column by column. Chunks are encoded from and decoded to tables.

use std::ops::Range;

use crate::model::END_OF_SERIES;
use codec::bytes::{Input, push_varint};
use codec::{COLUMN_VALUES_MAX, Kind, Scratch};

/// Values of one metric.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Column {
    pub(crate) bits: Vec<u64>,
    /// Set for integers; empty if there are none.
    pub(crate) integers: Vec<bool>,
    /// Set for values that were removed; empty if there are none.
    pub(crate) absent: Vec<bool>,
}

/// First byte of a column in which some rows have no value. A bit per row follows, set if it has a
/// value, then the values.
const GAPS: u8 = 0x30;

/// Texts of events.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Table {
    pub(crate) times: Vec<i64>,
    pub(crate) columns: Vec<Column>,
    /// Texts of events. Events have no columns.
    pub(crate) texts: Vec<Box<[u8]>>,
}

/// The requested columns of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    All,
    None,
    One(u16),
    /// The first column and the number of columns.
    Some(u16, u16),
}

impl Want {
    pub(crate) fn includes_column(self, column: usize) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::One(one) => usize::from(one) == column,
            Self::Some(from, count) => {
                (usize::from(from)..usize::from(from) + usize::from(count)).contains(&column)
            }
        }
    }

    /// Returns the number of requested columns, out of `columns`.
    pub(crate) fn of(self, columns: usize) -> usize {
        match self {
            Self::All => columns,
            Self::None => 0,
            Self::One(_) => columns.min(1),
            Self::Some(_, count) => columns.min(usize::from(count)),
        }
    }
}

/// Scratch buffers, reused between chunks.
#[derive(Debug, Default)]
pub(crate) struct ScratchBuffers {
    pub(crate) scratch: Scratch,
    /// Bytes read from a file.
    pub(crate) bytes: Vec<u8>,
    digits: Vec<i64>,
    bits: Vec<u64>,
    block: Vec<u8>,
}

impl Column {
    fn mark(&mut self, count: usize, kind: Kind) {
        if kind == Kind::I64 && self.integers.is_empty() {
            self.integers.resize(self.bits.len() - count, false);
        }
        if kind == Kind::I64 || !self.integers.is_empty() {
            self.integers.resize(self.bits.len(), kind == Kind::I64);
        }
    }

    pub(crate) fn is_integer(&self, i: usize) -> bool {
        self.integers.get(i).copied().unwrap_or(false)
    }

    /// Returns the end, at most `end`, of the values of the same kind as the one at `begin`.
    fn end_of_kind(&self, begin: usize, end: usize) -> usize {
        let kind = self.is_integer(begin);
        let other = || (begin..end).find(|i| self.is_integer(*i) != kind);
        if self.integers.is_empty() { end } else { other().unwrap_or(end) }
    }

    /// Returns the values as bits of floats.
    pub(crate) fn floats(&self) -> std::borrow::Cow<'_, [u64]> {
        if self.integers.is_empty() {
            return (&*self.bits).into();
        }
        let float = |(b, i): (&u64, &bool)| if *i { (*b as i64 as f64).to_bits() } else { *b };
        self.bits.iter().zip(&self.integers).map(float).collect::<Vec<_>>().into()
    }

    /// Reorders the values.
    fn pick(&mut self, order: &[u32]) {
        self.bits = order.iter().filter_map(|i| self.bits.get(*i as usize).copied()).collect();
        for flags in [&mut self.integers, &mut self.absent] {
            let picked = order.iter().filter_map(|i| flags.get(*i as usize).copied()).collect();
            *flags = picked;
        }
    }

    /// Returns true if a row has no value in this column.
    fn is_absent(&self, i: usize) -> bool {
        self.absent.get(i).copied().unwrap_or(false)
    }

    /// Appends an encoded column. Returns `None` if the bytes are malformed.
    fn decode(&mut self, block: &mut Input<'_>, count: usize, digits: &mut Vec<i64>) -> Option<()> {
        if block.0.first() != Some(&GAPS) {
            let kind = codec::decode(block, count, digits, &mut self.bits)?;
            self.mark(count, kind);
            if !self.absent.is_empty() {
                self.absent.resize(self.bits.len(), false);
            }
            return Some(());
        }
        block.u8()?;
        let bitmap = block.take_bytes(count.div_ceil(8))?;
        let has = |i: usize| bitmap.get(i / 8).is_some_and(|byte| (byte >> (i % 8)) & 1 == 1);
        let present = (0..count).filter(|i| has(*i)).count();
        let mut values = Vec::new();
        let kind = codec::decode(block, present, digits, &mut values)?;
        let mut values = values.into_iter();
        self.absent.resize(self.bits.len(), false);
        for i in 0..count {
            self.absent.push(!has(i));
            self.bits.push(if has(i) { values.next()? } else { 0 });
        }
        self.mark(count, kind);
        Some(())
    }

    /// Appends the encoding of some rows, all of one kind.
    fn encode(
        &self,
        rows: Range<usize>,
        bits: &mut Vec<u64>,
        scratch: &mut Scratch,
        into: &mut Vec<u8>,
    ) {
        let kind = if self.is_integer(rows.start) { Kind::I64 } else { Kind::F64 };
        let values = self.bits.get(rows.clone()).unwrap_or_default();
        let absent = self.absent.get(rows).unwrap_or_default();
        if !absent.contains(&true) {
            codec::encode(kind, values, scratch, into);
            return;
        }
        into.push(GAPS);
        for flags in absent.chunks(8) {
            let byte = flags.iter().rev().fold(0, |byte, gone| (byte << 1) | u8::from(!gone));
            into.push(byte);
        }
        bits.clear();
        bits.extend(values.iter().zip(absent).filter(|(_, gone)| !**gone).map(|(bits, _)| *bits));
        codec::encode(kind, bits, scratch, into);
    }

    /// Copies a value of another column.
    pub(crate) fn take_over(&mut self, place: usize, from: &Self, at: usize) {
        if from.is_absent(at) {
            return;
        }
        let Some((to, bits)) = self.bits.get_mut(place).zip(from.bits.get(at)) else { return };
        *to = *bits;
        if let Some(flag) = self.absent.get_mut(place) {
            *flag = false;
        }
        let integer = from.is_integer(at);
        if integer && self.integers.is_empty() {
            self.integers.resize(self.bits.len(), false);
        }
        if let Some(flag) = self.integers.get_mut(place) {
            *flag = integer;
        }
    }

    fn append(&mut self, other: &Self) {
        let (before, after) = (self.bits.len(), self.bits.len() + other.bits.len());
        self.bits.extend_from_slice(&other.bits);
        let of = [(&mut self.integers, &other.integers), (&mut self.absent, &other.absent)];
        for (flags, more) in of.into_iter().filter(|(a, b)| !a.is_empty() || !b.is_empty()) {
            flags.resize(before, false);
            flags.extend_from_slice(more);
            flags.resize(after, false);
        }
    }
}

impl Table {
    pub(crate) fn with_columns(columns: usize) -> Self {
        Self { columns: vec![Column::default(); columns], ..Self::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.times.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Removes the rows, and keeps the columns and the memory.
    pub(crate) fn clear(&mut self) {
        self.times.clear();
        self.texts.clear();
        for column in &mut self.columns {
            column.bits.clear();
            column.integers.clear();
            column.absent.clear();
        }
    }

    /// Returns the number of samples and events.
    pub(crate) fn samples(&self) -> usize {
        let absent = self.columns.iter().flat_map(|c| &c.absent).filter(|gone| **gone).count();
        self.times.len() * self.columns.len().max(1) - absent
    }

    /// Removes the values of a column at the times for which `hit` returns true.
    pub(crate) fn blank(&mut self, column: u16, hit: impl Fn(i64) -> bool) {
        let Some(column) = self.columns.get_mut(usize::from(column)) else { return };
        if !self.times.iter().any(|t| hit(*t)) {
            return;
        }
        column.absent.resize(column.bits.len(), false);
        for (gone, time) in column.absent.iter_mut().zip(&self.times) {
            *gone |= hit(*time);
        }
    }

    /// Removes rows without any value.
    pub(crate) fn drop_absent(&mut self) {
        if self.columns.is_empty() || self.columns.iter().any(|c| c.absent.is_empty()) {
            return;
        }
        let has = |i: &u32| self.columns.iter().any(|c| !c.is_absent(*i as usize));
        let kept: Vec<u32> = (0..self.times.len() as u32).filter(has).collect();
        self.pick(&kept);
        for column in self.columns.iter_mut().filter(|c| !c.absent.contains(&true)) {
            column.absent.clear();
        }
    }

    pub(crate) fn append(&mut self, other: &Self) {
        self.times.extend_from_slice(&other.times);
        self.texts.extend_from_slice(&other.texts);
        for (column, more) in self.columns.iter_mut().zip(&other.columns) {
            column.append(more);
        }
    }

    fn pick(&mut self, order: &[u32]) {
        self.times = order.iter().filter_map(|i| self.times.get(*i as usize).copied()).collect();
        for column in &mut self.columns {
            column.pick(order);
        }
        if !self.texts.is_empty() {
            let texts = &mut self.texts;
            let take = |i: &u32| texts.get_mut(*i as usize).map(std::mem::take);
            self.texts = order.iter().filter_map(take).collect();
        }
    }

    pub(crate) fn is_sorted(&self) -> bool {
        self.times.iter().zip(self.times.iter().skip(1)).all(|(a, b)| a < b)
    }

    /// Sorts by time. Of rows with the same time the last one is kept.
    pub(crate) fn sort_rows(&mut self) {
        if self.is_sorted() {
            return;
        }
        let time = |i: &u32| self.times.get(*i as usize).copied().unwrap_or_default();
        let mut order: Vec<u32> = (0..self.times.len() as u32).collect();
        order.sort_by_key(time);
        let mut kept: Vec<u32> = Vec::with_capacity(order.len());
        for i in order {
            match kept.last_mut() {
                Some(last) if time(last) == time(&i) => *last = i,
                _ => kept.push(i),
            }
        }
        self.pick(&kept);
    }

    /// Keeps only rows for whose time `passes` returns true.
    pub(crate) fn retain_rows(&mut self, passes: impl Fn(i64) -> bool) {
        if self.times.iter().all(|t| passes(*t)) {
            return;
        }
        let kept = self.times.iter().zip(0u32..).filter(|(t, _)| passes(**t));
        let kept: Vec<u32> = kept.map(|(_, i)| i).collect();
        self.pick(&kept);
    }

    /// Drops the rows whose value in the only column marks the end of the series.
    pub(crate) fn drop_markers(&mut self) {
        let [column] = self.columns.as_slice() else { return };
        let is_marker =
            |i: usize| column.bits.get(i) == Some(&END_OF_SERIES) && !column.is_integer(i);
        if column.bits.contains(&END_OF_SERIES) {
            let kept = (0..self.times.len()).filter(|i| !is_marker(*i)).map(|i| i as u32);
            let kept: Vec<u32> = kept.collect();
            self.pick(&kept);
        }
    }

    /// Returns the rows `begin..end`.
    pub(crate) fn rows(&self, begin: usize, end: usize) -> Self {
        let column = |c: &Column| Column {
            bits: c.bits.get(begin..end).unwrap_or_default().to_vec(),
            integers: c.integers.get(begin..end).unwrap_or_default().to_vec(),
            absent: c.absent.get(begin..end).unwrap_or_default().to_vec(),
        };
        Self {
            times: self.times.get(begin..end).unwrap_or_default().to_vec(),
            columns: self.columns.iter().map(column).collect(),
            texts: self.texts.get(begin..end).unwrap_or_default().to_vec(),
        }
    }

    /// Returns the ends of the runs that can be chunks: of at most `max` rows, without a change of
    /// kind.
    pub(crate) fn chunk_ends(&self, max: usize) -> Vec<usize> {
        let mut ends = Vec::new();
        let mut begin = 0;
        while begin < self.len() {
            let longest = (begin + max.min(COLUMN_VALUES_MAX)).min(self.len());
            let ends_of_kind = self.columns.iter().map(|c| c.end_of_kind(begin, longest));
            let end = ends_of_kind.min().unwrap_or(longest);
            ends.push(end);
            begin = end;
        }
        ends
    }

    /// Appends the chunk of the rows `begin..end`, which must be a run of [`Table::chunk_ends`].
    pub(crate) fn encode(
        &self,
        begin: usize,
        end: usize,
        work: &mut ScratchBuffers,
        into: &mut Vec<u8>,
    ) {
        let times = self.times.get(begin..end).unwrap_or_default();
        push_varint(into, times.len() as u64);
        work.block.clear();
        codec::encode_times(times, &mut work.scratch, &mut work.block);
        let mut lengths = vec![work.block.len()];
        for column in &self.columns {
            let before = work.block.len();
            column.encode(begin..end, &mut work.bits, &mut work.scratch, &mut work.block);
            lengths.push(work.block.len() - before);
        }
        push_varint(into, self.columns.len() as u64);
        for length in lengths {
            push_varint(into, length as u64);
        }
        into.extend_from_slice(&work.block);
        if self.columns.is_empty() {
            for text in self.texts.get(begin..end).unwrap_or_default() {
                push_varint(into, text.len() as u64);
                into.extend_from_slice(text);
            }
        }
    }

    /// Appends the rows of a chunk. Returns `None` if the bytes are not a chunk.
    pub(crate) fn decode(
        &mut self,
        chunk: &[u8],
        want: Want,
        work: &mut ScratchBuffers,
    ) -> Option<()> {
        let mut input = Input(chunk);
        let count = input.varint()? as usize;
        let columns = input.varint()? as usize;
        let times = input.varint()? as usize;
        let mut lengths = Vec::with_capacity(columns.min(crate::options::COLUMNS_MAX));
        for _ in 0..columns {
            lengths.push(input.varint()? as usize);
        }
        let mut times = Input(input.take_bytes(times)?);
        codec::decode_times(&mut times, count, &mut work.digits, &mut self.times)?;
        let mut into = self.columns.iter_mut();
        for (i, length) in lengths.iter().enumerate() {
            let mut block = Input(input.take_bytes(*length)?);
            if !want.includes_column(i) {
                continue;
            }
            into.next()?.decode(&mut block, count, &mut work.digits)?;
        }
        if columns == 0 {
            for _ in 0..count {
                let length = input.varint()? as usize;
                self.texts.push(input.take_bytes(length)?.into());
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_table() -> Table {
        let mut table = Table::with_columns(2);
        table.times = vec![30, 10, 20, 10];
        table.columns[0].bits = [3.0f64, 1.0, 2.0, 1.5].iter().map(|v| v.to_bits()).collect();
        table.columns[1].bits = vec![7, 8, 9, 10];
        table.columns[1].integers = vec![true, true, false, true];
        table
    }

    #[test]
    fn last_row_with_the_same_time_is_kept() {
        let mut table = a_table();
        table.sort_rows();
        assert_eq!(table.times, [10, 20, 30]);
        assert_eq!(table.columns[1].bits, [10, 9, 7]);
        assert_eq!(table.columns[1].integers, [true, false, true]);
    }

    #[test]
    fn chunks_split_at_kind_changes_and_round_trip() {
        let mut table = a_table();
        table.sort_rows();
        let ends = table.chunk_ends(100);
        assert_eq!(ends, [1, 2, 3]);
        let mut back = Table::with_columns(2);
        let mut one = Table::with_columns(1);
        let (mut begin, mut work) = (0, ScratchBuffers::default());
        for end in ends {
            let mut bytes = Vec::new();
            table.encode(begin, end, &mut work, &mut bytes);
            back.decode(&bytes, Want::All, &mut work).unwrap();
            one.decode(&bytes, Want::One(1), &mut work).unwrap();
            begin = end;
        }
        assert_eq!(back, table);
        assert_eq!(one.columns[0], table.columns[1]);
        assert_eq!(table.rows(1, 2).times, [20]);
    }

    #[test]
    fn chunk_round_trip_keeps_removed_values_absent() {
        let mut table = a_table();
        table.columns[1].integers.clear();
        table.sort_rows();
        table.blank(1, |t| t >= 20);
        table.blank(0, |t| t == 20);
        table.drop_absent();
        assert_eq!((&*table.times, table.samples()), (&[10i64, 30][..], 3));
        let (mut bytes, mut work) = (Vec::new(), ScratchBuffers::default());
        table.encode(0, 2, &mut work, &mut bytes);
        for (column, times) in [(0, &[10i64, 30][..]), (1, &[10i64][..])] {
            let mut one = Table::with_columns(1);
            one.decode(&bytes, Want::One(column), &mut work).unwrap();
            one.drop_absent();
            assert_eq!(one.times, times);
            assert_eq!(one.columns[0].bits[0], table.columns[usize::from(column)].bits[0]);
        }
        let mut both = Table::with_columns(2);
        both.decode(&bytes, Want::All, &mut work).unwrap();
        both.decode(&bytes, Want::All, &mut work).unwrap();
        assert_eq!(both.columns[1].absent, [false, true, false, true]);
        // A later row with all values replaces one that lacks some.
        both.append(&Table { times: vec![30], ..both.rows(0, 1) });
        both.sort_rows();
        assert_eq!((both.samples(), &*both.columns[1].absent), (4, &[false, false][..]));
    }
}
