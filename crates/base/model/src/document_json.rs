//! The document of a file as JSON, written straight from its observation: the same bytes as
//! [`FileDocument`] serialised, without the strings in between.
//!
//! Rare shapes (names that are not UTF-8, extended attributes) go through [`FileDocument`].

use sha1::block_api::compress;

use crate::ascii::{Day, Decimal, NANOS_BYTES, hex_to, is_plain, number, octal};
use crate::document::{FileDocument, Names};
use crate::observation::{Kind, Observation};
use crate::path::KeyRef;

/// `2026-11-21T18:52:02`, bytes.
const SECONDS_BYTES: usize = 19;
const NANOS_PER_SECOND: i64 = 1_000_000_000;
const MICROS_PER_SECOND: u64 = 1_000_000;

/// A writer of file documents; keep one for a whole session.
#[derive(Debug, Default)]
pub struct FileWriter {
    /// Input of the checksum.
    state: Vec<u8>,
    mtime: Option<[u8; NANOS_BYTES]>,
    ctime: Option<[u8; NANOS_BYTES]>,
    path: Vec<u8>,
    /// Days of `mtime`, `ctime` and `modified_at`.
    days: [Day; 3],
}

impl FileWriter {
    /// Appends the item's document as JSON to `into`; see [`FileDocument::new`] for the arguments.
    /// Returns `checksum.hash.sha1`, lower-case hex.
    pub fn write(
        &mut self,
        into: &mut Vec<u8>,
        key: KeyRef<'_>,
        o: &Observation,
        seen: u64,
        names: &dyn Names,
    ) -> [u8; 40] {
        self.path.clear();
        key.join(&mut self.path);
        let plain = is_plain(&self.path);
        let text = |bytes| plain || std::str::from_utf8(bytes).is_ok();
        let has_flags = !o.flags.unwrap_or_default().is_empty();
        let usual = o.target.is_none() && o.xattrs.is_empty() && !has_flags;
        if !usual || !text(key.directory) || !text(key.name) {
            return by_parts(into, key, o, seen, names);
        }
        self.times(o);
        let (owner, group) = (names.user(o.uid), names.group(o.gid));
        let owners = OwnerNames { owner: owner.as_deref(), group: group.as_deref() };
        let texts = Texts::new(o);
        self.file(into, PathParts { key, plain }, o, owners, &texts);
        let checksum = self.checksum(o, owners, &texts);
        into.extend_from_slice(b",\"checksum\":{\"hash\":{\"sha1\":\"");
        into.extend_from_slice(&checksum);
        into.extend_from_slice(b"\"}},\"state\":{\"document_version\":");
        number(into, seen);
        into.extend_from_slice(b",\"modified_at\":\"");
        let micros = (seen % MICROS_PER_SECOND) as u32;
        let [_, _, day] = &mut self.days;
        into.extend_from_slice(&day.micros((seen / MICROS_PER_SECOND) as i64, micros));
        into.extend_from_slice(b"\"}}");
        checksum
    }

    /// Returns the [`crate::ItemKey::document_id`] of a key.
    pub fn document_id(&mut self, key: KeyRef<'_>) -> [u8; 40] {
        self.path.clear();
        key.join(&mut self.path);
        sha1_hex(&mut self.path)
    }

    /// Formats the times of an entry; directories have none.
    fn times(&mut self, o: &Observation) {
        let stat = o.kind != Kind::Directory;
        let instant = |day: &mut Day, ns: i64| {
            let nanos = ns.rem_euclid(NANOS_PER_SECOND) as u32;
            day.nanos(ns.div_euclid(NANOS_PER_SECOND), nanos)
        };
        let [mtime, ctime, _] = &mut self.days;
        self.mtime = stat.then(|| instant(mtime, o.mtime_ns));
        self.ctime = stat.then(|| instant(ctime, o.ctime_ns));
    }

    /// Appends the `file` object. `self.path` and the times must be those of the entry.
    fn file(
        &self,
        into: &mut Vec<u8>,
        path: PathParts<'_>,
        o: &Observation,
        owners: OwnerNames<'_>,
        texts: &Texts,
    ) {
        let stat = o.kind != Kind::Directory;
        let names = [
            (&b"{\"file\":{\"path\":"[..], &self.path[..]),
            (b",\"name\":", path.key.name),
            (b",\"directory\":", path.key.directory),
        ];
        for (before, name) in names {
            into.extend_from_slice(before);
            if path.plain {
                quoted(into, name);
            } else {
                // `write` has checked that both parts are valid UTF-8, so the whole path is too.
                string(into, std::str::from_utf8(name).unwrap_or_default());
            }
        }
        into.extend_from_slice(b",\"type\":");
        quoted(into, o.kind.name().as_bytes());
        if stat {
            into.extend_from_slice(b",\"size\":");
            into.extend_from_slice(texts.size.text());
        }
        into.extend_from_slice(b",\"mode\":\"");
        octal(into, o.mode);
        into.extend_from_slice(b"\",\"uid\":\"");
        into.extend_from_slice(texts.uid.text());
        into.extend_from_slice(b"\",\"gid\":\"");
        into.extend_from_slice(texts.gid.text());
        into.push(b'"');
        for (field_name, value) in [("owner", owners.owner), ("group", owners.group)] {
            if let Some(value) = value {
                field(into, field_name, value);
            }
        }
        if let (Some(mtime), Some(ctime)) = (&self.mtime, &self.ctime) {
            into.extend_from_slice(b",\"mtime\":\"");
            into.extend_from_slice(mtime);
            into.extend_from_slice(b"\",\"ctime\":\"");
            into.extend_from_slice(ctime);
            into.push(b'"');
        }
        into.extend_from_slice(b",\"inode\":\"");
        into.extend_from_slice(texts.inode.text());
        into.extend_from_slice(b"\",\"device\":\"");
        into.extend_from_slice(texts.device.text());
        into.push(b'"');
        if stat && o.links != 1 {
            into.extend_from_slice(b",\"links\":");
            number(into, o.links);
        }
        hashes(into, texts);
        if let Some(error) = o.error {
            field(into, "error", &error.to_string());
        }
        into.push(b'}');
    }

    /// Returns the checksum that [`crate::document::checksum`] computes for the same file.
    /// `self.path` and the times must be those of the entry.
    fn checksum(&mut self, o: &Observation, owners: OwnerNames<'_>, texts: &Texts) -> [u8; 40] {
        let stat = o.kind != Kind::Directory;
        let s = &mut self.state;
        s.clear();
        if stat {
            s.extend_from_slice(texts.size.text());
        }
        s.push(b':');
        s.extend_from_slice(&self.path);
        s.push(b':');
        octal(s, o.mode);
        s.push(b':');
        s.extend_from_slice(o.kind.name().as_bytes());
        for time in [&self.mtime, &self.ctime] {
            s.push(b',');
            if let Some(time) = time {
                s.extend_from_slice(time);
            }
        }
        s.push(b',');
        s.extend_from_slice(texts.device.text());
        s.push(b',');
        if stat && o.links != 1 {
            number(s, o.links);
        }
        // The target and the extended attributes are empty here; see `write`.
        s.extend_from_slice(b",,");
        if let Some(digest) = &texts.blake3 {
            s.extend_from_slice(digest);
        }
        s.extend_from_slice(b",{},");
        if let Some(error) = o.error {
            s.extend_from_slice(error.to_string().as_bytes());
        }
        s.push(b':');
        s.extend_from_slice(texts.uid.text());
        s.push(b':');
        s.extend_from_slice(texts.gid.text());
        for who in [owners.owner, owners.group] {
            s.push(b':');
            if let Some(who) = who {
                s.extend_from_slice(who.as_bytes());
            }
        }
        s.push(b':');
        if let Some(seconds) = self.mtime.as_ref().and_then(|m| m.first_chunk::<SECONDS_BYTES>()) {
            s.extend_from_slice(seconds);
        }
        s.push(b':');
        s.extend_from_slice(texts.inode.text());
        texts.digests(s);
        sha1_hex(s)
    }
}

/// Returns the digest of a message, which is padded in place (FIPS 180-4, 5.1.1 and 5.3.1).
fn sha1_hex(message: &mut Vec<u8>) -> [u8; 40] {
    const LENGTH_BYTES: usize = size_of::<u64>();
    const BLOCK_BYTES: usize = 64;
    let bits = message.len() as u64 * 8;
    let padded = (message.len() + 1 + LENGTH_BYTES).next_multiple_of(BLOCK_BYTES);
    message.push(0x80);
    message.resize(padded - LENGTH_BYTES, 0);
    message.extend_from_slice(&bits.to_be_bytes());
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    compress(&mut state, message.as_chunks().0);
    let mut text = [0; 40];
    hex_to(&mut text, state.map(u32::to_be_bytes).as_flattened());
    text
}

/// Appends the document of a rare shape, by way of [`FileDocument`].
fn by_parts(
    into: &mut Vec<u8>,
    key: KeyRef<'_>,
    o: &Observation,
    seen: u64,
    names: &dyn Names,
) -> [u8; 40] {
    let document = FileDocument::new(&key.to_owned(), o, seen, names);
    // A struct of strings and numbers always serialises.
    let _ = serde_json::to_writer(into, &document);
    document.checksum.hash.sha1.as_bytes().try_into().unwrap_or([b'0'; 40])
}

/// The path of a file.
#[derive(Clone, Copy)]
struct PathParts<'a> {
    key: KeyRef<'a>,
    /// True if no character of it is escaped in JSON.
    plain: bool,
}

/// The names of a file's owner and group, if the host knows them.
#[derive(Clone, Copy)]
struct OwnerNames<'a> {
    owner: Option<&'a str>,
    group: Option<&'a str>,
}

/// The texts of an observation that occur both in its document and in the input of the checksum:
/// numbers, and digests in lower-case hex.
struct Texts {
    size: Decimal,
    uid: Decimal,
    gid: Decimal,
    inode: Decimal,
    device: Decimal,
    md5: Option<[u8; 32]>,
    sha1: Option<[u8; 40]>,
    sha256: Option<[u8; 64]>,
    blake3: Option<[u8; 64]>,
}

impl Texts {
    fn new(o: &Observation) -> Self {
        fn hex<const N: usize>(digest: &[u8]) -> [u8; N] {
            let mut text = [0; N];
            hex_to(&mut text, digest);
            text
        }
        Self {
            size: Decimal::new(o.size),
            uid: Decimal::new(u64::from(o.uid)),
            gid: Decimal::new(u64::from(o.gid)),
            inode: Decimal::new(o.inode),
            device: Decimal::new(o.device),
            md5: o.hashes.md5.as_ref().map(|digest| hex(digest)),
            sha1: o.hashes.sha1.as_ref().map(|digest| hex(digest)),
            sha256: o.hashes.sha256.as_ref().map(|digest| hex(digest)),
            blake3: o.hashes.blake3.as_ref().map(|digest| hex(digest)),
        }
    }
}

impl Texts {
    /// Appends MD5, SHA-1 and SHA-256, with a colon before each.
    fn digests(&self, into: &mut Vec<u8>) {
        into.push(b':');
        if let Some(digest) = &self.md5 {
            into.extend_from_slice(digest);
        }
        into.push(b':');
        if let Some(digest) = &self.sha1 {
            into.extend_from_slice(digest);
        }
        into.push(b':');
        if let Some(digest) = &self.sha256 {
            into.extend_from_slice(digest);
        }
    }
}

/// Returns the text of a digest; empty if there is none.
fn text<const N: usize>(digest: Option<&[u8; N]>) -> &[u8] {
    digest.map_or(&[], |digest| &digest[..])
}

/// Appends the `hash` object if there is a digest.
fn hashes(into: &mut Vec<u8>, texts: &Texts) {
    let all = [
        (&b"\"md5\":"[..], text(texts.md5.as_ref())),
        (b"\"sha1\":", text(texts.sha1.as_ref())),
        (b"\"sha256\":", text(texts.sha256.as_ref())),
        (b"\"blake3\":", text(texts.blake3.as_ref())),
    ];
    let mut open = false;
    for (name, digest) in all {
        if digest.is_empty() {
            continue;
        }
        into.extend_from_slice(if open { b"," } else { b",\"hash\":{" });
        open = true;
        into.extend_from_slice(name);
        quoted(into, digest);
    }
    if open {
        into.push(b'}');
    }
}

fn field(into: &mut Vec<u8>, name: &str, value: &str) {
    into.extend_from_slice(b",\"");
    into.extend_from_slice(name.as_bytes());
    into.extend_from_slice(b"\":");
    string(into, value);
}

fn string(into: &mut Vec<u8>, text: &str) {
    if is_plain(text.as_bytes()) {
        quoted(into, text.as_bytes());
    } else {
        // A string always serialises.
        let _ = serde_json::to_writer(into, text);
    }
}

/// Appends a text that needs no escape, in quotation marks.
#[inline]
fn quoted(into: &mut Vec<u8>, text: &[u8]) {
    into.push(b'"');
    into.extend_from_slice(text);
    into.push(b'"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ItemKey;
    use crate::document::NoNames;
    use crate::observation::tests::any_observation;

    struct Everybody;

    impl Names for Everybody {
        fn user(&self, uid: u32) -> Option<String> {
            Some(format!("user \"{uid}\""))
        }

        fn group(&self, gid: u32) -> Option<String> {
            gid.is_multiple_of(2).then(|| "wheel".into())
        }
    }

    fn same(key: &ItemKey, o: &Observation, seen: u64, names: &dyn Names) {
        let document = FileDocument::new(key, o, seen, names);
        let mut written = Vec::new();
        let mut writer = FileWriter::default();
        assert_eq!(writer.document_id(key.borrowed()), key.document_id().as_bytes());
        let checksum = writer.write(&mut written, key.borrowed(), o, seen, names);
        assert_eq!(String::from_utf8(written).unwrap(), serde_json::to_string(&document).unwrap());
        assert_eq!(checksum, document.checksum.hash.sha1.as_bytes());
    }

    proptest! {
        #[test]
        fn file_writer_matches_serde_output(
            o in any_observation(),
            bare in any::<bool>(),
            seen in 0..1u64 << 62,
            directory in "/[a-z\\\\\"\u{1}é/]{0,12}",
            name in prop::collection::vec(any::<u8>(), 0..6),
            text in "[a-z ü]{0,6}",
        ) {
            let mut o = o;
            if bare {
                o.xattrs.clear();
                o.flags = o.flags.filter(|flags| flags.is_empty());
                o.target = None;
            }
            for name in [name, text.into_bytes()] {
                let key = ItemKey::new(directory.clone().into_bytes(), name);
                same(&key, &o, seen, &NoNames);
                same(&key, &o, seen, &Everybody);
            }
        }
    }

    #[test]
    fn file_writer_matches_serde_for_extreme_times() {
        let mut o = Observation::empty(Kind::File);
        for ns in [0, -1, i64::MIN, i64::MAX, 1_700_000_000_000_000_001] {
            (o.mtime_ns, o.ctime_ns) = (ns, ns);
            same(&ItemKey::of_path(b"/a"), &o, 1_763_751_122_000_001, &NoNames);
        }
    }
}
