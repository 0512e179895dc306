//! Little-endian numbers, varints and block-aligned buffers. Nothing here panics.

use crate::options::BLOCK_BYTES;

/// Longest varint of a `u32`, in bytes.
pub(crate) const VARINT_BYTES_MAX: usize = 5;

/// Returns the `N` bytes at `at`.
pub(crate) fn array<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Copies `what` to `at`. Copies nothing if it does not fit.
pub(crate) fn copy_at(into: &mut [u8], at: usize, what: &[u8]) {
    if let Some(place) = into.get_mut(at..at.saturating_add(what.len())) {
        place.copy_from_slice(what);
    }
}

/// Appends `value` as a LEB128 varint.
pub(crate) fn push_varint(into: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// Reads a varint: value and width. Returns `None` if it is cut off, too long or not minimal.
pub(crate) fn varint(from: &[u8]) -> Option<(u32, usize)> {
    let mut value = 0u64;
    for (i, byte) in from.iter().take(VARINT_BYTES_MAX).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            let shortest = *byte != 0 || i == 0;
            return u32::try_from(value).ok().filter(|_| shortest).map(|v| (v, i + 1));
        }
    }
    None
}

/// A buffer of whole blocks, aligned to the block size in memory as `O_DIRECT` requires.
pub(crate) struct Blocks {
    raw: Vec<u8>,
    begin: usize,
    used: usize,
}

impl Blocks {
    pub(crate) fn new() -> Self {
        Self { raw: Vec::new(), begin: 0, used: 0 }
    }

    /// Sets the length to `bytes`, rounded up to whole blocks, and fills the buffer with zeros.
    pub(crate) fn reset(&mut self, bytes: usize) -> &mut [u8] {
        self.reset_behind(bytes, 0)
    }

    /// Does the same, but the bytes below `written` may hold anything: the caller overwrites them.
    pub(crate) fn reset_behind(&mut self, bytes: usize, written: usize) -> &mut [u8] {
        let used = bytes.next_multiple_of(BLOCK_BYTES);
        if self.raw.len() < used + BLOCK_BYTES {
            self.raw = vec![0; used + BLOCK_BYTES];
            let address = self.raw.as_ptr().addr();
            self.begin = address.next_multiple_of(BLOCK_BYTES) - address;
            self.used = used;
        } else {
            self.used = used;
            self.bytes_mut().get_mut(written..).unwrap_or_default().fill(0);
        }
        self.bytes_mut()
    }

    /// Returns the bytes of the buffer, at the length of the last reset.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.raw.get(self.begin..self.begin + self.used).unwrap_or_default()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.raw.get_mut(self.begin..self.begin + self.used).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_and_longer_forms_are_rejected() {
        for value in [0, 1, 127, 128, 300, 16_383, 16_384, u32::MAX] {
            let mut bytes = Vec::new();
            push_varint(&mut bytes, value);
            assert_eq!(varint(&bytes), Some((value, bytes.len())));
            assert_eq!(varint(&bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(varint(&[0x80, 0]), None);
        assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0x7f]), None);
    }

    #[test]
    fn block_buffer_is_aligned_and_zeroed_after_each_reset() {
        let mut blocks = Blocks::new();
        for bytes in [1, 5000, 4096, 100_000, 3] {
            let all = blocks.reset(bytes);
            assert!(all.iter().all(|b| *b == 0));
            assert_eq!(all.len(), bytes.next_multiple_of(BLOCK_BYTES));
            assert_eq!(all.as_ptr().addr() % BLOCK_BYTES, 0);
            all.fill(7);
        }
        let all = blocks.reset_behind(5000, 300);
        assert!(all[..300].iter().all(|b| *b == 7) && all[300..].iter().all(|b| *b == 0));
    }
}
