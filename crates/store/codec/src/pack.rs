//! Bit packing: 128 values of up to 32 bits in four lanes, other values one after another.

#![expect(clippy::inline_always, reason = "what is compiled for wide registers is whole with it")]

use crate::bytes::Input;

/// Number of values in a run.
pub(crate) const RUN: usize = 128;
const LANES: usize = 4;

type Lanes = [u32; LANES];

/// Appends 128 values of `width` (0 to 32) bits. Value `4 i + l` is the `i`-th of lane `l`. The
/// words of the lanes alternate.
#[inline(always)]
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
            // These are the bits that did not fit: none if the word was filled exactly. 1 to 32
            // bits fitted.
            let fitted = width - used - 1;
            for (w, v) in word.iter_mut().zip(group) {
                *w = (v >> fitted) >> 1;
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

/// Decodes 128 values of `width` (0 to 32) bits.
pub(crate) fn unpack(input: &mut Input<'_>, width: u32, values: &mut [u32; RUN]) -> Option<()> {
    if width == 0 {
        *values = [0; RUN];
        return Some(());
    }
    let bytes = input.take_bytes(width as usize * LANES * 4)?;
    let mut words = [[0u32; LANES]; 33];
    for (word, from) in words.iter_mut().zip(bytes.as_chunks::<16>().0) {
        let four = u128::from_le_bytes(*from);
        *word = [four as u32, (four >> 32) as u32, (four >> 64) as u32, (four >> 96) as u32];
    }
    let mask = u32::MAX >> (32 - width);
    let (groups, _) = values.as_chunks_mut::<LANES>();
    let mut bit = 0u32;
    for group in groups {
        let (at, shift) = ((bit / 32) as usize, bit % 32);
        let (Some(low), Some(high)) = (words.get(at), words.get(at + 1)) else { return None };
        for ((v, l), h) in group.iter_mut().zip(low).zip(high) {
            // The two shifts add up to at most 32, which a single shift could not do.
            *v = ((l >> shift) | ((h << 1) << (31 - shift))) & mask;
        }
        bit += width;
    }
    Some(())
}

/// Appends at most 128 values minus `min`, `width` (0 to 64) bits each, one after another. The last
/// byte is padded with zeros.
#[inline(always)]
pub(crate) fn pack_wide(values: &[i64], min: i64, width: u32, into: &mut Vec<u8>) {
    let end = into.len() + (values.len() * width as usize).div_ceil(8);
    let (mut word, mut used) = (0u64, 0u32);
    for v in values {
        let v = v.wrapping_sub(min) as u64;
        word |= v << used;
        used += width;
        if used >= u64::BITS {
            into.extend_from_slice(&word.to_le_bytes());
            used -= u64::BITS;
            // These are the bits that did not fit: none if the word was filled exactly. 1 to 64
            // bits fitted.
            word = (v >> (width - used - 1)) >> 1;
        }
    }
    into.extend_from_slice(&word.to_le_bytes());
    into.truncate(end);
}

/// Decodes `count` (at most 128) values of `width` (0 to 64) bits and adds `min`.
pub(crate) fn unpack_wide(
    input: &mut Input<'_>,
    count: usize,
    width: u32,
    min: i64,
    values: &mut Vec<i64>,
) -> Option<()> {
    let bytes = input.take_bytes((count * width as usize).div_ceil(8))?;
    // The padding after the last value allows reading a whole word there.
    let mut room = [0u8; RUN * 8 + 16];
    room.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let mask = u64::MAX.checked_shr(64 - width).unwrap_or(0);
    let width = width as usize;
    if width <= 56 {
        values.extend((0..count).map(|i| {
            let word = room.get(i * width / 8..).and_then(<[u8]>::first_chunk::<8>);
            let word = u64::from_le_bytes(word.copied().unwrap_or_default());
            min.wrapping_add(((word >> (i * width % 8)) & mask) as i64)
        }));
    } else {
        values.extend((0..count).map(|i| {
            let word = room.get(i * width / 8..).and_then(<[u8]>::first_chunk::<16>);
            let word = u128::from_le_bytes(word.copied().unwrap_or_default());
            min.wrapping_add(((word >> (i * width % 8)) as u64 & mask) as i64)
        }));
    }
    Some(())
}
