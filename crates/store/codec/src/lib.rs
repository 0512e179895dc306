//! Compressed columns of numbers, lossless for every bit pattern.
//!
//! Floats that are short decimals become integers (`digits / 10^e`, checked bit by bit; values that
//! do not fit are listed as exceptions). Other floats are encoded by their bits. Integers are
//! stored plain, as differences, or as differences of differences, whichever is narrowest, in runs
//! of 128 that each have a minimum and a width. A column of equal values is stored as one value.
//!
//! Byte format: docs/format/series.md. Limit: [`COLUMN_VALUES_MAX`] values per column.

pub mod bytes;
pub mod integers;
mod pack;
mod wide;

use bytes::{Input, push_varint};
use wide::for_wide_registers;

/// Maximum number of values in one encoded column.
pub const COLUMN_VALUES_MAX: usize = 2048;
/// Largest exponent of ten that is tried: up to 10^15 every digit count is exact.
const EXPONENT_MAX: usize = 15;
/// Number of values examined to find the exponent.
const SAMPLES: usize = 8;
/// At most one value in this many may be an exception; otherwise the raw bits are stored.
const EXCEPTION_SHARE: usize = 16;
/// Bytes of an exception: its index and its bits.
const EXCEPTION_BYTES: usize = 10;

const TENS: [f64; EXPONENT_MAX + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// 1.5 * 2^52: adding and subtracting it rounds to an integer, and its bits plus an integer below
/// 2^51 are the bits of the sum.
const MAGIC: f64 = 6_755_399_441_055_744.0;
const MAGIC_BITS: i64 = MAGIC.to_bits() as i64;

const CONSTANT: u8 = 0x20;
const BITS: u8 = 0x21;
const INTEGERS: u8 = 0x22;
const CONSTANT_INTEGER: u8 = 0x23;

/// The kind of values in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// Bits of floats.
    #[default]
    F64,
    I64,
}

/// Scratch buffers, reused between columns.
#[derive(Debug, Default)]
pub struct Scratch {
    digits: Vec<i64>,
    differences: Vec<i64>,
    exceptions: Vec<u16>,
}

/// Appends a column. `values` are bits of floats, or integers; at most [`COLUMN_VALUES_MAX`].
pub fn encode(kind: Kind, values: &[u64], scratch: &mut Scratch, into: &mut Vec<u8>) {
    debug_assert!(values.len() <= COLUMN_VALUES_MAX);
    let Some(first) = values.first().copied() else { return };
    // If the last value differs, the others need not be compared.
    if values.last() == Some(&first) && values.iter().fold(0, |all, v| all | (v ^ first)) == 0 {
        into.push(if kind == Kind::F64 { CONSTANT } else { CONSTANT_INTEGER });
        into.extend_from_slice(&first.to_le_bytes());
        return;
    }
    if kind == Kind::F64 {
        if let Some(exponent) = exponent(values) {
            decimals(exponent, values, scratch);
            let exceptions = scratch.exceptions.len();
            if exceptions * EXCEPTION_SHARE <= values.len() || exceptions <= 1 {
                into.push(exponent as u8);
                push_exceptions(values, &scratch.exceptions, into);
                integers::encode(&scratch.digits, &mut scratch.differences, into);
                return;
            }
        }
        into.push(BITS);
    } else {
        into.push(INTEGERS);
    }
    scratch.digits.clear();
    if kind == Kind::F64 {
        scratch.digits.extend(values.iter().map(|v| ordered(*v)));
    } else {
        scratch.digits.extend(values.iter().map(|v| *v as i64));
    }
    integers::encode(&scratch.digits, &mut scratch.differences, into);
}

/// Estimates the size in bits of floats, given by their bits, as one column.
pub fn bits_of(values: &[u64], scratch: &mut Scratch) -> usize {
    if let Some(exponent) = exponent(values) {
        decimals(exponent, values, scratch);
        let exceptions = scratch.exceptions.len();
        if exceptions * EXCEPTION_SHARE <= values.len() {
            let width = integers::width(&scratch.digits) as usize;
            return width * values.len() + exceptions * EXCEPTION_BYTES * 8;
        }
    }
    scratch.digits.clear();
    scratch.digits.extend(values.iter().map(|v| ordered(*v)));
    integers::width(&scratch.digits) as usize * values.len()
}

/// Decodes a column of `count` values to the end of `into`. Returns `None` if the bytes are
/// malformed.
pub fn decode(
    input: &mut Input<'_>,
    count: usize,
    digits: &mut Vec<i64>,
    into: &mut Vec<u64>,
) -> Option<Kind> {
    if count == 0 {
        return Some(Kind::F64);
    }
    if count > COLUMN_VALUES_MAX {
        return None;
    }
    let tag = input.u8()?;
    match tag {
        CONSTANT | CONSTANT_INTEGER => {
            let value = input.u64()?;
            into.resize(into.len() + count, value);
            return Some(if tag == CONSTANT { Kind::F64 } else { Kind::I64 });
        }
        BITS => {
            integers::decode(input, count, digits)?;
            into.extend(digits.iter().map(|d| unordered(*d)));
            return Some(Kind::F64);
        }
        INTEGERS => {
            integers::decode(input, count, digits)?;
            into.extend(digits.iter().map(|d| *d as u64));
            return Some(Kind::I64);
        }
        _ => {}
    }
    let ten = *TENS.get(usize::from(tag))?;
    let exceptions = input.varint()? as usize;
    let mut exceptions = Input(input.take_bytes(exceptions.checked_mul(EXCEPTION_BYTES)?)?);
    integers::decode(input, count, digits)?;
    let begin = into.len();
    if tag == 0 {
        into.extend(digits.iter().map(|d| whole(*d).to_bits()));
    } else {
        into.extend(digits.iter().map(|d| (whole(*d) / ten).to_bits()));
    }
    let decoded = into.get_mut(begin..)?;
    while !exceptions.is_empty() {
        let index = usize::from(exceptions.u16()?);
        *decoded.get_mut(index)? = exceptions.u64()?;
    }
    Some(Kind::F64)
}

/// Converts an integer below 2^51 in magnitude to a float.
fn whole(digits: i64) -> f64 {
    f64::from_bits(digits.wrapping_add(MAGIC_BITS) as u64) - MAGIC
}

/// Converts the bits of a float to an integer with the same order.
fn ordered(bits: u64) -> i64 {
    let signed = bits as i64;
    signed ^ ((signed >> 63) as u64 >> 1) as i64
}

fn unordered(ordered: i64) -> u64 {
    (ordered ^ ((ordered >> 63) as u64 >> 1) as i64) as u64
}

/// Returns the digits of a value at an exponent, and whether they restore the value exactly.
fn digits(value: f64, ten: f64) -> (i64, bool) {
    let rounded = value * ten + MAGIC;
    let digits = (rounded.to_bits() as i64).wrapping_sub(MAGIC_BITS);
    (digits, (whole(digits) / ten).to_bits() == value.to_bits())
}

/// Returns the exponent that most of a few values need, or `None` if they are not short decimals.
fn exponent(values: &[u64]) -> Option<usize> {
    let step = (values.len() / SAMPLES).max(1);
    let (mut exponent, mut misses, mut looked) = (0, 0, 0);
    for bits in values.iter().step_by(step).take(SAMPLES) {
        let value = f64::from_bits(*bits);
        let fits = |e: &usize| TENS.get(*e).is_some_and(|ten| digits(value, *ten).1);
        looked += 1;
        match (exponent..=EXPONENT_MAX).find(fits) {
            Some(e) => exponent = e,
            None => misses += 1,
        }
        if misses * 2 > looked.max(2) {
            return None;
        }
    }
    (misses * 2 <= looked).then_some(exponent)
}

for_wide_registers! {
    /// Replaces `into` by the digits of all values at an exponent. Returns the bits in which any
    /// value differs from the value of its digits.
    fn all_digits(values: &[u64], ten: f64, into: &mut Vec<i64>) -> u64 = round_all;
}

#[expect(clippy::inline_always, reason = "what is compiled for wide registers is whole with it")]
#[inline(always)]
fn round_all(values: &[u64], ten: f64, into: &mut Vec<i64>) -> u64 {
    let mut differ = 0;
    into.clear();
    into.extend(values.iter().map(|bits| {
        let rounded = f64::from_bits(*bits) * ten + MAGIC;
        differ |= ((rounded - MAGIC) / ten).to_bits() ^ bits;
        (rounded.to_bits() as i64).wrapping_sub(MAGIC_BITS)
    }));
    differ
}

/// Puts the digits of all values at an exponent and the indexes of exceptions into `scratch`.
fn decimals(exponent: usize, values: &[u64], scratch: &mut Scratch) {
    let ten = TENS.get(exponent).copied().unwrap_or(1.0);
    scratch.exceptions.clear();
    if all_digits(values, ten, &mut scratch.digits) == 0 {
        return;
    }
    let mut before = 0;
    for (i, (digits, bits)) in scratch.digits.iter_mut().zip(values).enumerate() {
        if (whole(*digits) / ten).to_bits() == *bits {
            before = *digits;
        } else {
            *digits = before;
            scratch.exceptions.push(i as u16);
        }
    }
}

fn push_exceptions(values: &[u64], exceptions: &[u16], into: &mut Vec<u8>) {
    push_varint(into, exceptions.len() as u64);
    for index in exceptions {
        into.extend_from_slice(&index.to_le_bytes());
        let bits = values.get(usize::from(*index)).copied().unwrap_or_default();
        into.extend_from_slice(&bits.to_le_bytes());
    }
}

/// Appends times, at most [`COLUMN_VALUES_MAX`]. Common trailing zeros are removed.
pub fn encode_times(times: &[i64], scratch: &mut Scratch, into: &mut Vec<u8>) {
    let digits = &mut scratch.digits;
    digits.clear();
    if all_whole::<1_000_000_000>(times) {
        into.push(9);
        divide::<1_000_000_000>(times, digits);
    } else if all_whole::<1_000_000>(times) {
        into.push(6);
        divide::<1_000_000>(times, digits);
    } else if all_whole::<1_000>(times) {
        into.push(3);
        divide::<1_000>(times, digits);
    } else {
        into.push(0);
        digits.extend_from_slice(times);
    }
    integers::encode(&scratch.digits, &mut scratch.differences, into);
}

/// Returns true if a power of ten divides all times. The power is a constant, so that the compiler
/// replaces the division. Runs of equal times, as in batches of many rows, are tested once.
fn all_whole<const TEN: i64>(times: &[i64]) -> bool {
    let mut before = 0;
    times.iter().all(|time| {
        let seen = std::mem::replace(&mut before, *time) == *time;
        seen || time % TEN == 0
    })
}

/// Appends times divided by a power of ten to `into`.
fn divide<const TEN: i64>(times: &[i64], into: &mut Vec<i64>) {
    let (mut before, mut divided) = (0, 0);
    into.extend(times.iter().map(|time| {
        if *time != before {
            (before, divided) = (*time, time / TEN);
        }
        divided
    }));
}

/// Decodes `count` times to the end of `into`.
pub fn decode_times(
    input: &mut Input<'_>,
    count: usize,
    digits: &mut Vec<i64>,
    into: &mut Vec<i64>,
) -> Option<()> {
    if count > COLUMN_VALUES_MAX {
        return None;
    }
    let divisor = 10i64.checked_pow(u32::from(input.u8()?)).filter(|d| *d <= 1_000_000_000)?;
    integers::decode(input, count, digits)?;
    into.extend(digits.iter().map(|d| d.wrapping_mul(divisor)));
    Some(())
}

#[cfg(test)]
mod tests;
