//! Bits: 128 values of up to 32 bits side by side in four lanes, others one after another.

use crate::bytes::Input;

/// Values of a run.
pub(crate) const RUN: usize = 128;
const LANES: usize = 4;

type Lanes = [u32; LANES];

/// Append 128 values of `width` (0 to 32) bits: value `4 i + l` is the `i`-th of lane `l`; the
/// lanes' words alternate.
pub(crate) fn pack(values: &[u32; RUN], width: u32, into: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    let mut words = [[0u32; LANES]; 32];
    let (mut used, mut filled) = (0u32, 0usize);
    let mut word: Lanes = [0; LANES];
    let (groups, _) = values.as_chunks::<LANES>();
    for group in groups {
        for (w, v) in word.iter_mut().zip(group) {
            *w |= v << used;
        }
        used += width;
        if used >= 32 {
            if let Some(full) = words.get_mut(filled) {
                *full = word;
            }
            filled += 1;
            used -= 32;
            // What did not fit: nothing if the word was filled exactly.
            let fitted = width - used;
            for (w, v) in word.iter_mut().zip(group) {
                *w = v.checked_shr(fitted).unwrap_or(0);
            }
        }
    }
    let begin = into.len();
    into.resize(begin + width as usize * LANES * 4, 0);
    let bytes = into.get_mut(begin..).unwrap_or_default();
    for (to, word) in bytes.chunks_exact_mut(4).zip(words.as_flattened()) {
        to.copy_from_slice(&word.to_le_bytes());
    }
}

/// Read 128 values of `width` (0 to 32) bits.
pub(crate) fn unpack(input: &mut Input<'_>, width: u32, values: &mut [u32; RUN]) -> Option<()> {
    if width == 0 {
        *values = [0; RUN];
        return Some(());
    }
    let bytes = input.take(width as usize * LANES * 4)?;
    let mut words = [[0u32; LANES]; 33];
    for (word, from) in words.as_flattened_mut().iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_le_bytes(from.try_into().ok()?);
    }
    let mask = u32::MAX >> (32 - width);
    let (groups, _) = values.as_chunks_mut::<LANES>();
    let mut bit = 0u32;
    for group in groups {
        let (at, shift) = ((bit / 32) as usize, bit % 32);
        let [low, high] = words.get(at..at + 2)? else { return None };
        for ((v, l), h) in group.iter_mut().zip(low).zip(high) {
            let both = u64::from(*l) | (u64::from(*h) << 32);
            *v = (both >> shift) as u32 & mask;
        }
        bit += width;
    }
    Some(())
}

/// Append values minus `min`, `width` (0 to 64) bits each, one after another, the last byte filled
/// up with zeros.
pub(crate) fn pack_wide(values: &[i64], min: i64, width: u32, into: &mut Vec<u8>) {
    let (mut word, mut used) = (0u128, 0u32);
    for v in values {
        word |= u128::from(v.wrapping_sub(min) as u64) << used;
        used += width;
        if used >= 64 {
            into.extend_from_slice(&(word as u64).to_le_bytes());
            word >>= 64;
            used -= 64;
        }
    }
    let bytes = used.div_ceil(8) as usize;
    into.extend_from_slice(word.to_le_bytes().get(..bytes).unwrap_or_default());
}

/// Read `count` values of `width` (0 to 64) bits, plus `min`.
pub(crate) fn unpack_wide(
    input: &mut Input<'_>,
    count: usize,
    width: u32,
    min: i64,
    values: &mut Vec<i64>,
) -> Option<()> {
    let mut rest = input.take((count * width as usize).div_ceil(8))?;
    let mask = if width == 64 { u64::MAX } else { (1u64 << width) - 1 };
    let (mut word, mut held) = (0u128, 0u32);
    for _ in 0..count {
        if held < width {
            let (next, bits);
            (next, bits, rest) = match rest.split_first_chunk::<8>() {
                Some((eight, after)) => (u64::from_le_bytes(*eight), 64, after),
                None => last_word(rest),
            };
            word |= u128::from(next) << held;
            held += bits;
        }
        values.push(min.wrapping_add((word as u64 & mask) as i64));
        word >>= width;
        held -= width;
    }
    Some(())
}

/// Fewer than 8 bytes as a word, with its bits.
fn last_word(rest: &[u8]) -> (u64, u32, &[u8]) {
    let word = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    (word, rest.len() as u32 * 8, &[])
}
