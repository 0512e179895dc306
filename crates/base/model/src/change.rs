//! Verified differences between two observations.

use std::fmt;
use std::sync::Arc;

use crate::cause::Cause;
use crate::notification::Detection;
use crate::observation::{Kind, Observation, ObserveError};
use crate::path::ItemKey;

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// The item was not there before.
    Created,
    /// The item is still there, but different.
    Modified,
    /// The item is no longer there.
    Deleted,
    /// The item is there under another name: before, it was at [`Change::from`].
    Moved,
}

impl ChangeKind {
    /// Returns the word in events and in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Modified => "modified",
            Self::Deleted => "deleted",
            Self::Moved => "moved",
        }
    }

    /// Returns the word of ECS `event.type`.
    pub fn ecs_type(self) -> &'static str {
        match self {
            Self::Created => "creation",
            Self::Modified | Self::Moved => "change",
            Self::Deleted => "deletion",
        }
    }
}

macro_rules! fields {
    ($($(#[$doc:meta])* $variant:ident = $bit:expr, $name:literal;)*) => {
        /// An attribute that can differ between two observations.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Field { $($(#[$doc])* $variant,)* }

        impl Field {
            /// Every field, in the order in which a change lists them.
            pub const ALL: &'static [Field] = &[$(Field::$variant,)*];

            /// Returns the name in events: the ECS field below `file.`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            const fn bit(self) -> u16 {
                match self { $(Self::$variant => 1 << $bit,)* }
            }
        }
    };
}

fields! {
    /// Kind of entry.
    Kind = 0, "type";
    /// Bytes of content.
    Size = 1, "size";
    /// Any of the content's digests.
    Hash = 2, "hash";
    Mode = 3, "mode";
    Uid = 4, "uid";
    Gid = 5, "gid";
    Mtime = 6, "mtime";
    /// Inode change time.
    Ctime = 7, "ctime";
    /// Inode number: the file was replaced.
    Inode = 8, "inode";
    /// Device: another file system was mounted there.
    Device = 9, "device";
    /// Target of a symbolic link.
    Target = 10, "target_path";
    /// Extended attributes, ACL or capabilities.
    Xattrs = 11, "xattrs";
    /// Readability of the content: the error, or none.
    Error = 12, "error";
    /// Number of hard links.
    Links = 13, "links";
    /// Flags such as immutable.
    Flags = 14, "flags";
}

/// A set of [`Field`]s.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Fields(u16);

impl Fields {
    pub fn insert(&mut self, field: Field) {
        self.0 |= field.bit();
    }

    /// Returns true if the field is in the set.
    pub fn contains(self, field: Field) -> bool {
        self.0 & field.bit() != 0
    }

    /// Returns true if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the members in a fixed order.
    pub fn iter(self) -> impl Iterator<Item = Field> {
        Field::ALL.iter().copied().filter(move |f| self.contains(*f))
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Field::name)).finish()
    }
}

/// One verified change of one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub key: ItemKey,
    pub kind: ChangeKind,
    /// State in the baseline, of a moved item that of its former key; `None` when created.
    pub before: Option<Observation>,
    /// State found; `None` when deleted.
    pub after: Option<Observation>,
    /// The former key; only of moved items.
    pub from: Option<ItemKey>,
    /// Fields that differ; empty unless modified or moved.
    pub fields: Fields,
    /// Time at which the agent found the change, microseconds since the epoch.
    pub found_at_us: u64,
    /// Its notifications and writers; absent if a scan found it.
    pub seen: Option<Arc<Detection>>,
    /// Its explanation, if there is one.
    pub cause: Option<Arc<Cause>>,
}

impl Observation {
    /// Returns the attributes that differ between `self` (before) and `after`.
    ///
    /// The size, times and link count of a directory are not compared: they follow from its
    /// entries, each of which is an item of its own. A digest is compared only if both observations
    /// have it, so that enabling an algorithm does not make every file appear changed.
    pub fn difference(&self, after: &Self) -> Fields {
        let mut fields = Fields::default();
        let mut check = |field, differs: bool| {
            if differs {
                fields.insert(field);
            }
        };
        check(Field::Kind, self.kind != after.kind);
        check(Field::Mode, self.mode != after.mode);
        check(Field::Uid, self.uid != after.uid);
        check(Field::Gid, self.gid != after.gid);
        check(Field::Device, self.device != after.device);
        check(Field::Inode, self.inode != after.inode);
        check(Field::Target, self.target != after.target);
        check(Field::Xattrs, self.xattrs != after.xattrs);
        check(Field::Error, self.error != after.error);
        let both = self.flags.zip(after.flags);
        check(Field::Flags, both.is_some_and(|(before, after)| before != after));
        if !(self.kind == Kind::Directory && after.kind == Kind::Directory) {
            check(Field::Size, self.size != after.size);
            check(Field::Mtime, self.mtime_ns != after.mtime_ns);
            check(Field::Ctime, self.ctime_ns != after.ctime_ns);
            check(Field::Links, self.links != after.links);
            check(Field::Hash, self.content_differs(after));
        }
        fields
    }

    fn content_differs(&self, after: &Self) -> bool {
        fn differ<T: PartialEq>(a: Option<T>, b: Option<T>) -> bool {
            matches!((a, b), (Some(a), Some(b)) if a != b)
        }
        differ(self.hashes.sha256, after.hashes.sha256)
            || differ(self.hashes.sha1, after.hashes.sha1)
            || differ(self.hashes.md5, after.hashes.md5)
            || differ(self.hashes.blake3, after.hashes.blake3)
    }

    /// Returns true if the result of `stat` alone proves that the content need not be read again:
    /// device, inode, size, mtime, ctime, mode, owner, group and link count are equal, and neither
    /// observation is in doubt (racy, unstable). An entry that could not be read is read again
    /// every time.
    pub fn same_stat(&self, now: &Self) -> bool {
        self.kind == now.kind
            && self.device == now.device
            && self.inode == now.inode
            && self.size == now.size
            && self.mtime_ns == now.mtime_ns
            && self.ctime_ns == now.ctime_ns
            && self.mode == now.mode
            && self.uid == now.uid
            && self.gid == now.gid
            && self.links == now.links
            && self.flags.zip(now.flags).is_none_or(|(before, now)| before == now)
            && !self.racy
            && matches!(self.error, None | Some(ObserveError::TooLarge))
    }
}
