//! Flags of a file, as `chattr` sets and `statx` reports them. A change of them is not notified by the
//! kernel; the next scan finds it by the ctime.

/// The flags, and their names in documents. Source: `stx_attributes` of `statx(2)`.
const NAMES: [(u64, &str); 6] = [
    (0x10, "immutable"),
    (0x20, "append"),
    (0x40, "nodump"),
    (0x04, "compressed"),
    (0x800, "encrypted"),
    (0x10_0000, "verity"),
];

/// A set of flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Flags(u8);

impl Flags {
    /// Returns the flags in the attributes of `statx`; `None` if the file system, whose `mask` has the
    /// attributes that it supports, has none of them.
    pub fn of_statx(attributes: u64, mask: u64) -> Option<Self> {
        let bits = |of: u64| {
            let set = NAMES.iter().enumerate().filter(|(_, (bit, _))| of & bit != 0);
            set.fold(0, |bits, (at, _)| bits | 1 << at)
        };
        (bits(mask) != 0).then(|| Self(bits(attributes & mask)))
    }

    /// Returns the names of the flags that are set.
    pub fn names(self) -> Vec<String> {
        let set = NAMES.iter().enumerate().filter(|(at, _)| self.0 & 1 << at != 0);
        set.map(|(_, (_, name))| (*name).to_owned()).collect()
    }

    /// Returns true if no flag is set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    /// Returns `None` for bits that this program does not know.
    pub(crate) fn from_bits(bits: u8) -> Option<Self> {
        (bits >> NAMES.len() == 0).then_some(Self(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_known_only_where_the_file_system_has_them() {
        let ext4 = 0x10_0874;
        assert_eq!(Flags::of_statx(0x10, 0), None);
        assert_eq!(Flags::of_statx(0, ext4), Some(Flags::default()));
        let both = Flags::of_statx(0x30, ext4).unwrap();
        assert_eq!(
            (both.names(), both.is_empty()),
            (vec!["immutable".into(), "append".into()], false)
        );
        assert_eq!(Flags::from_bits(both.bits()), Some(both));
        assert_eq!(Flags::from_bits(0x40), None);
    }
}
