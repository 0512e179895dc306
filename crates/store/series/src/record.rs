//! Records of the log: definitions of rows, batches, deletes. Also the tombstones of deletes.

use std::ops::Range;

use crate::batch::Batch;
use crate::model::{ColumnId, TimeRange};
use codec::bytes::{Input, push_signed, push_varint};
use codec::{COLUMN_VALUES_MAX, Kind, Scratch, integers};

const DEFINITIONS: u8 = 1;
const BATCH: u8 = 2;
const DELETE: u8 = 3;
const BATCH_BY_ROWS: u8 = 4;

/// Minimum number of rows for which values are logged column by column.
const TRANSPOSE_ROWS_MIN: usize = 16;
/// Number of rows examined to see whether columns are alike, and the minimum number of rows for
/// that.
const LOOKED_AT_ROWS: usize = 16;
const LOOKED_AT_OF_MIN: usize = 8 * LOOKED_AT_ROWS;
/// A row-by-row encoding may take this many bits more per value. Transposing costs more than
/// writing these bits, and the few rows in the sample vary less in a column than all rows do.
const SPARED_BITS: usize = 1;
/// Number of rows transposed at a time.
const TURNED_ROWS: usize = 64;
/// Maximum capacity, in values, that is kept between batches.
const VALUES_KEPT_MAX: usize = 1 << 16;

/// A delete. It hits samples with a lower position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tombstone {
    pub(crate) position: u64,
    pub(crate) range: TimeRange,
    /// Rows, ascending, with the columns that are hit. No columns means all of them.
    pub(crate) rows: Vec<(u32, Vec<u16>)>,
}

/// A decoded record.
pub(crate) enum Record<'a> {
    Definitions(Input<'a>),
    Batch(Batch),
    Delete(Tombstone),
}

impl Tombstone {
    /// Returns the columns (empty for all) that it hits of a row at a position, or `None`.
    pub(crate) fn of(&self, row: u32, position: u64) -> Option<&[u16]> {
        if position >= self.position {
            return None;
        }
        let at = self.rows.binary_search_by_key(&row, |(row, _)| *row).ok()?;
        self.rows.get(at).map(|(_, columns)| columns.as_slice())
    }

    /// Returns true if it hits a column of a row at a position.
    pub(crate) fn hits(&self, of: ColumnId, position: u64) -> bool {
        self.of(of.row, position).is_some_and(|hit| hit.is_empty() || hit.contains(&of.column))
    }

    /// Returns true if it hits only some of the columns of a row.
    pub(crate) fn is_partial(&self) -> bool {
        self.rows.iter().any(|(_, columns)| !columns.is_empty())
    }

    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        push_signed(into, self.range.from_ns);
        push_signed(into, self.range.to_ns);
        push_varint(into, self.rows.len() as u64);
        for (row, columns) in &self.rows {
            push_varint(into, u64::from(*row));
            push_varint(into, columns.len() as u64);
            for column in columns {
                push_varint(into, u64::from(*column));
            }
        }
    }

    pub(crate) fn decode(input: &mut Input<'_>, position: u64) -> Option<Self> {
        let range = TimeRange { from_ns: input.signed()?, to_ns: input.signed()? };
        let mut rows = Vec::new();
        for _ in 0..input.varint()? {
            let row = input.varint()? as u32;
            let mut columns = Vec::new();
            for _ in 0..input.varint()? {
                columns.push(input.varint()? as u16);
            }
            rows.push((row, columns));
        }
        Some(Self { position, range, rows })
    }
}

/// Returns the header of a record of definitions; the catalogue appends the rest.
pub(crate) fn definitions() -> Vec<u8> {
    vec![DEFINITIONS]
}

pub(crate) fn delete(tombstone: &Tombstone) -> Vec<u8> {
    let mut bytes = vec![DELETE];
    tombstone.encode(&mut bytes);
    bytes
}

/// Scratch buffers, reused between batches.
#[derive(Debug, Default)]
struct EncodeBuffers {
    scratch: Scratch,
    numbers: Vec<i64>,
    differences: Vec<i64>,
    bits: Vec<u64>,
}

thread_local! {
    static ROOM: std::cell::RefCell<EncodeBuffers> = std::cell::RefCell::default();
}

/// Encodes the record of a batch into `bytes`, which must be empty.
pub(crate) fn batch(batch: &Batch, mut bytes: Vec<u8>) -> Vec<u8> {
    ROOM.with_borrow_mut(|room| {
        bytes.reserve(64 + batch.values.len() * 3 + batch.event_text.len() * 2);
        let turned =
            transposed(batch).filter(|columns| !are_similar(&batch.values, *columns, room));
        let by_rows = turned.is_none() && transposed(batch).is_some();
        bytes.push(if by_rows { BATCH_BY_ROWS } else { BATCH });
        rows(batch, turned, room, &mut bytes);
        events(batch, room, &mut bytes);
        bytes
    })
}

/// Returns true if the columns are so similar that a row-by-row encoding takes hardly more space.
fn are_similar(values: &[u64], columns: usize, room: &mut EncodeBuffers) -> bool {
    let rows = values.len() / columns;
    if rows < LOOKED_AT_OF_MIN {
        return false;
    }
    let begin = rows / 2 * columns;
    let some = values.get(begin..begin + LOOKED_AT_ROWS * columns).unwrap_or_default();
    let together = codec::bits_of(some, &mut room.scratch);
    transpose(some, columns, 0..columns, &mut room.bits);
    let apart = room.bits.chunks(LOOKED_AT_ROWS);
    let apart: usize = apart.map(|column| codec::bits_of(column, &mut room.scratch)).sum();
    together <= apart + some.len() * SPARED_BITS
}

fn rows(batch: &Batch, turned: Option<usize>, room: &mut EncodeBuffers, into: &mut Vec<u8>) {
    push_varint(into, batch.rows.len() as u64);
    numbers(batch.rows.iter().map(|r| i64::from(*r)), room, into);
    for times in batch.times.chunks(COLUMN_VALUES_MAX) {
        codec::encode_times(times, &mut room.scratch, into);
    }
    match same_columns(batch) {
        Some(columns) => {
            for _ in batch.columns.chunks(COLUMN_VALUES_MAX) {
                integers::encode_same(i64::from(columns), into);
            }
        }
        None => numbers(batch.columns.iter().map(|c| i64::from(*c)), room, into),
    }
    push_varint(into, batch.integers.len() as u64);
    for index in &batch.integers {
        push_varint(into, u64::from(*index));
    }
    match turned {
        Some(columns) => {
            let rows = batch.rows.len();
            let together = (VALUES_KEPT_MAX / rows).clamp(1, columns);
            for from in (0..columns).step_by(together) {
                let of = from..columns.min(from + together);
                transpose(&batch.values, columns, of, &mut room.bits);
                for values in room.bits.chunks(rows).flat_map(|c| c.chunks(COLUMN_VALUES_MAX)) {
                    codec::encode(Kind::F64, values, &mut room.scratch, into);
                }
            }
            room.bits.truncate(VALUES_KEPT_MAX);
            room.bits.shrink_to(VALUES_KEPT_MAX);
        }
        None => {
            for values in batch.values.chunks(COLUMN_VALUES_MAX) {
                codec::encode(Kind::F64, values, &mut room.scratch, into);
            }
        }
    }
}

/// Transposes some columns of values stored row by row. Takes a few rows at a time, so that they
/// stay in the cache for all columns.
fn transpose(values: &[u64], columns: usize, of: Range<usize>, into: &mut Vec<u64>) {
    let rows = values.len() / columns;
    into.resize(rows * of.len(), 0);
    for (block, some) in values.chunks(TURNED_ROWS * columns).enumerate() {
        for (column, to) in of.clone().zip(into.chunks_exact_mut(rows)) {
            let to = to.get_mut(block * TURNED_ROWS..).unwrap_or_default();
            for (to, row) in to.iter_mut().zip(some.chunks_exact(columns)) {
                *to = row.get(column).copied().unwrap_or_default();
            }
        }
    }
}

/// Returns the number of columns if it is the same for all rows.
fn same_columns(batch: &Batch) -> Option<u16> {
    let first = *batch.columns.first()?;
    batch.columns.iter().all(|c| *c == first).then_some(first)
}

/// Returns the number of columns if the values may be logged column by column.
fn transposed(batch: &Batch) -> Option<usize> {
    let columns = same_columns(batch).filter(|columns| *columns > 1).map(usize::from);
    columns.filter(|_| batch.rows.len() >= TRANSPOSE_ROWS_MIN)
}

fn events(batch: &Batch, room: &mut EncodeBuffers, into: &mut Vec<u8>) {
    push_varint(into, batch.event_rows.len() as u64);
    numbers(batch.event_rows.iter().map(|r| i64::from(*r)), room, into);
    for times in batch.event_times.chunks(COLUMN_VALUES_MAX) {
        codec::encode_times(times, &mut room.scratch, into);
    }
    numbers(batch.event_lengths.iter().map(|l| i64::from(*l)), room, into);
    into.extend_from_slice(&batch.event_text);
}

fn numbers(values: impl Iterator<Item = i64>, room: &mut EncodeBuffers, into: &mut Vec<u8>) {
    room.numbers.clear();
    room.numbers.extend(values);
    for numbers in room.numbers.chunks(COLUMN_VALUES_MAX) {
        integers::encode(numbers, &mut room.differences, into);
    }
}

/// Decodes a record. Returns `None` if it is malformed.
pub(crate) fn decode(record: &[u8], position: u64) -> Option<Record<'_>> {
    let mut input = Input(record);
    match input.u8()? {
        DEFINITIONS => Some(Record::Definitions(input)),
        BATCH => decode_batch(&mut input, transposed).map(Record::Batch),
        BATCH_BY_ROWS => decode_batch(&mut input, |_| None).map(Record::Batch),
        DELETE => Tombstone::decode(&mut input, position).map(Record::Delete),
        _ => None,
    }
}

/// Decodes a batch. `turned` returns the number of columns if the values are stored column by
/// column.
fn decode_batch(input: &mut Input<'_>, turned: impl Fn(&Batch) -> Option<usize>) -> Option<Batch> {
    let mut batch = Batch::default();
    let mut digits = Vec::new();
    let count = input.varint()? as usize;
    if count > crate::options::BATCH_SAMPLES_MAX {
        return None;
    }
    read_numbers(input, count, |n| batch.rows.push(n as u32))?;
    read_times(input, count, &mut batch.times)?;
    read_numbers(input, count, |n| batch.columns.push(n as u16))?;
    for _ in 0..input.varint()? {
        batch.integers.push(input.varint()? as u32);
    }
    let values: usize = batch.columns.iter().map(|c| usize::from(*c)).sum();
    if values > crate::options::BATCH_SAMPLES_MAX {
        return None;
    }
    match turned(&batch) {
        Some(columns) => {
            batch.values.resize(values, 0);
            for column in 0..columns {
                read_column(input, column, columns, &mut digits, &mut batch.values)?;
            }
        }
        None => {
            while batch.values.len() < values {
                let count = (values - batch.values.len()).min(COLUMN_VALUES_MAX);
                codec::decode(input, count, &mut digits, &mut batch.values)?;
            }
        }
    }
    let count = input.varint()? as usize;
    if count > crate::options::BATCH_SAMPLES_MAX {
        return None;
    }
    read_numbers(input, count, |n| batch.event_rows.push(n as u32))?;
    read_times(input, count, &mut batch.event_times)?;
    read_numbers(input, count, |n| batch.event_lengths.push(n as u32))?;
    let bytes: usize = batch.event_lengths.iter().map(|l| *l as usize).sum();
    batch.event_text.extend_from_slice(input.take_bytes(bytes)?);
    input.is_empty().then_some(batch)
}

/// Decodes one column into values stored row by row.
fn read_column(
    input: &mut Input<'_>,
    column: usize,
    columns: usize,
    digits: &mut Vec<i64>,
    values: &mut [u64],
) -> Option<()> {
    let mut bits = Vec::new();
    for rows in values.chunks_mut(COLUMN_VALUES_MAX * columns) {
        bits.clear();
        codec::decode(input, rows.len() / columns, digits, &mut bits)?;
        let places = rows.iter_mut().skip(column).step_by(columns);
        for (to, from) in places.zip(&bits) {
            *to = *from;
        }
    }
    Some(())
}

fn read_numbers(input: &mut Input<'_>, count: usize, mut take: impl FnMut(i64)) -> Option<()> {
    let (mut numbers, mut left) = (Vec::new(), count);
    while left > 0 {
        let some = left.min(COLUMN_VALUES_MAX);
        integers::decode(input, some, &mut numbers)?;
        for n in &numbers {
            take(*n);
        }
        left -= some;
    }
    Some(())
}

fn read_times(input: &mut Input<'_>, count: usize, into: &mut Vec<i64>) -> Option<()> {
    let mut digits = Vec::new();
    while into.len() < count {
        let some = (count - into.len()).min(COLUMN_VALUES_MAX);
        codec::decode_times(input, some, &mut digits, into)?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{Row, Value};

    proptest! {
        #[test]
        fn batch_round_trips_through_its_record(
            rows in prop::collection::vec((0u32..50, 1u16..4, any::<i64>(), any::<i64>()), 0..60),
            same in any::<bool>(),
            events in prop::collection::vec((0u32..9, any::<i64>(), "[a-z]{0,9}"), 0..5),
        ) {
            let mut it = Batch::new();
            for (id, columns, time, seed) in rows {
                let columns = if same { 3 } else { columns };
                let values: Vec<Value> = (0..columns).map(|c| {
                    if seed % 3 == 0 { Value::I64(seed ^ i64::from(c)) } else { Value::F64(seed as f64 / 100.0) }
                }).collect();
                it.push_values(Row { id, columns, events: false }, time, &values).unwrap();
            }
            for (id, time, text) in events {
                it.push_event(Row { id, columns: 1, events: true }, time, text.as_bytes()).unwrap();
            }
            let bytes = batch(&it, Vec::new());
            let Some(Record::Batch(back)) = decode(&bytes, 1) else { panic!("not a batch") };
            prop_assert_eq!(back, it);
        }

        #[test]
        fn large_batches_round_trip_through_their_records(
            rows in 1usize..3000, columns in 1u16..12, many in 0usize..20, alike in any::<bool>(),
        ) {
            // One batch in twenty has more rows than are transposed at once.
            let rows = if many == 0 { VALUES_KEPT_MAX / usize::from(columns) + rows } else { rows };
            let mut it = Batch::new();
            for i in 0..rows {
                let of = |c: u16| if alike { 1.0 } else { 10f64.powi(i32::from(c % 5)) };
                let value = |c: u16| ((i * 7 + usize::from(c)) % 1000) as f64 / 100.0 * of(c);
                let values: Vec<f64> = (0..columns).map(value).collect();
                it.push(Row { id: i as u32, columns, events: false }, 5, &values).unwrap();
            }
            let bytes = batch(&it, Vec::new());
            let Some(Record::Batch(back)) = decode(&bytes, 1) else { panic!("not a batch") };
            prop_assert!(back == it);
        }

        #[test]
        fn decoding_damaged_records_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode(&bytes, 1);
        }
    }

    #[test]
    fn batches_are_transposed_only_if_that_is_smaller() {
        // The maximum number of bytes per value. Row by row they would be 4.6, 4.6 and 2.
        type Of = fn(usize, usize) -> f64;
        let cases: [(&str, Of, u8, f64); 4] = [
            (
                "alike",
                |i, c| ((i * 7919 + c * 104_729) % 10_000) as f64 / 100.0,
                BATCH_BY_ROWS,
                1.9,
            ),
            ("scales", |i, c| ((i * 7919) % 100) as f64 * 10f64.powi(c as i32), BATCH, 2.9),
            ("decimals", |i, c| ((i * 7919) % 100) as f64 / 10f64.powi(c as i32), BATCH, 2.9),
            ("smooth", |i, c| (i * 3 + c * 7919 % 10_000) as f64, BATCH, 0.5),
        ];
        for (name, value, kind, most) in cases {
            let mut it = Batch::new();
            for i in 0..1000 {
                let values: [f64; 10] = std::array::from_fn(|c| value(i, c));
                it.push(Row { id: i as u32, columns: 10, events: false }, 5, &values).unwrap();
            }
            let bytes = batch(&it, Vec::new());
            assert_eq!(bytes.first(), Some(&kind), "{name}");
            let each = bytes.len() as f64 / 10_000.0;
            assert!(each < most, "{name}: {each} bytes a value");
        }
    }

    #[test]
    fn tombstone_hits_only_lower_positions() {
        let range = TimeRange::ALL;
        let it = Tombstone { position: 7, range, rows: vec![(1, vec![]), (3, vec![2])] };
        let hits = |row, column, position| it.hits(ColumnId { row, column }, position);
        assert!(hits(1, 9, 6) && hits(3, 2, 6) && it.is_partial());
        assert!(!hits(1, 9, 7) && !hits(3, 1, 6) && !hits(2, 0, 1));
        assert_eq!((it.of(1, 6), it.of(3, 6), it.of(2, 6)), (Some(&[][..]), Some(&[2][..]), None));
        let bytes = delete(&it);
        let Some(Record::Delete(back)) = decode(&bytes, 7) else { panic!("not a delete") };
        assert_eq!(back, it);
    }
}
