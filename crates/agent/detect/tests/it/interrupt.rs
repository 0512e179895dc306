//! Checks run in the middle of a scan, at every point at which a scan asks for them. No change is
//! reported twice, none is missed, and none has a wrong state before.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::common::{Bench, Folder, check, independent_walk, path_of, stored_items};
use detect::{Cancel, CheckReport, DueChecks, Interrupt, Progress, ScanPorts};
use model::{ChangeKind, Check, Depth, NoHandles};

/// Changes files at one of the points at which the scan asks, and returns their checks.
struct ComparedEntry {
    point: usize,
    asked: usize,
    root: PathBuf,
    /// True if another check runs in the middle of this one.
    nested: bool,
    reports: Vec<CheckReport>,
}

/// The names that are changed in the middle of the scan. Some were changed before it, too.
const WRITTEN: [&str; 3] = ["a/0", "b/1", "c/2"];

impl ComparedEntry {
    fn edit(&self) -> Vec<Check> {
        let mut names = Vec::new();
        for name in WRITTEN {
            fs::write(self.root.join(name), "in the middle").unwrap();
            names.push(name.to_owned());
        }
        fs::remove_file(self.root.join("b/gone")).unwrap();
        fs::create_dir(self.root.join("c/new")).unwrap();
        fs::write(self.root.join("c/new/file"), "x").unwrap();
        fs::rename(self.root.join("a/3"), self.root.join("d/new")).unwrap();
        names.extend(["b/gone", "c/new", "a/3", "d/new"].map(String::from));
        names.iter().map(|name| check(&self.root.join(name), Depth::Name)).collect()
    }
}

impl Interrupt for ComparedEntry {
    fn due(&mut self) -> DueChecks {
        self.asked += 1;
        if self.asked == self.point {
            return DueChecks { checks: self.edit(), interruptible: self.nested };
        }
        if self.nested && self.asked == self.point + 1 {
            let name = self.root.join("d/nested");
            fs::write(&name, "in the middle of a check").unwrap();
            return vec![check(&name, Depth::Name)].into();
        }
        DueChecks::default()
    }

    fn checked(&mut self, report: CheckReport) {
        self.reports.push(report);
    }
}

fn folder() -> Folder {
    let f = Folder::new();
    for directory in ["a", "b", "c", "d"] {
        for name in 0..8 {
            f.write(&format!("{directory}/{name}"), format!("first {directory}{name}"));
        }
    }
    f.write("b/gone", "x");
    f
}

/// Scans with a change at the given point. Returns false if the scan has fewer points.
fn scan_with_change_at(point: usize, nested: bool) -> bool {
    let f = folder();
    let b = Bench::of(&f.path);
    b.scan();
    let first = stored_items(&b.store);
    // Found by the scan itself, before or after the check.
    for name in ["a/0", "b/7", "d/5"] {
        f.write(name, "before the scan");
    }
    let (root, reports) = (f.path.clone(), Vec::new());
    let mut at = ComparedEntry { point, asked: 0, root, nested, reports };
    let (mut baseline, mut sink) = (b.store.clone(), b.store.clone());
    let mut ports = ScanPorts {
        baseline: &mut baseline,
        sink: &mut sink,
        handles: &mut NoHandles,
        interrupt: &mut at,
    };
    b.scanner.scan_with(&mut ports, &Progress::new(), &Cancel::new()).unwrap();
    if at.reports.is_empty() {
        return false;
    }
    // Entries that changed after the scan had passed and were not checked are found later.
    let unsettled = at.reports.iter().flat_map(|report| &report.unsettled);
    let unsettled = unsettled.map(path_of).collect::<Vec<_>>();
    b.check(unsettled.iter().map(PathBuf::as_path));
    b.scan();
    assert_eq!(stored_items(&b.store), independent_walk(&f.path), "at {point}");
    let mut states = first;
    let mut told: BTreeMap<PathBuf, u32> = BTreeMap::new();
    for change in b.store.changes() {
        let path = path_of(&change.key);
        let old = change.from.as_ref().map_or_else(|| path.clone(), path_of);
        let before = change.before.as_ref().map(|o| o.hashes.sha256.map(|h| h.to_vec()));
        let known = states.remove(&old);
        assert_eq!(before, known.map(|item| item.6), "before of {} at {point}", old.display());
        if let Some(after) = &change.after
            && change.kind != ChangeKind::Deleted
        {
            let content = after.hashes.sha256.map(|h| h.to_vec());
            states.insert(path.clone(), (after.kind, 0, 0, 0, 0, 0, content));
        }
        *told.entry(path).or_default() += 1;
    }
    // Written before the scan and in its middle: once or twice. Everything else: once.
    let twice = told.iter().filter(|(path, times)| **times > 1 && !path.ends_with("a/0"));
    assert_eq!(twice.count(), 0, "at {point}: {told:?}");
    let names = ["a/0", "b/7", "d/5", "b/1", "c/2", "b/gone", "c/new", "c/new/file"];
    // With another check in the middle the move of a/3 is perhaps a deletion and a creation.
    told.remove(&f.at("a/3"));
    let is_nested = told.contains_key(&f.at("d/nested"));
    for name in names.into_iter().chain(["d/new"]) {
        assert!(told.contains_key(&f.at(name)), "{name} at {point}: {told:?}");
    }
    assert_eq!(told.len(), 9 + usize::from(is_nested), "at {point}: {told:?}");
    true
}

#[test]
fn check_at_each_point_of_a_scan_reports_each_change_once() {
    let points = (1..1000).take_while(|point| scan_with_change_at(*point, false)).count();
    assert!((5..999).contains(&points), "the scan asked only {points} times");
}

#[test]
fn check_in_the_middle_of_another_reports_each_change_once() {
    let points = (1..1000).take_while(|point| scan_with_change_at(*point, true)).count();
    assert!((5..999).contains(&points), "the scan asked only {points} times");
}

/// Runs an edit once, as soon as the scan has read more than `read` bytes, and returns its checks.
struct OnceRead<'a> {
    progress: &'a Progress,
    read: u64,
    edit: Option<&'a dyn Fn() -> Vec<Check>>,
}

impl Interrupt for OnceRead<'_> {
    fn due(&mut self) -> DueChecks {
        let reached = self.progress.counts().bytes_hashed > self.read;
        let edit = if reached { self.edit.take() } else { None };
        edit.map(|edit| edit().into()).unwrap_or_default()
    }

    fn checked(&mut self, _report: CheckReport) {}
}

/// Runs an edit after the scan has read the new files `new/a` and `new/b`, and before it learns
/// their content: their reader is still busy with a large file. Returns the paths in the store.
fn paths_after_edit(edit: impl Fn(&Folder) -> Vec<Check>) -> (Folder, Vec<PathBuf>) {
    const SMALL: &str = "a few bytes";
    let f = folder();
    let b = Bench::of(&f.path);
    b.scan();
    fs::create_dir(f.at("new")).unwrap();
    f.write("new/a", SMALL);
    f.write("new/b", SMALL);
    fs::File::create(f.at("new/large")).unwrap().set_len(64 << 20).unwrap();
    let progress = Progress::new();
    let run = || edit(&f);
    // The bytes of the last file are counted before its reader has done with it.
    let read = 2 * SMALL.len() as u64;
    let mut once = OnceRead { progress: &progress, read, edit: Some(&run) };
    let (mut baseline, mut sink) = (b.store.clone(), b.store.clone());
    let mut ports = ScanPorts {
        baseline: &mut baseline,
        sink: &mut sink,
        handles: &mut NoHandles,
        interrupt: &mut once,
    };
    b.scanner.scan_with(&mut ports, &progress, &Cancel::new()).unwrap();
    assert!(once.edit.is_none(), "the scan did not ask while a reader was busy");
    let stored = b.store.0.lock().items.keys().map(path_of).collect();
    (f, stored)
}

#[test]
fn new_file_removed_before_its_content_is_known_is_not_stored() {
    let (f, stored) = paths_after_edit(|f| {
        fs::remove_file(f.at("new/a")).unwrap();
        vec![check(&f.at("new/a"), Depth::Name)]
    });
    assert!(!stored.contains(&f.at("new/a")), "{stored:#?}");
    assert!(stored.contains(&f.at("new/b")), "{stored:#?}");
}

#[test]
fn new_directory_renamed_before_its_files_are_known_moves_whole() {
    let (f, stored) = paths_after_edit(|f| {
        fs::rename(f.at("new"), f.at("renamed")).unwrap();
        vec![check(&f.at("new"), Depth::Name), check(&f.at("renamed"), Depth::Name)]
    });
    assert!(!stored.iter().any(|path| path.starts_with(f.at("new"))), "{stored:#?}");
    assert!(stored.contains(&f.at("renamed/b")), "{stored:#?}");
}

#[test]
fn first_scan_asks_for_no_checks() {
    let f = folder();
    let b = Bench::of(&f.path);
    let (root, nested) = (f.path.clone(), false);
    let mut at = ComparedEntry { point: 1, asked: 0, root, nested, reports: Vec::new() };
    let (mut baseline, mut sink) = (b.store.clone(), b.store.clone());
    let mut ports = ScanPorts {
        baseline: &mut baseline,
        sink: &mut sink,
        handles: &mut NoHandles,
        interrupt: &mut at,
    };
    b.scanner.scan_with(&mut ports, &Progress::new(), &Cancel::new()).unwrap();
    assert_eq!(at.asked, 0);
}
