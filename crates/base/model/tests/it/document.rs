//! Documents of files.

use model::document::NoNames;
use model::{FileBody, FileDocument, ItemKey, Kind, Observation, Xattr};

#[test]
fn file_document_has_ecs_shape() {
    let mut o = Observation::empty(Kind::File);
    o.mode = 0o4755;
    o.size = 12;
    o.mtime_ns = 1_700_000_000_000_000_001;
    o.ctime_ns = o.mtime_ns;
    o.hashes.sha256 = Some([0xab; 32]);
    let key = ItemKey::of_path(b"/usr/bin/su");
    let doc = FileDocument::new(&key, &o, 1_763_751_122_000_001, &NoNames);
    let json = serde_json::to_value(&doc).unwrap();
    assert_eq!(json["file"]["path"], "/usr/bin/su");
    assert_eq!(json["file"]["mode"], "4755");
    assert_eq!(json["file"]["mtime"], "2023-11-14T22:13:20.000000001Z");
    assert_eq!(json["file"]["hash"]["sha256"], "ab".repeat(32));
    assert_eq!(json["state"]["document_version"], 1_763_751_122_000_001u64);
    assert_eq!(json["checksum"]["hash"]["sha1"].as_str().unwrap().len(), 40);
    assert_eq!(serde_json::from_value::<FileDocument>(json).unwrap(), doc);
}

#[test]
fn every_attribute_changes_the_file_checksum() {
    let base = Observation::empty(Kind::File);
    let key = ItemKey::of_path(b"/a");
    let of = |o: &Observation| FileDocument::new(&key, o, 1, &NoNames).checksum;
    let edits: [fn(&mut Observation); 9] = [
        |o| o.mode = 1,
        |o| o.uid = 1,
        |o| o.size = 1,
        |o| o.mtime_ns = 1,
        |o| o.ctime_ns = 1,
        |o| o.links = 2,
        |o| o.hashes.blake3 = Some([1; 32]),
        |o| o.target = Some(b"x".to_vec()),
        |o| o.xattrs = vec![Xattr { name: b"user.a".to_vec(), value: vec![0] }],
    ];
    for edit in edits {
        let mut o = base.clone();
        edit(&mut o);
        assert_ne!(of(&o), of(&base));
    }
}

#[test]
fn non_utf8_path_is_kept_in_hex() {
    let key = ItemKey::new(&b"/tmp"[..], &b"a\xff"[..]);
    let file = FileBody::new(&key, &Observation::empty(Kind::File), &NoNames);
    assert_eq!(file.path, "/tmp/a\\xff");
    assert_eq!(file.path_hex.as_deref(), Some("2f746d702f61ff"));
}
