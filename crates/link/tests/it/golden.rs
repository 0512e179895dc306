//! The bytes on the wire do not change unnoticed, and other implementations of the schema read and
//! write the same.
//!
//! `tests/golden/session.hex` is the encoding of [`common::full`] by this crate; after an intended
//! change, rewrite it with `BLESS=1 cargo test -p holdfast-link golden::`.
//! `tests/golden/foreign.hex` is the same session written by the FlatBuffers library of another
//! language, with every default written out and another order of fields; it is never rewritten.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::common;
use link::{Limits, encode, verify};

fn golden(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "golden", name].iter().collect()
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (n, byte) in bytes.iter().enumerate() {
        let _ = write!(text, "{byte:02x}");
        if n % 32 == 31 || n + 1 == bytes.len() {
            text.push('\n');
        }
    }
    text
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|d| (d[0] * 16 + d[1]) as u8).collect()
}

#[test]
fn session_encoding_matches_golden_file() {
    let path = golden("session.hex");
    let bytes = encode(&common::full());
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, hex(&bytes)).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert_eq!(hex(&bytes), kept, "the wire changed; if that is meant: BLESS=1");
}

#[test]
fn foreign_flatbuffers_encoding_is_read() {
    let bytes = unhex(&std::fs::read_to_string(golden("foreign.hex")).unwrap());
    let session = verify(&bytes, &Limits::default()).unwrap().to_session();
    assert_eq!(session, common::full());
}

/// A reader that implements the FlatBuffers rules independently of this crate and of the library.
struct Raw<'a>(&'a [u8]);

impl Raw<'_> {
    fn u16(&self, at: usize) -> usize {
        usize::from(u16::from_le_bytes(self.0[at..at + 2].try_into().unwrap()))
    }

    fn u32(&self, at: usize) -> usize {
        u32::from_le_bytes(self.0[at..at + 4].try_into().unwrap()) as usize
    }

    fn follow(&self, at: usize) -> usize {
        at + self.u32(at)
    }

    /// Returns the offset of a table's field, if it is present: vtable slot `4 + 2 * number`.
    fn field(&self, table: usize, number: usize) -> Option<usize> {
        let back = i32::from_le_bytes(self.0[table..table + 4].try_into().unwrap());
        let vtable = usize::try_from(table as i64 - i64::from(back)).unwrap();
        let slot = 4 + 2 * number;
        let offset = if slot < self.u16(vtable) { self.u16(vtable + slot) } else { 0 };
        (offset != 0).then_some(table + offset)
    }

    fn bytes(&self, table: usize, number: usize) -> &[u8] {
        let at = self.follow(self.field(table, number).unwrap());
        &self.0[at + 4..at + 4 + self.u32(at)]
    }

    fn text(&self, table: usize, number: usize) -> &str {
        std::str::from_utf8(self.bytes(table, number)).unwrap()
    }

    fn number(&self, table: usize, number: usize) -> u64 {
        self.field(table, number)
            .map_or(0, |at| u64::from_le_bytes(self.0[at..at + 8].try_into().unwrap()))
    }

    fn byte(&self, table: usize, number: usize) -> u8 {
        self.field(table, number).map_or(0, |at| self.0[at])
    }

    fn tables(&self, table: usize, number: usize) -> Vec<usize> {
        let vector = self.follow(self.field(table, number).unwrap());
        (0..self.u32(vector)).map(|n| self.follow(vector + 4 + 4 * n)).collect()
    }

    fn strings(&self, table: usize, number: usize) -> Vec<&str> {
        let text = |at: usize| std::str::from_utf8(&self.0[at + 4..at + 4 + self.u32(at)]).unwrap();
        self.tables(table, number).into_iter().map(text).collect()
    }
}

#[test]
fn session_field_numbers_match_the_schema() {
    let bytes = encode(&common::full());
    let raw = Raw(&bytes);
    let message = raw.follow(0);
    assert_eq!(raw.byte(message, 0), 6, "Message.content_type is FullSession");
    let session = raw.follow(raw.field(message, 1).unwrap());
    assert_eq!(raw.byte(session, 1), 1, "FullSession.payload_type is SyncData");

    let start = raw.follow(raw.field(session, 0).unwrap());
    assert_eq!(raw.text(start, 0), "fim");
    assert_eq!(raw.field(start, 1), None, "ModuleDelta is the default");
    assert_eq!(raw.strings(start, 2), ["holdfast-events", "wazuh-states-fim-files"]);
    assert_eq!(raw.byte(start, 3), 2);
    let texts = [
        (4, "x86_64"),
        (5, "web-1"),
        (6, "Debian GNU/Linux"),
        (7, "debian"),
        (8, "linux"),
        (9, "12"),
        (10, "Holdfast v0.1.0"),
        (11, "web"),
        (12, "007"),
        (15, "holdfast"),
    ];
    for (number, text) in texts {
        assert_eq!(raw.text(start, number), text);
    }
    assert_eq!(raw.strings(start, 13), ["default", "web"]);
    assert_eq!(raw.number(start, 14), 0x0102_0304_0506_0708);
    assert_eq!(raw.number(start, 16), 99);

    let data = raw.follow(raw.field(session, 2).unwrap());
    let values = raw.tables(data, 0);
    assert_eq!(values.len(), 2);
    assert_eq!(raw.byte(values[0], 0), 0);
    assert_eq!(raw.text(values[0], 1), "b5cc3f676d00dd320d85ef41a5209fa0a99891ea");
    assert_eq!(raw.text(values[0], 2), "wazuh-states-fim-files");
    assert_eq!(raw.number(values[0], 3), 1_763_751_122_000_001);
    assert_eq!(raw.bytes(values[0], 4), br#"{"file":{"path":"/etc/passwd"}}"#);
    assert_eq!((raw.byte(values[1], 0), raw.text(values[1], 1)), (1, "gone"));
    let contexts = raw.tables(data, 1);
    assert_eq!(raw.text(contexts[0], 0), "os");
    assert_eq!(raw.text(contexts[0], 1), "wazuh-states-inventory-system");
    assert_eq!(raw.bytes(contexts[0], 2), br#"{"host":{}}"#);
}

#[test]
fn checksum_and_cleans_payload_types_match_the_schema() {
    let mut session = common::full();
    session.start.mode = link::Mode::ModuleCheck;
    session.payload = link::Payload::Checksum { index: "i".into(), checksum: "c".into() };
    let bytes = encode(&session);
    let raw = Raw(&bytes);
    let table = raw.follow(raw.field(raw.follow(0), 1).unwrap());
    assert_eq!(raw.byte(table, 1), 3);
    assert_eq!(raw.byte(raw.follow(raw.field(table, 0).unwrap()), 1), 1, "Start.mode");
    let payload = raw.follow(raw.field(table, 2).unwrap());
    assert_eq!((raw.text(payload, 0), raw.text(payload, 1)), ("i", "c"));

    session.payload = link::Payload::Cleans(vec!["x".into(), "y".into()]);
    let bytes = encode(&session);
    let raw = Raw(&bytes);
    let table = raw.follow(raw.field(raw.follow(0), 1).unwrap());
    assert_eq!(raw.byte(table, 1), 2);
    let items = raw.tables(raw.follow(raw.field(table, 2).unwrap()), 0);
    assert_eq!(items.iter().map(|t| raw.text(*t, 0)).collect::<Vec<_>>(), ["x", "y"]);
}
