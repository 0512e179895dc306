//! The codec alone, for measurements.

use crate::bytes::Input;
use crate::codec::{self, COLUMN_VALUES_MAX, Kind, Scratch};

/// Values, and their encoded columns.
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
    /// Values to encode in columns of `column` (at most 2048).
    pub fn new(values: &[f64], column: usize) -> Self {
        let bits = values.iter().map(|v| v.to_bits()).collect();
        Self { bits, column: column.clamp(1, COLUMN_VALUES_MAX), ..Self::default() }
    }

    /// Encode all values once; the bytes.
    pub fn encode(&mut self) -> usize {
        self.bytes.clear();
        for some in self.bits.chunks(self.column) {
            codec::encode(Kind::F64, some, &mut self.scratch, &mut self.bytes);
        }
        self.bytes.len()
    }

    /// Decode what was encoded; how many values came back.
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
