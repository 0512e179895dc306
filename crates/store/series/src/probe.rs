//! The codec alone, for measurements.

use std::hint::black_box;
use std::time::Instant;

use crate::bytes::Input;
use crate::codec::{self, COLUMN_VALUES_MAX, Kind, Scratch};

/// What the codec does with some values on one core.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CodecRates {
    /// Values encoded per second.
    pub encoded_per_second: f64,
    /// Values decoded per second.
    pub decoded_per_second: f64,
    /// Encoded bytes per value, times and index not included.
    pub bytes_per_value: f64,
}

/// Encode and decode values in columns of `column` (at most 2048), `rounds` times.
pub fn codec(values: &[f64], column: usize, rounds: usize) -> CodecRates {
    let bits: Vec<u64> = values.iter().map(|v| v.to_bits()).collect();
    let column = column.clamp(1, COLUMN_VALUES_MAX);
    let (mut scratch, mut bytes) = (Scratch::default(), Vec::new());
    let began = Instant::now();
    for _ in 0..rounds {
        bytes.clear();
        for some in black_box(&bits).chunks(column) {
            codec::encode(Kind::F64, some, &mut scratch, &mut bytes);
        }
    }
    let encoding = began.elapsed().as_secs_f64();
    let (mut digits, mut out) = (Vec::new(), Vec::new());
    let began = Instant::now();
    for _ in 0..rounds {
        let mut input = Input(black_box(&bytes));
        for some in bits.chunks(column) {
            out.clear();
            codec::decode(&mut input, some.len(), &mut digits, &mut out);
            black_box(&out);
        }
    }
    let decoding = began.elapsed().as_secs_f64();
    let all = (bits.len() * rounds) as f64;
    CodecRates {
        encoded_per_second: all / encoding,
        decoded_per_second: all / decoding,
        bytes_per_value: bytes.len() as f64 / bits.len() as f64,
    }
}
