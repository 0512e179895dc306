//! The state of an item, observed at one moment.

use std::fmt;

use crate::codec::{Reader, Writer};
use crate::flags::Flags;

/// The kind of entry at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    File = 0,
    Directory = 1,
    /// Symbolic link; never followed unless a rule says so.
    Symlink = 2,
    /// Named pipe; never opened.
    Fifo = 3,
    /// Unix socket; never opened.
    Socket = 4,
    /// Block device; never opened.
    BlockDevice = 5,
    /// Character device; never opened.
    CharDevice = 6,
}

impl Kind {
    /// Returns the word of ECS `file.type`, or this product's word where ECS has none.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "dir",
            Self::Symlink => "symlink",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::BlockDevice => "block_device",
            Self::CharDevice => "char_device",
        }
    }

    fn from_u8(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::File,
            1 => Self::Directory,
            2 => Self::Symlink,
            3 => Self::Fifo,
            4 => Self::Socket,
            5 => Self::BlockDevice,
            6 => Self::CharDevice,
            _ => return None,
        })
    }
}

/// Content digests, each present when the rules ask for it and the content could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hashes {
    /// SHA-256, on by default.
    pub sha256: Option<[u8; 32]>,
    /// SHA-1, for compatibility.
    pub sha1: Option<[u8; 20]>,
    /// MD5, for compatibility.
    pub md5: Option<[u8; 16]>,
    /// BLAKE3.
    pub blake3: Option<[u8; 32]>,
}

impl Hashes {
    /// Returns true if no digest is present.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The reason why the content (or the whole entry) could not be observed. It is part of the
/// observation, not an error: an unreadable file is still known to exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObserveError {
    /// The content kept changing while it was read; the recorded digests are not trusted.
    Unstable,
    /// Larger than the rule's size limit: attributes only.
    TooLarge,
    /// The operating system's error number, e.g. 13 for permission denied.
    Os(i32),
}

impl fmt::Display for ObserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unstable => f.write_str("changed while it was read"),
            Self::TooLarge => f.write_str("larger than the rule's size limit"),
            Self::Os(code) => std::io::Error::from_raw_os_error(*code).fmt(f),
        }
    }
}

/// One extended attribute. POSIX ACLs (`system.posix_acl_access`) and file capabilities
/// (`security.capability`) are extended attributes too.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xattr {
    /// Attribute name with its namespace, e.g. `user.note`.
    pub name: Vec<u8>,
    /// The value; above [`crate::limits::XATTR_VALUE_BYTES_MAX`] bytes its SHA-256 behind the
    /// prefix `sha256:`.
    pub value: Vec<u8>,
}

/// The state of one path, observed at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// Kind of entry.
    pub kind: Kind,
    /// Device number of the file system (`st_dev`).
    pub device: u64,
    pub inode: u64,
    pub links: u64,
    /// Permission bits with setuid, setgid and sticky (12 bits).
    pub mode: u32,
    /// Owner's user id.
    pub uid: u32,
    /// Owner's group id.
    pub gid: u32,
    /// Bytes of content.
    pub size: u64,
    /// Last modification of the content, nanoseconds since the epoch.
    pub mtime_ns: i64,
    /// Last change of the inode, nanoseconds since the epoch. Cannot be set by programs.
    pub ctime_ns: i64,
    /// Digests of the content.
    pub hashes: Hashes,
    /// Target of a symbolic link, raw.
    pub target: Option<Vec<u8>>,
    /// Extended attributes, sorted by name.
    pub xattrs: Vec<Xattr>,
    /// `None` if they are not known: the file system has none, or an earlier version of the agent
    /// observed the item. Unknown flags equal any.
    pub flags: Option<Flags>,
    /// Why the content is unknown, if it is.
    pub error: Option<ObserveError>,
    /// When the content was last read and hashed, seconds since the epoch; 0 if never.
    pub verified_at_s: u32,
    /// True if the inode changed so shortly before the observation that a later change could leave
    /// the same timestamps. The next scan hashes the content regardless of them.
    pub racy: bool,
}

/// Version of the binary form; the first byte of each encoded observation.
const VERSION: u8 = 1;
/// Bit in the byte of the kind: flags are known, and their byte is the last one.
const HAS_FLAGS: u8 = 0x80;

impl Observation {
    /// Returns an observation with only its kind set, for tests and builders.
    pub fn empty(kind: Kind) -> Self {
        Self {
            kind,
            device: 0,
            inode: 0,
            links: 1,
            mode: 0,
            uid: 0,
            gid: 0,
            size: 0,
            mtime_ns: 0,
            ctime_ns: 0,
            hashes: Hashes::default(),
            target: None,
            xattrs: Vec::new(),
            flags: None,
            error: None,
            verified_at_s: 0,
            racy: false,
        }
    }

    /// Appends the binary form that `agent.db` stores (`docs/format/agent-db.md`). Around 80 bytes
    /// for a regular file with SHA-256.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let mut w = Writer(into);
        w.byte(VERSION);
        w.byte(self.kind as u8 | self.flags.map_or(0, |_| HAS_FLAGS));
        w.byte(self.parts());
        w.varint(self.device);
        w.varint(self.inode);
        w.varint(self.links);
        w.varint(u64::from(self.mode));
        w.varint(u64::from(self.uid));
        w.varint(u64::from(self.gid));
        w.varint(self.size);
        w.signed(self.mtime_ns);
        // ctime is near mtime for most files: the difference is short.
        w.signed(self.ctime_ns.wrapping_sub(self.mtime_ns));
        w.varint(u64::from(self.verified_at_s));
        for hash in [
            &self.hashes.sha256.as_ref().map(|h| &h[..]),
            &self.hashes.sha1.as_ref().map(|h| &h[..]),
            &self.hashes.md5.as_ref().map(|h| &h[..]),
            &self.hashes.blake3.as_ref().map(|h| &h[..]),
        ] {
            w.raw(hash.unwrap_or_default());
        }
        if let Some(target) = &self.target {
            w.bytes(target);
        }
        if !self.xattrs.is_empty() {
            w.varint(self.xattrs.len() as u64);
            for xattr in &self.xattrs {
                w.bytes(&xattr.name);
                w.bytes(&xattr.value);
            }
        }
        match self.error {
            None => {}
            Some(ObserveError::Unstable) => w.signed(-1),
            Some(ObserveError::TooLarge) => w.signed(-2),
            Some(ObserveError::Os(code)) => w.signed(i64::from(code)),
        }
        if let Some(flags) = self.flags {
            w.byte(flags.bits());
        }
    }

    /// Returns a bit for each part that is present.
    fn parts(&self) -> u8 {
        u8::from(self.hashes.sha256.is_some())
            | u8::from(self.hashes.sha1.is_some()) << 1
            | u8::from(self.hashes.md5.is_some()) << 2
            | u8::from(self.hashes.blake3.is_some()) << 3
            | u8::from(self.target.is_some()) << 4
            | u8::from(!self.xattrs.is_empty()) << 5
            | u8::from(self.error.is_some()) << 6
            | u8::from(self.racy) << 7
    }

    /// Decodes the output of [`Observation::encode`]; `None` if the bytes are not an observation,
    /// or have a version other than this program's.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader(bytes);
        if r.byte()? != VERSION {
            return None;
        }
        let kind = r.byte()?;
        let mut o = Self::empty(Kind::from_u8(kind & !HAS_FLAGS)?);
        let parts = r.byte()?;
        let has = |bit: u8| parts & (1 << bit) != 0;
        o.device = r.varint()?;
        o.inode = r.varint()?;
        o.links = r.varint()?;
        o.mode = u32::try_from(r.varint()?).ok()?;
        o.uid = u32::try_from(r.varint()?).ok()?;
        o.gid = u32::try_from(r.varint()?).ok()?;
        o.size = r.varint()?;
        o.mtime_ns = r.signed()?;
        o.ctime_ns = r.signed()?.wrapping_add(o.mtime_ns);
        o.verified_at_s = u32::try_from(r.varint()?).ok()?;
        o.hashes = Hashes {
            sha256: if has(0) { Some(r.array()?) } else { None },
            sha1: if has(1) { Some(r.array()?) } else { None },
            md5: if has(2) { Some(r.array()?) } else { None },
            blake3: if has(3) { Some(r.array()?) } else { None },
        };
        if has(4) {
            o.target = Some(r.bytes()?.to_vec());
        }
        if has(5) {
            for _ in 0..r.varint()? {
                o.xattrs.push(Xattr { name: r.bytes()?.to_vec(), value: r.bytes()?.to_vec() });
            }
        }
        if has(6) {
            o.error = Some(match r.signed()? {
                -1 => ObserveError::Unstable,
                -2 => ObserveError::TooLarge,
                code => ObserveError::Os(i32::try_from(code).ok()?),
            });
        }
        o.racy = has(7);
        if kind & HAS_FLAGS != 0 {
            o.flags = Some(Flags::from_bits(r.byte()?)?);
        }
        r.0.is_empty().then_some(o)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn any_observation() -> impl Strategy<Value = Observation> {
        let numbers = (
            any::<u64>(),
            any::<u64>(),
            any::<u64>(),
            (0u32..0o10000, any::<u32>(), any::<u32>()),
            any::<u64>(),
            any::<i64>(),
            any::<i64>(),
            any::<u32>(),
        );
        let rest = (
            0u8..7,
            prop::option::of(any::<[u8; 32]>()),
            prop::option::of(any::<[u8; 20]>()),
            prop::option::of(any::<[u8; 16]>()),
            prop::option::of(prop::collection::vec(any::<u8>(), 0..40)),
            prop::collection::vec(
                (
                    prop::collection::vec(any::<u8>(), 1..9),
                    prop::collection::vec(any::<u8>(), 0..9),
                ),
                0..3,
            ),
            prop::option::of(-2i32..200),
            (any::<bool>(), prop::option::of(0u8..64)),
        );
        (numbers, rest).prop_map(|(n, r)| Observation {
            kind: Kind::from_u8(r.0).unwrap(),
            device: n.0,
            inode: n.1,
            links: n.2,
            mode: n.3.0,
            uid: n.3.1,
            gid: n.3.2,
            size: n.4,
            mtime_ns: n.5,
            ctime_ns: n.6,
            verified_at_s: n.7,
            hashes: Hashes { sha256: r.1, sha1: r.2, md5: r.3, blake3: r.1 },
            target: r.4,
            xattrs: r.5.into_iter().map(|(name, value)| Xattr { name, value }).collect(),
            error: r.6.map(|e| match e {
                -1 => ObserveError::Unstable,
                -2 => ObserveError::TooLarge,
                e => ObserveError::Os(e),
            }),
            racy: r.7.0,
            flags: r.7.1.and_then(Flags::from_bits),
        })
    }

    proptest! {
        #[test]
        fn observation_round_trips_and_rejects_truncation(o in any_observation()) {
            let mut bytes = Vec::new();
            o.encode(&mut bytes);
            prop_assert_eq!(Observation::decode(&bytes), Some(o));
            for end in 0..bytes.len() {
                prop_assert_eq!(Observation::decode(&bytes[..end]), None);
            }
        }

        #[test]
        fn decoding_random_observation_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Observation::decode(&bytes);
        }
    }

    #[test]
    fn regular_file_encodes_to_at_most_80_bytes() {
        let mut o = Observation::empty(Kind::File);
        o.device = 0xfe00;
        o.inode = 1 << 23;
        o.mode = 0o644;
        o.size = 123_456;
        o.mtime_ns = 1_700_000_000_000_000_000;
        o.ctime_ns = 1_710_000_000_123_456_789;
        o.verified_at_s = 1_763_751_122;
        o.hashes.sha256 = Some([7; 32]);
        let mut bytes = Vec::new();
        o.encode(&mut bytes);
        assert!(bytes.len() <= 80, "{}", bytes.len());
    }
}
