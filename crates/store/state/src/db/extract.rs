//! The values of the columns, read from a body once when it is applied.

use std::borrow::Cow;
use std::fmt;

use model::timestamp::parse_micros;
use model::{CauseKind, CoverageKind, GAP_ID_BYTES_MAX};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use crate::limits::CAUSE_TEXT_BYTES_MAX;
use crate::query::EventKind;

/// A string, borrowed where the JSON has no escapes.
#[derive(Deserialize, Default)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Text<'_> {
    fn as_str(&self) -> &str {
        &self.0
    }
}

/// A whole number, or a string that holds one.
struct Integer(Option<i64>);

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct AnyValue;
        impl Visitor<'_> for AnyValue {
            type Value = Integer;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Integer, E> {
                Ok(Integer(text.parse::<u64>().ok().map(|n| n as i64)))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Integer, E> {
                Ok(Integer(Some(number as i64)))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Integer, E> {
                Ok(Integer(Some(number)))
            }
        }
        from.deserialize_any(AnyValue)
    }
}

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
pub(crate) struct Columns<'a> {
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

fn text<'b>(text: Option<&'b Text<'_>>) -> Option<&'b str> {
    text.map(Text::as_str)
}

/// Returns a text of a cause, unless it is empty or too long for an index.
fn short<'b>(text: &'b Text<'_>) -> Option<&'b str> {
    Some(text.as_str()).filter(|text| (1..=CAUSE_TEXT_BYTES_MAX).contains(&text.len()))
}

fn integer(number: Option<&Integer>) -> Option<i64> {
    number.and_then(|n| n.0)
}

macro_rules! columns {
    ($($name:ident: $field:ident;)*) => {
        $(pub(crate) fn $name(&self) -> Option<&str> { text(self.file.$field.as_ref()) })*
    };
}

impl<'a> Columns<'a> {
    /// Reads a body; `None` when it is not a JSON object in UTF-8. Fields of an unexpected shape
    /// leave the file columns empty and do not invalidate the document.
    pub(crate) fn read(body: &'a [u8]) -> Option<Self> {
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

    pub(crate) fn checksum(&self) -> &str {
        self.checksum.hash.sha1.as_str()
    }

    /// Returns a file's path, or the key of another item; empty when the document has neither.
    pub(crate) fn path(&self) -> &str {
        text(self.file.path.as_ref().or(self.holdfast.item.as_ref())).unwrap_or_default()
    }

    pub(crate) fn size(&self) -> Option<i64> {
        integer(self.file.size.as_ref())
    }

    pub(crate) fn uid(&self) -> Option<i64> {
        integer(self.file.uid.as_ref())
    }

    pub(crate) fn gid(&self) -> Option<i64> {
        integer(self.file.gid.as_ref())
    }

    pub(crate) fn inode(&self) -> Option<i64> {
        integer(self.file.inode.as_ref())
    }

    pub(crate) fn mtime_us(&self) -> Option<i64> {
        text(self.file.mtime.as_ref()).and_then(parse_micros).map(|us| us as i64)
    }

    /// Returns MD5, SHA-1, SHA-256 and BLAKE3.
    pub(crate) fn hashes(&self) -> [Option<&str>; 4] {
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

#[derive(Deserialize, Default)]
#[serde(default)]
struct Meta<'a> {
    #[serde(borrow)]
    action: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct FileField<'a> {
    #[serde(borrow)]
    path: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Holdfast<'a> {
    #[serde(borrow)]
    changed_fields: Vec<Text<'a>>,
    #[serde(borrow)]
    cause: Option<CauseField<'a>>,
    #[serde(borrow)]
    coverage: Option<GapField<'a>>,
    #[serde(borrow)]
    item: Option<Text<'a>>,
    #[serde(borrow)]
    previous: Option<FileField<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CauseField<'a> {
    kind: CauseKind,
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    package: Option<NameField<'a>>,
}

/// A user, a process or a package.
#[derive(Deserialize, Default)]
#[serde(default)]
struct NameField<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct GapField<'a> {
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    path: Text<'a>,
    #[serde(borrow)]
    gap: Text<'a>,
    open: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct EventColumns<'a> {
    #[serde(borrow, rename = "@timestamp")]
    timestamp: Text<'a>,
    #[serde(borrow)]
    event: Meta<'a>,
    #[serde(borrow)]
    file: Option<FileField<'a>>,
    #[serde(borrow)]
    user: Option<NameField<'a>>,
    #[serde(borrow)]
    process: Option<NameField<'a>>,
    #[serde(borrow)]
    holdfast: Holdfast<'a>,
}

impl<'a> EventColumns<'a> {
    /// Reads a body; `None` when it is not a JSON object of an event's shape.
    pub(crate) fn read(body: &'a [u8]) -> Option<Self> {
        let body = std::str::from_utf8(body).ok()?;
        if !body.trim_ascii_start().starts_with('{') {
            return None;
        }
        serde_json::from_str(body).ok()
    }

    /// Returns the time at which it was found, microseconds since the epoch.
    pub(crate) fn found_us(&self) -> Option<u64> {
        parse_micros(self.timestamp.as_str())
    }

    pub(crate) fn kind(&self) -> EventKind {
        EventKind::of_action(self.event.action.as_str())
    }

    pub(crate) fn path(&self) -> &str {
        match (&self.file, &self.holdfast.coverage) {
            (Some(file), _) => file.path.as_str(),
            (None, Some(gap)) => gap.path.as_str(),
            (None, None) => text(self.holdfast.item.as_ref()).unwrap_or_default(),
        }
    }

    /// Returns the former path of what was moved.
    pub(crate) fn moved_from(&self) -> Option<&str> {
        let previous = self.holdfast.previous.as_ref()?;
        (self.kind() == EventKind::Moved).then(|| previous.path.as_str())
    }

    /// Returns the name of the user that made the change, or the number of one without a name.
    pub(crate) fn user(&self) -> Option<&str> {
        let user = self.user.as_ref()?;
        let name = user.name.as_str();
        Some(if name.is_empty() { user.id.as_str() } else { name }).filter(|name| !name.is_empty())
    }

    /// Returns the name of the executable that made the change.
    pub(crate) fn process(&self) -> Option<&str> {
        let process = self.process.as_ref()?;
        Some(process.name.as_str()).filter(|name| !name.is_empty())
    }

    /// Returns the kind of the cause.
    pub(crate) fn cause(&self) -> CauseKind {
        self.holdfast.cause.as_ref().map(|cause| cause.kind).unwrap_or_default()
    }

    /// Returns the id that the changes of one transaction or run share.
    pub(crate) fn cause_id(&self) -> Option<&str> {
        self.holdfast.cause.as_ref().and_then(|cause| short(&cause.id))
    }

    /// Returns the name of the package that accounts for the change.
    pub(crate) fn cause_package(&self) -> Option<&str> {
        self.holdfast.cause.as_ref()?.package.as_ref().and_then(|package| short(&package.name))
    }

    /// Returns true for a whole gap in which the agent was not running or not heard.
    pub(crate) fn is_absence(&self) -> bool {
        [CoverageKind::AgentDown, CoverageKind::AgentSilent, CoverageKind::AgentStopped]
            .iter()
            .any(|absence| self.gap_kind() == Some(absence.name()))
    }

    /// Returns true if the agent has lost events, or has forgotten which gaps it reported.
    pub(crate) fn has_lost_gaps(&self) -> bool {
        [CoverageKind::DatabaseRebuilt, CoverageKind::EventsDropped]
            .iter()
            .any(|lost| self.gap_kind() == Some(lost.name()))
    }

    fn gap_kind(&self) -> Option<&str> {
        self.holdfast.coverage.as_ref().map(|gap| gap.kind.as_str())
    }

    /// Returns the agent's id of the gap of which the event is an end, and true if it is the start;
    /// `None` if the event reports a gap as a whole.
    pub(crate) fn lasting_gap(&self) -> Option<(&str, bool)> {
        let gap = self.holdfast.coverage.as_ref()?;
        let id = gap.gap.as_str();
        (1..=GAP_ID_BYTES_MAX).contains(&id.len()).then_some((id, gap.open))
    }

    /// Returns true if the event opens a gap.
    pub(crate) fn opens_gap(&self) -> bool {
        self.event.action.as_str() == EventKind::OpenGap.name()
    }

    /// Returns the names of the fields that differ, separated by commas (no field's name has one).
    pub(crate) fn changed(&self) -> String {
        let names: Vec<&str> = self.holdfast.changed_fields.iter().map(Text::as_str).collect();
        names.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{FileDocument, ItemKey, Kind, Observation};

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

    #[test]
    fn event_columns_are_extracted() {
        let body = br#"{"@timestamp":"1970-01-01T00:00:01Z","event":{"action":"modified"},
            "file":{"path":"/a"},"holdfast":{"changed_fields":["mode","uid"]}}"#;
        let event = EventColumns::read(body).unwrap();
        assert_eq!(event.found_us(), Some(1_000_000));
        assert_eq!((event.kind(), event.path()), (EventKind::Modified, "/a"));
        assert_eq!(event.changed(), "mode,uid");
    }

    #[test]
    fn cause_columns_are_extracted_unless_they_are_too_long() {
        let cause = |id: &str| {
            format!(
                r#"{{"event":{{"action":"modified"}},"holdfast":{{"cause":{{"kind":"package",
                "id":"{id}","package":{{"name":"bash","version":"5.2"}}}}}}}}"#
            )
        };
        let body = cause("apt-1");
        let event = EventColumns::read(body.as_bytes()).unwrap();
        assert_eq!(event.cause(), CauseKind::Package);
        assert_eq!((event.cause_id(), event.cause_package()), (Some("apt-1"), Some("bash")));
        for id in ["", &"x".repeat(CAUSE_TEXT_BYTES_MAX + 1)] {
            let body = cause(id);
            assert_eq!(EventColumns::read(body.as_bytes()).unwrap().cause_id(), None, "{id}");
        }
        let body =
            br#"{"event":{"action":"modified"},"holdfast":{"cause":{"kind":"of_tomorrow"}}}"#;
        assert_eq!(EventColumns::read(body).unwrap().cause(), CauseKind::Unexplained);
    }
}
