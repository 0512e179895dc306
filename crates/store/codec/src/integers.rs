//! Integer columns: plain, differences, or differences of differences, in runs of 128.

#![expect(clippy::inline_always, reason = "what is compiled for wide registers is whole with it")]

use super::pack::{RUN, pack, pack_wide, unpack, unpack_wide};
use super::wide::for_wide_registers;
use crate::bytes::{Input, push_signed};

const PLAIN: u8 = 0;
const DELTA: u8 = 1;
const DELTA2: u8 = 2;
/// Flag in the mode byte: all runs have width 0 and the same base, which is stored once.
const REGULAR: u8 = 0x10;

/// Width in bits above which values are packed one after another instead of in lanes.
const NARROW_BITS: u32 = 32;
/// Number of values examined to choose the mode.
const LOOKED_AT: usize = 160;

for_wide_registers! {
    /// Appends `values` to `into`. `work` is a scratch buffer.
    pub fn encode(values: &[i64], work: &mut Vec<i64>, into: &mut Vec<u8>) = append;
}

for_wide_registers! {
    /// Estimates the bits per value from the first values.
    pub fn width(values: &[i64]) -> u32 = width_of;
}

#[inline(always)]
fn width_of(values: &[i64]) -> u32 {
    narrowest(values).1
}

/// Appends a column of equal values, as [`encode`] would.
pub fn encode_same(value: i64, into: &mut Vec<u8>) {
    into.push(PLAIN | REGULAR);
    push_signed(into, value);
}

#[inline(always)]
pub(super) fn append(values: &[i64], work: &mut Vec<i64>, into: &mut Vec<u8>) {
    let Some(first) = values.first().copied() else { return };
    let (mode, _) = narrowest(values);
    work.clear();
    let at = into.len();
    into.push(mode);
    // The first value, and for `DELTA2` the first difference, precede the runs.
    let rest = match mode {
        PLAIN => values,
        DELTA => {
            differences(values, work);
            push_signed(into, first);
            work.get(1..).unwrap_or_default()
        }
        _ => {
            differences(values, work);
            again(work);
            push_signed(into, first);
            push_signed(into, work.get(1).copied().unwrap_or_default());
            work.get(2..).unwrap_or_default()
        }
    };
    let base = rest.first().copied().unwrap_or_default();
    // If the last value differs, the others need not be compared.
    let same = rest.last().is_none_or(|last| *last == base);
    if same && rest.iter().fold(0, |all, v| all | (v ^ base)) == 0 {
        if let Some(mode) = into.get_mut(at) {
            *mode |= REGULAR;
        }
        push_signed(into, base);
        return;
    }
    for run in rest.chunks(RUN) {
        append_run(run, into);
    }
}

#[inline(always)]
fn append_run(run: &[i64], into: &mut Vec<u8>) {
    let spread = Spread::of(run.iter().copied());
    let (min, width) = (spread.min, spread.bits());
    into.push(width as u8);
    push_signed(into, min);
    if width > NARROW_BITS || run.len() < RUN {
        pack_wide(run, min, width, into);
        return;
    }
    let mut narrow = [0u32; RUN];
    for (to, from) in narrow.iter_mut().zip(run) {
        *to = from.wrapping_sub(min) as u32;
    }
    pack(&narrow, width, into);
}

/// Appends `values[i] - values[i - 1]` to `work`, wrapping. The first value is copied.
#[inline(always)]
fn differences(values: &[i64], work: &mut Vec<i64>) {
    work.extend(values.first());
    let later = values.get(1..).unwrap_or_default();
    work.extend(later.iter().zip(values).map(|(b, a)| b.wrapping_sub(*a)));
}

/// Replaces the values by their differences, from the third on.
#[inline(always)]
fn again(work: &mut [i64]) {
    let mut before = work.get(1).copied().unwrap_or_default();
    for v in work.iter_mut().skip(2) {
        let here = *v;
        *v = here.wrapping_sub(before);
        before = here;
    }
}

/// Returns the mode with the smallest spread among the first values, and the bits of that spread.
#[inline(always)]
fn narrowest(values: &[i64]) -> (u8, u32) {
    let values = values.get(..LOOKED_AT).unwrap_or(values);
    let Some(second) = values.get(1..).filter(|later| !later.is_empty()) else { return (PLAIN, 0) };
    let plain = Spread::of(values.iter().copied()).bits();
    let steps = second.iter().zip(values).map(|(b, a)| b.wrapping_sub(*a));
    let delta = Spread::of(steps).bits();
    if delta == 0 {
        return (if plain == 0 { PLAIN } else { DELTA }, 0);
    }
    let third = values.get(2..).unwrap_or_default();
    let changes = third.iter().zip(second).zip(values);
    let changes = changes.map(|((c, b), a)| c.wrapping_sub(*b).wrapping_sub(b.wrapping_sub(*a)));
    let delta2 = if third.is_empty() { u64::BITS } else { Spread::of(changes).bits() };
    if plain <= delta && plain <= delta2 {
        (PLAIN, plain)
    } else if delta <= delta2 {
        (DELTA, delta)
    } else {
        (DELTA2, delta2)
    }
}

/// The smallest and the largest of some values.
#[derive(Clone, Copy)]
struct Spread {
    min: i64,
    max: i64,
}

impl Spread {
    #[inline(always)]
    fn of(values: impl Iterator<Item = i64>) -> Self {
        let none = Self { min: i64::MAX, max: i64::MIN };
        values.fold(none, |it, v| Self { min: it.min.min(v), max: it.max.max(v) })
    }

    /// Returns the bits of the difference. There must have been a value.
    #[inline(always)]
    fn bits(self) -> u32 {
        u64::BITS - (self.max.wrapping_sub(self.min) as u64).leading_zeros()
    }
}

/// Decodes `count` values and replaces the content of `values`. Returns `None` if the bytes are
/// malformed.
pub fn decode(input: &mut Input<'_>, count: usize, values: &mut Vec<i64>) -> Option<()> {
    values.clear();
    if count == 0 {
        return Some(());
    }
    let tag = input.u8()?;
    let mode = tag & !REGULAR;
    if mode > DELTA2 {
        return None;
    }
    if mode != PLAIN {
        values.push(input.signed()?);
    }
    if mode == DELTA2 && count > 1 {
        values.push(input.signed()?);
    } else if mode == DELTA2 {
        input.signed()?;
    }
    if tag & REGULAR != 0 {
        values.resize(count, input.signed()?);
    } else {
        while values.len() < count {
            decode_run(input, (count - values.len()).min(RUN), values)?;
        }
    }
    match mode {
        DELTA => sums(values, 0),
        DELTA2 => {
            sums(values, 1);
            sums(values, 0);
        }
        _ => {}
    }
    Some(())
}

fn decode_run(input: &mut Input<'_>, count: usize, values: &mut Vec<i64>) -> Option<()> {
    let width = u32::from(input.u8()?);
    let min = input.signed()?;
    if width > u64::BITS {
        return None;
    }
    if width > NARROW_BITS || count < RUN {
        return unpack_wide(input, count, width, min, values);
    }
    let mut narrow = [0u32; RUN];
    unpack(input, width, &mut narrow)?;
    values.extend(narrow.iter().map(|v| min.wrapping_add(i64::from(*v))));
    Some(())
}

/// Replaces each value by the sum of the values from `begin` up to it.
fn sums(values: &mut [i64], begin: usize) {
    let mut sum = 0i64;
    for v in values.iter_mut().skip(begin) {
        sum = sum.wrapping_add(*v);
        *v = sum;
    }
}
