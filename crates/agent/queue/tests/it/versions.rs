//! A database of format version 1, as written by the first release. Every later release must open
//! it and read its content. It was created with `HOLDFAST_BLESS=1` and must not change after a
//! release.

use std::fs;
use std::path::Path;

use crate::common::{START_US, apply, base, baseline, change, cycle, file, files, open};
use env::clock::ManualClock;
use model::{ChangeKind, ItemKey, Op};

#[test]
fn version_1_database_opens_with_its_content() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/agent-v1.db");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    let clock = ManualClock::at(START_US);
    if std::env::var("HOLDFAST_BLESS").is_ok() && !fixture.exists() {
        let (queue, _) = open(&path, &clock);
        apply(&queue, vec![base("/etc/a", 1), base("/etc/b", 2), base("/etc/sub/c", 3)]);
        cycle(&queue);
        let key = ItemKey::of_path(b"/etc/a");
        let change = Some(Box::new(change(&key, ChangeKind::Modified, 9)));
        apply(&queue, vec![Op::Put { key, observation: file(9), change }]);
        queue.meta_set("note", b"kept").unwrap();
        queue.close().unwrap();
        fs::copy(&path, &fixture).unwrap();
    }
    fs::copy(&fixture, &path).unwrap();
    let (queue, report) = open(&path, &clock);
    assert_eq!((report.created, report.unclean, report.rebuilt), (false, false, None));
    assert_eq!((report.items, report.events), (3, 1));
    assert_eq!(baseline(&queue, "/etc"), [("a".to_owned(), 9), ("b".to_owned(), 2)]);
    assert_eq!(queue.meta_get("note").unwrap().as_deref(), Some(&b"kept"[..]));
    let status = queue.status().unwrap();
    assert_eq!((status.datasets[0].name.as_str(), status.datasets[0].pending), (files().name(), 1));
}
