//! Differences between observations.

use model::{Field, Kind, Observation, ObserveError};

fn file() -> Observation {
    let mut o = Observation::empty(Kind::File);
    o.hashes.sha256 = Some([1; 32]);
    o.size = 3;
    o
}

#[test]
fn difference_names_each_changed_attribute() {
    let before = file();
    let mut after = before.clone();
    after.mode = 0o600;
    after.ctime_ns = 5;
    let names: Vec<_> = before.difference(&after).iter().map(Field::name).collect();
    assert_eq!(names, ["mode", "ctime"]);
    assert!(before.difference(&before).is_empty());
}

#[test]
fn newly_enabled_hash_is_not_a_change() {
    let before = file();
    let mut after = before.clone();
    after.hashes.blake3 = Some([9; 32]);
    assert!(before.difference(&after).is_empty());
    after.hashes.sha256 = Some([2; 32]);
    assert!(before.difference(&after).contains(Field::Hash));
}

#[test]
fn directory_ignores_stat_changes_from_entries() {
    let before = Observation::empty(Kind::Directory);
    let mut after = before.clone();
    after.mtime_ns = 1;
    after.ctime_ns = 1;
    after.links = 7;
    after.size = 8192;
    assert!(before.difference(&after).is_empty());
}

#[test]
fn same_stat_is_false_for_racy_or_unread_entries() {
    let now = file();
    assert!(file().same_stat(&now));
    let mut racy = file();
    racy.racy = true;
    assert!(!racy.same_stat(&now));
    let mut unread = file();
    unread.error = Some(ObserveError::Os(13));
    assert!(!unread.same_stat(&now));
}
