//! Access to internals for benchmarks and fuzzers.

use crate::batch::Batch;
use crate::catalog::Catalog;
use crate::manifest::Manifest;
use crate::options::COLUMNS_MAX;
use crate::part;
use crate::record::{self, Record};
use crate::table::{ScratchBuffers, Table, Want};
use codec::bytes::Input;
use codec::{COLUMN_VALUES_MAX, Kind, Scratch};

/// Values and their encoded columns.
#[derive(Debug, Default)]
pub struct Probe {
    bits: Vec<u64>,
    column: usize,
    bytes: Vec<u8>,
    scratch: Scratch,
    digits: Vec<i64>,
    decoded: Vec<u64>,
}

impl Probe {
    /// Takes values to be encoded in columns of `column` values (at most 2048).
    pub fn new(values: &[f64], column: usize) -> Self {
        let bits = values.iter().map(|v| v.to_bits()).collect();
        Self { bits, column: column.clamp(1, COLUMN_VALUES_MAX), ..Self::default() }
    }

    /// Encodes all values once and returns the number of bytes.
    pub fn encode(&mut self) -> usize {
        self.bytes.clear();
        for some in self.bits.chunks(self.column) {
            codec::encode(Kind::F64, some, &mut self.scratch, &mut self.bytes);
        }
        self.bytes.len()
    }

    /// Decodes the encoded values and returns their number.
    pub fn decode(&mut self) -> usize {
        let mut input = Input(&self.bytes);
        let mut values = 0;
        for some in self.bits.chunks(self.column) {
            self.decoded.clear();
            codec::decode(&mut input, some.len(), &mut self.digits, &mut self.decoded);
            values += self.decoded.len();
        }
        values
    }
}

/// Replaces `room` by the log record of a batch.
pub fn record(batch: &Batch, room: &mut Vec<u8>) {
    room.clear();
    *room = record::batch(batch, std::mem::take(room));
}

/// Decodes bytes as a column of `count` values, encodes and decodes them again, and compares the
/// values. Returns false if the bytes are not a column.
///
/// # Panics
/// Panics if the values differ.
#[allow(clippy::panic, reason = "a fuzzer that finds something panics")]
pub fn column(bytes: &[u8], count: usize) -> bool {
    let (mut digits, mut values, mut again) = (Vec::new(), Vec::new(), Vec::new());
    let Some(kind) = codec::decode(&mut Input(bytes), count, &mut digits, &mut values) else {
        return false;
    };
    assert!(values.len() == count, "{} values instead of {count}", values.len());
    let mut encoded = Vec::new();
    codec::encode(kind, &values, &mut Scratch::default(), &mut encoded);
    let mut rest = Input(&encoded);
    let back = codec::decode(&mut rest, count, &mut digits, &mut again);
    assert!(back == Some(kind) || count == 0, "the kind is another one");
    assert!(rest.is_empty() && values == again, "what was written is read as something else");
    true
}

/// Encodes and decodes values of any bits as floats, as integers and as times, and compares them.
///
/// # Panics
/// Panics if other values come back.
#[allow(clippy::panic, reason = "a fuzzer that finds something panics")]
pub fn values(bits: &[u64]) {
    let bits = bits.get(..COLUMN_VALUES_MAX).unwrap_or(bits);
    let (mut digits, mut scratch) = (Vec::new(), Scratch::default());
    for kind in [Kind::F64, Kind::I64] {
        let (mut encoded, mut back) = (Vec::new(), Vec::new());
        codec::encode(kind, bits, &mut scratch, &mut encoded);
        let read = codec::decode(&mut Input(&encoded), bits.len(), &mut digits, &mut back);
        assert!(read.is_some() && back == bits, "{kind:?}: other values come back");
    }
    let times: Vec<i64> = bits.iter().map(|b| *b as i64).collect();
    let (mut encoded, mut back) = (Vec::new(), Vec::new());
    codec::encode_times(&times, &mut scratch, &mut encoded);
    let read = codec::decode_times(&mut Input(&encoded), times.len(), &mut digits, &mut back);
    assert!(read.is_some() && back == times, "other times come back");
}

/// Decodes bytes as a chunk, an index, a manifest, definitions and a record of the log. A valid
/// record is encoded again and compared.
///
/// # Panics
/// Panics if a record changes.
#[allow(clippy::panic, reason = "a fuzzer that finds something panics")]
pub fn file(bytes: &[u8]) {
    for want in [Want::All, Want::One(1), Want::Some(0, 3)] {
        let mut table = Table::with_columns(want.of(COLUMNS_MAX));
        let _ = table.decode(bytes, want, &mut ScratchBuffers::default());
        let _ = part::index::find_entry(bytes, 1, 0, true, want);
    }
    let _ = part::index::rows(bytes);
    let _ = part::index::Top::decode(bytes, 0);
    let _ = part::index::find_entry(bytes, 1, 0, false, Want::All);
    let _ = Catalog::new(1000, crate::options::TAGS_MAX).decode(&mut Input(bytes));
    // Without a valid checksum a manifest would be rejected at once.
    let mut whole = bytes.to_vec();
    whole.extend_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
    let _ = Manifest::decode(&whole);
    match record::decode(bytes, 7) {
        Some(Record::Batch(batch)) => {
            let again = record::batch(&batch, Vec::new());
            let Some(Record::Batch(back)) = record::decode(&again, 7) else {
                panic!("a batch that was read cannot be written")
            };
            assert!(batch == back, "a batch is read as another one");
        }
        Some(Record::Delete(tombstone)) => {
            let again = record::delete(&tombstone);
            let Some(Record::Delete(back)) = record::decode(&again, 7) else {
                panic!("a delete that was read cannot be written")
            };
            assert!(tombstone == back, "a delete is read as another one");
        }
        Some(Record::Definitions(_)) | None => {}
    }
}
