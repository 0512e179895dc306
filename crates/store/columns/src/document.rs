//! Columns of documents.

use std::borrow::Cow;

use model::timestamp::parse_micros;
use serde::Deserialize;

use crate::text::{Integer, Text, integer, text};

#[derive(Deserialize, Default)]
#[serde(default)]
struct Hashes<'a> {
    #[serde(borrow)]
    md5: Option<Text<'a>>,
    #[serde(borrow)]
    sha1: Option<Text<'a>>,
    #[serde(borrow)]
    sha256: Option<Text<'a>>,
    #[serde(borrow)]
    blake3: Option<Text<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct File<'a> {
    #[serde(borrow)]
    path: Option<Text<'a>>,
    #[serde(borrow)]
    directory: Option<Text<'a>>,
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow, rename = "type")]
    kind: Option<Text<'a>>,
    size: Option<Integer>,
    #[serde(borrow)]
    mode: Option<Text<'a>>,
    uid: Option<Integer>,
    gid: Option<Integer>,
    #[serde(borrow)]
    owner: Option<Text<'a>>,
    #[serde(borrow)]
    group: Option<Text<'a>>,
    #[serde(borrow)]
    mtime: Option<Text<'a>>,
    inode: Option<Integer>,
    #[serde(borrow)]
    hash: Option<Hashes<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ChecksumHash<'a> {
    #[serde(borrow)]
    sha1: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Checksum<'a> {
    #[serde(borrow)]
    hash: ChecksumHash<'a>,
}

/// The columns of a document.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct Columns<'a> {
    #[serde(borrow)]
    checksum: Checksum<'a>,
    #[serde(borrow)]
    file: File<'a>,
    #[serde(borrow)]
    holdfast: Item<'a>,
}

/// The key of an item that is not a file.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Item<'a> {
    #[serde(borrow)]
    item: Option<Text<'a>>,
}

macro_rules! columns {
    ($($name:ident: $field:ident;)*) => {
        $(pub fn $name(&self) -> Option<&str> { text(self.file.$field.as_ref()) })*
    };
}

impl<'a> Columns<'a> {
    /// Reads a body; `None` when it is not a JSON object in UTF-8. Fields of an unexpected shape
    /// leave the file columns empty and do not invalidate the document.
    pub fn read(body: &'a [u8]) -> Option<Self> {
        let body = std::str::from_utf8(body).ok()?;
        if !body.trim_ascii_start().starts_with('{') {
            return None;
        }
        if let Ok(columns) = serde_json::from_str(body) {
            return Some(columns);
        }
        let value: serde_json::Value = serde_json::from_str(body).ok()?;
        let at = |pointer: &str| {
            value.pointer(pointer).and_then(|v| v.as_str()).map(|s| Text(Cow::Owned(s.to_owned())))
        };
        Some(Self {
            checksum: Checksum {
                hash: ChecksumHash { sha1: at("/checksum/hash/sha1").unwrap_or_default() },
            },
            file: File { path: at("/file/path"), ..File::default() },
            holdfast: Item { item: at("/holdfast/item") },
        })
    }

    columns! {
        directory: directory;
        name: name;
        kind: kind;
        mode: mode;
        owner: owner;
        group: group;
    }

    pub fn checksum(&self) -> &str {
        self.checksum.hash.sha1.as_str()
    }

    /// Returns a file's path, or the key of another item; empty when the document has neither.
    pub fn path(&self) -> &str {
        text(self.file.path.as_ref().or(self.holdfast.item.as_ref())).unwrap_or_default()
    }

    pub fn size(&self) -> Option<i64> {
        integer(self.file.size.as_ref())
    }

    pub fn uid(&self) -> Option<i64> {
        integer(self.file.uid.as_ref())
    }

    pub fn gid(&self) -> Option<i64> {
        integer(self.file.gid.as_ref())
    }

    pub fn inode(&self) -> Option<i64> {
        integer(self.file.inode.as_ref())
    }

    pub fn mtime_us(&self) -> Option<i64> {
        text(self.file.mtime.as_ref()).and_then(parse_micros).map(|us| us as i64)
    }

    /// Returns MD5, SHA-1, SHA-256 and BLAKE3.
    pub fn hashes(&self) -> [Option<&str>; 4] {
        self.file.hash.as_ref().map_or([None; 4], |h| {
            [
                text(h.md5.as_ref()),
                text(h.sha1.as_ref()),
                text(h.sha256.as_ref()),
                text(h.blake3.as_ref()),
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use model::{FileDocument, ItemKey, Kind, Observation};

    use super::*;
    use crate::{EventColumns, EventKind};

    #[test]
    fn document_columns_match_body_fields() {
        let mut o = Observation::empty(Kind::File);
        o.size = 12;
        o.mode = 0o644;
        o.uid = 7;
        o.mtime_ns = 1_700_000_000_000_001_000;
        o.hashes.sha256 = Some([0xab; 32]);
        let key = ItemKey::of_path("/etc/a\"b".as_bytes());
        let doc = FileDocument::new(&key, &o, 5, &model::document::NoNames);
        let body = serde_json::to_vec(&doc).unwrap();
        let columns = Columns::read(&body).unwrap();
        assert_eq!(columns.path(), "/etc/a\"b");
        assert_eq!(columns.directory(), Some("/etc"));
        assert_eq!(columns.name(), Some("a\"b"));
        assert_eq!(columns.kind(), Some("file"));
        assert_eq!(columns.mode(), Some("0644"));
        assert_eq!((columns.size(), columns.uid(), columns.gid()), (Some(12), Some(7), Some(0)));
        assert_eq!(columns.mtime_us(), Some(1_700_000_000_000_001));
        assert_eq!(columns.hashes()[2], Some("ab".repeat(32).as_str()));
        assert_eq!(columns.checksum(), doc.checksum.hash.sha1);
    }

    #[test]
    fn document_body_must_be_a_json_object() {
        for bad in ["", "[]", "1", "\"a\"", "{", "{}x", "null", "{\"a\":1,}"] {
            assert!(Columns::read(bad.as_bytes()).is_none(), "{bad}");
        }
        assert!(Columns::read(b"{\"a\":\"\xff\"}").is_none());
        assert!(Columns::read(b" {} ").is_some());
    }

    #[test]
    fn unexpected_field_types_leave_columns_empty() {
        let body = br#"{"file":{"path":"/a","size":[1]},"checksum":{"hash":{"sha1":"x"}}}"#;
        let columns = Columns::read(body).unwrap();
        assert_eq!((columns.path(), columns.checksum()), ("/a", "x"));
        let body = br#"{"file":"text","checksum":7}"#;
        assert_eq!(Columns::read(body).unwrap().path(), "");
    }

    #[test]
    fn non_file_item_uses_its_key_as_path() {
        let package = model::PackageBody { name: "bash".into(), ..model::PackageBody::default() };
        let event = model::EventBody::of_package(None, Some(&package), 1).unwrap().to_json();
        let body = model::PackageDocument::new(package).to_json();
        assert_eq!(Columns::read(&body).unwrap().path(), "bash:");
        let columns = EventColumns::read(&event).unwrap();
        assert_eq!((columns.kind(), columns.path()), (EventKind::Created, "bash:"));
    }
}
