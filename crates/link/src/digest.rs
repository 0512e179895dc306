//! Repair by difference: the digests that agent and server compute over ranges of documents to find
//! the few that differ among many.
//!
//! A document's key has 64 bits: the first 8 bytes of its id if the id is lower-case hex of 16 to
//! 64 bytes, else the first 8 bytes of the id's SHA-1. A range is named by the leading hex digits
//! of its keys; the empty name is the range of all keys. The sum of a range is the sum of its
//! documents' hashes modulo 2^64, which does not depend on their order. A document's hash is the
//! first 8 bytes (big-endian) of SHA-1 over its id, a NUL and its checksum.

use sha1::{Digest as _, Sha1};

/// Number of hex digits of a key.
const KEY_DIGITS: usize = 16;
/// Most digits by which one request splits a range: 256 parts.
pub const SPLIT_DIGITS_MAX: u8 = 2;
/// Fewest and most bytes of a hexadecimal id from which the key is taken directly.
const OWN_KEY_BYTES: std::ops::RangeInclusive<usize> = 16..=64;

/// Returns the key of a document's id.
pub fn key(id: &str) -> u64 {
    let hex = id.len().is_multiple_of(2)
        && OWN_KEY_BYTES.contains(&(id.len() / 2))
        && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let own = id.get(..KEY_DIGITS).filter(|_| hex);
    own.and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .unwrap_or_else(|| first_bytes(Sha1::new_with_prefix(id)))
}

/// Returns the hash of a document.
pub fn hash(id: &str, checksum: &str) -> u64 {
    first_bytes(Sha1::new_with_prefix(id).chain_update([0]).chain_update(checksum))
}

fn first_bytes(hash: Sha1) -> u64 {
    let whole: [u8; 20] = hash.finalize().into();
    whole.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// The number of documents in a range and the sum of their hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum {
    pub documents: u64,
    /// Sum of the hashes, modulo 2^64.
    pub hashes: u64,
}

impl Sum {
    /// Adds one document.
    pub fn add(&mut self, hash: u64) {
        self.documents += 1;
        self.hashes = self.hashes.wrapping_add(hash);
    }
}

/// The range of keys that begin with the same hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyRange {
    /// The lowest key.
    pub first: u64,
    digits: u8,
}

impl KeyRange {
    pub const ALL: Self = Self { first: 0, digits: 0 };

    /// Parses a range name; `None` unless it consists of up to 16 lower-case hex digits.
    pub fn parse(name: &str) -> Option<Self> {
        let digits = name.len();
        let hex = name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if digits > KEY_DIGITS || !hex {
            return None;
        }
        let first = match digits {
            0 => 0,
            n => u64::from_str_radix(name, 16).ok()? << (4 * (KEY_DIGITS - n)),
        };
        Some(Self { first, digits: digits as u8 })
    }

    /// Returns the number of digits in the range's name.
    pub fn digits(&self) -> u8 {
        self.digits
    }

    /// Returns the highest key.
    pub fn last(&self) -> u64 {
        self.first | u64::MAX.checked_shr(4 * u32::from(self.digits)).unwrap_or(0)
    }

    /// Returns true if the key lies within the range.
    pub fn contains(&self, key: u64) -> bool {
        (self.first..=self.last()).contains(&key)
    }

    pub fn name(&self) -> String {
        let mut name = format!("{:016x}", self.first);
        name.truncate(usize::from(self.digits));
        name
    }

    /// Returns the parts whose names are longer by this number of digits, in order; the range
    /// itself if its name cannot get longer.
    pub fn split(&self, digits: u8) -> impl Iterator<Item = Self> + use<> {
        let digits = digits.min(KEY_DIGITS as u8 - self.digits);
        let (first, all) = (self.first, self.digits + digits);
        let step = 4 * (KEY_DIGITS as u32 - u32::from(all));
        (0..1u64 << (4 * u32::from(digits)))
            .map(move |n| Self { first: first | n.checked_shl(step).unwrap_or(0), digits: all })
    }

    /// Returns the index of the part that contains the key in the result of [`KeyRange::split`]
    /// with the same `digits`.
    pub fn part_index(&self, key: u64, digits: u8) -> usize {
        let all = u32::from(self.digits + digits.min(KEY_DIGITS as u8 - self.digits));
        let shifted = (key - self.first).checked_shr(4 * (KEY_DIGITS as u32 - all));
        shifted.unwrap_or(0) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_ids_give_their_key_directly_others_are_hashed() {
        assert_eq!(key("da39a3ee5e6b4b0d3255bfef95601890afd80709"), 0xda39_a3ee_5e6b_4b0d);
        let sha1_of_bash = key("bash");
        assert_ne!(sha1_of_bash, key("zsh"));
        assert_ne!(key("DA39A3EE5E6B4B0D3255BFEF95601890AFD80709"), 0xda39_a3ee_5e6b_4b0d);
        assert_ne!(key("da39a3ee5e6b4b0d"), 0xda39_a3ee_5e6b_4b0d, "too short");
    }

    #[test]
    fn split_ranges_cover_the_range_without_overlap() {
        let names = ["", "0", "a3", "fff", "0123456789abcde", "0123456789abcdef"];
        for (name, digits) in names.into_iter().flat_map(|name| [(name, 1), (name, 2)]) {
            let range = KeyRange::parse(name).unwrap();
            assert_eq!(range.name(), name);
            let mut next = Some(range.first);
            for (place, part) in range.split(digits).enumerate() {
                assert_eq!(Some(part.first), next);
                assert_eq!(range.part_index(part.first, digits), place);
                assert_eq!(range.part_index(part.last(), digits), place);
                assert_eq!(KeyRange::parse(&part.name()), Some(part));
                next = part.last().checked_add(1);
            }
            assert_eq!(next, range.last().checked_add(1), "{name}");
        }
        for bad in ["g", "A", "0123456789abcdef0"] {
            assert_eq!(KeyRange::parse(bad), None);
        }
    }

    #[test]
    fn range_sum_ignores_document_order() {
        let [a, b] = [hash("a", "1"), hash("b", "2")];
        let sum = |hashes: &[u64]| {
            let mut sum = Sum::default();
            for hash in hashes {
                sum.add(*hash);
            }
            sum
        };
        assert_eq!(sum(&[a, b]), sum(&[b, a]));
        assert_ne!(sum(&[a, b]), sum(&[hash("a", "2"), hash("b", "1")]));
        assert_ne!(sum(&[a]), sum(&[a, b]));
    }
}
