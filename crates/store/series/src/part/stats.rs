//! Encodes the summaries of chunks.

use crate::model::{END_OF_SERIES, Summary};
use codec::bytes::{Input, push_signed, push_varint};

/// Returns the summary of a column's samples without markers of a series' end; `None` if there are
/// no samples.
pub(crate) fn summary_of(times: &[i64], bits: &[u64]) -> Option<Summary> {
    let all = summary_of_all(times, bits)?;
    // A marker is a NaN, so only these columns are searched for one.
    if !all.sum.is_nan() || !bits.contains(&END_OF_SERIES) {
        return Some(all);
    }
    let samples = times.iter().zip(bits).filter(|(_, bits)| **bits != END_OF_SERIES);
    let (times, bits): (Vec<i64>, Vec<u64>) = samples.unzip();
    summary_of_all(&times, &bits)
}

fn summary_of_all(times: &[i64], bits: &[u64]) -> Option<Summary> {
    let count = times.len().min(bits.len());
    let (times, bits) = (times.get(..count)?, bits.get(..count)?);
    let value = |i: usize| bits.get(i).map_or(f64::NAN, |b| f64::from_bits(*b));
    let (first_ns, last_ns) = (*times.first()?, *times.last()?);
    let mut sum = -0.0;
    // The indexes of the extremes are beyond the end while all values so far are NaN.
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
            // The value is written as an integer, which has no negative zero.
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

/// Skips the bytes that [`push_stats`] wrote.
pub(crate) fn skip_stats(input: &mut Input<'_>) -> Option<()> {
    match input.u8()? {
        0..=3 => (0..5).try_for_each(|_| input.skip_varint())?,
        _ => drop(input.take_bytes(5 * size_of::<f64>())?),
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
