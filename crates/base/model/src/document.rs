//! State documents of files: ECS-shaped JSON built from an observation when it is sent.
//!
//! Field names: ECS 8 `file.*`, extended by `xattrs`, `flags`, `links`, `error` and `path_hex`;
//! `checksum.hash.sha1` and `state.*` as in `docs/reference/wire.md`, "Checksums" and "Versions and
//! metadata".

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

use crate::change::Field;
use crate::observation::{Kind, Observation};
use crate::path::{ItemKey, show};
use crate::timestamp;

/// A source of user and group names. The real one asks the system; results may be cached.
pub trait Names: Send + Sync {
    /// Returns the name of a user id, if it has one.
    fn user(&self, uid: u32) -> Option<String>;
    /// Returns the name of a group id, if it has one.
    fn group(&self, gid: u32) -> Option<String>;
}

/// Names that are always unknown: for tests, and for comparisons that must not depend on the
/// machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNames;

impl Names for NoNames {
    fn user(&self, _: u32) -> Option<String> {
        None
    }

    fn group(&self, _: u32) -> Option<String> {
        None
    }
}

/// Digests in lower-case hex.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct HashBody {
    /// MD5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub md5: Option<String>,
    /// SHA-1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha1: Option<String>,
    /// SHA-256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// BLAKE3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blake3: Option<String>,
}

impl HashBody {
    /// Returns true if a digest that both have differs.
    fn contradicts(&self, other: &Self) -> bool {
        let differ = |a: &Option<String>, b: &Option<String>| a.is_some() && b.is_some() && a != b;
        differ(&self.md5, &other.md5)
            || differ(&self.sha1, &other.sha1)
            || differ(&self.sha256, &other.sha256)
            || differ(&self.blake3, &other.blake3)
    }
}

/// The state of one file in documents and events. Absent means unknown or not applicable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct FileBody {
    /// Whole path, shown safely.
    pub path: String,
    /// The exact path in hex, only where it is not valid UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_hex: Option<String>,
    pub name: String,
    pub directory: String,
    /// [`Kind::name`].
    #[serde(rename = "type")]
    pub kind: String,
    /// Bytes of content; absent for directories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Four octal digits.
    pub mode: String,
    /// User id, decimal.
    pub uid: String,
    /// Group id, decimal.
    pub gid: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// RFC 3339 with nanoseconds; absent for directories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<String>,
    /// RFC 3339 with nanoseconds; absent for directories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ctime: Option<String>,
    /// Inode number, decimal.
    pub inode: String,
    /// Device number, decimal.
    pub device: String,
    /// Hard links, where there is more than one; absent for directories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<u64>,
    /// Target of a symbolic link, shown safely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<HashBody>,
    /// Extended attributes: name to value, the value as text where it is printable and else as
    /// `hex:` and its bytes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub xattrs: BTreeMap<String, String>,
    /// Names of the flags that are set, such as `immutable`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// Why the content is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl FileBody {
    /// Builds the body from an observation.
    pub fn new(key: &ItemKey, o: &Observation, names: &dyn Names) -> Self {
        let path = key.path();
        let stat = o.kind != Kind::Directory;
        let hex32 = |h: &[u8; 32]| hex::encode(h);
        Self {
            path_hex: std::str::from_utf8(&path).is_err().then(|| hex::encode(&path)),
            path: show(&path).into_owned(),
            name: show(&key.name).into_owned(),
            directory: show(&key.directory).into_owned(),
            kind: o.kind.name().into(),
            size: stat.then_some(o.size),
            mode: format!("{:04o}", o.mode),
            uid: o.uid.to_string(),
            gid: o.gid.to_string(),
            owner: names.user(o.uid),
            group: names.group(o.gid),
            mtime: stat.then(|| timestamp::nanos_text(o.mtime_ns)),
            ctime: stat.then(|| timestamp::nanos_text(o.ctime_ns)),
            inode: o.inode.to_string(),
            device: o.device.to_string(),
            links: (stat && o.links != 1).then_some(o.links),
            target_path: o.target.as_deref().map(|t| show(t).into_owned()),
            hash: (!o.hashes.is_empty()).then(|| HashBody {
                md5: o.hashes.md5.as_ref().map(hex::encode),
                sha1: o.hashes.sha1.as_ref().map(hex::encode),
                sha256: o.hashes.sha256.as_ref().map(hex32),
                blake3: o.hashes.blake3.as_ref().map(hex32),
            }),
            xattrs: o
                .xattrs
                .iter()
                .map(|x| (show(&x.name).into_owned(), value(&x.value)))
                .collect(),
            flags: o.flags.unwrap_or_default().names(),
            error: o.error.map(|e| e.to_string()),
        }
    }
}

impl FileBody {
    /// Returns the fields in which `other` differs. Names of users and groups are not compared.
    pub fn difference(&self, other: &Self) -> Vec<Field> {
        let differs = |field: &Field| match field {
            Field::Kind => self.kind != other.kind,
            Field::Size => self.size != other.size,
            Field::Hash => match (&self.hash, &other.hash) {
                (Some(hash), Some(other)) => hash.contradicts(other),
                _ => false,
            },
            Field::Mode => self.mode != other.mode,
            Field::Uid => self.uid != other.uid,
            Field::Gid => self.gid != other.gid,
            Field::Mtime => self.mtime != other.mtime,
            Field::Ctime => self.ctime != other.ctime,
            Field::Inode => self.inode != other.inode,
            Field::Device => self.device != other.device,
            Field::Target => self.target_path != other.target_path,
            Field::Xattrs => self.xattrs != other.xattrs,
            Field::Error => self.error != other.error,
            Field::Links => self.links != other.links,
            Field::Flags => self.flags != other.flags,
        };
        Field::ALL.iter().copied().filter(differs).collect()
    }
}

fn value(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) && !text.starts_with("hex:") => text.into(),
        _ => format!("hex:{}", hex::encode(bytes)),
    }
}

/// Returns the SHA-1, lower-case hex, of
/// `size:path:perm:attributes:uid:gid:owner:group:mtime:inode:md5:sha1:sha256` with empty strings
/// for absent fields (`docs/reference/wire.md`, "Checksums"). `path` is in hex if it is not valid
/// UTF-8, mtime is in whole seconds, and perm is four octal digits. `attributes` holds the fields
/// that this product adds: kind, nanosecond times, device, links, target, BLAKE3, xattrs, error and flags,
/// so that documents with equal checksums describe equal states.
pub fn checksum(file: &FileBody) -> String {
    let hash = file.hash.clone().unwrap_or_default();
    let text = |o: &Option<String>| o.clone().unwrap_or_default();
    let mut attributes = format!(
        "{},{},{},{},{},{},{},{:?},{}",
        file.kind,
        text(&file.mtime),
        text(&file.ctime),
        file.device,
        file.links.map(|l| l.to_string()).unwrap_or_default(),
        text(&file.target_path),
        text(&hash.blake3),
        file.xattrs,
        text(&file.error),
    );
    // A document without flags has the checksum that it had before flags were known.
    if !file.flags.is_empty() {
        attributes.push(',');
        attributes.push_str(&file.flags.join(" "));
    }
    let seconds = text(&file.mtime);
    let joined = [
        file.size.map(|s| s.to_string()).unwrap_or_default(),
        file.path_hex.clone().unwrap_or_else(|| file.path.clone()),
        file.mode.clone(),
        attributes,
        file.uid.clone(),
        file.gid.clone(),
        text(&file.owner),
        text(&file.group),
        seconds.split('.').next().unwrap_or_default().to_owned(),
        file.inode.clone(),
        text(&hash.md5),
        text(&hash.sha1),
        text(&hash.sha256),
    ]
    .join(":");
    hex::encode(Sha1::digest(joined.as_bytes()))
}

/// `checksum.hash.sha1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ChecksumBody {
    pub hash: ChecksumHash,
}

/// The digest of a document's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ChecksumHash {
    /// Lower-case hex.
    pub sha1: String,
}

/// `state.*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct StateBody {
    /// Version of the item, which grows with every change of it.
    pub document_version: u64,
    /// Time at which the agent observed this state, RFC 3339.
    pub modified_at: String,
}

/// A document of the dataset `fim-files`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct FileDocument {
    pub file: FileBody,
    /// Digest of the state.
    pub checksum: ChecksumBody,
    /// Version and time.
    pub state: StateBody,
}

impl FileDocument {
    /// Builds the document from the queue's observation. `seen` is the item's version, which by
    /// construction is in microseconds since the epoch (hybrid logical clock).
    pub fn new(key: &ItemKey, o: &Observation, seen: u64, names: &dyn Names) -> Self {
        let file = FileBody::new(key, o, names);
        let sha1 = checksum(&file);
        Self {
            file,
            checksum: ChecksumBody { hash: ChecksumHash { sha1 } },
            state: StateBody { document_version: seen, modified_at: timestamp::micros(seen) },
        }
    }
}
