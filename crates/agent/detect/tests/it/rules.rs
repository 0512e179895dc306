//! Rules that include and exclude entries, and rules that are rejected.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{Bench, Folder, path_of};
use detect::{Algorithm, Rules, ScanOptions, Scanner, SystemNames, Watch};
use env::clock::SystemClock;
use model::{CoverageKind, Names as _};

#[derive(serde::Deserialize)]
struct Config {
    watch: Rules,
}

fn parse(text: &str) -> Rules {
    toml::from_str::<Config>(text).unwrap().watch
}

#[test]
fn watch_section_is_parsed_with_defaults() {
    let rules = parse(
        r#"
        [[watch]]
        path = "/etc"
        [[watch]]
        path = "/srv"
        max_depth = 3
        ignore = ["*.tmp", "!keep.tmp"]
        restrict = ["*.conf"]
        hash_bytes_max = 1048576
        hashes = ["sha256", "blake3"]
        attributes = ["hash", "target_path"]
        xattrs = false
        follow_symlinks = true
        one_file_system = true
        accept_device = true
        rehash_days = 0
        tags = ["pci"]
        "#,
    );
    rules.validate().unwrap();
    assert_eq!(rules.0[0], Watch::new("/etc"));
    assert_eq!(rules.0[1].hashes, [Algorithm::Sha256, Algorithm::Blake3]);
    let text = toml::to_string(&rules.0[0]).unwrap();
    assert_eq!(toml::from_str::<Watch>(&text).unwrap(), rules.0[0]);
}

#[test]
fn unknown_watch_key_is_rejected() {
    let error = toml::from_str::<Watch>("path = \"/etc\"\nmax_dept = 1").unwrap_err();
    assert!(error.to_string().contains("max_dept"), "{error}");
}

#[test]
fn rules_error_names_key_and_remedy() {
    let refused = |change: fn(&mut Watch)| {
        let mut watch = Watch::new("/etc");
        change(&mut watch);
        Rules(vec![Watch::new("/srv"), watch]).validate().unwrap_err().to_string()
    };
    let relative = refused(|w| w.path = "etc".into());
    assert_eq!(relative, "watch[1].path: \"etc\" is not absolute: begin it with /");
    let parent = refused(|w| w.path = "/etc/../x".into());
    assert!(parent.starts_with("watch[1].path: /etc/../x contains .."), "{parent}");
    let twice = refused(|w| w.path = "/srv/".into());
    assert!(twice.contains("watched by watch[0] already"), "{twice}");
    let pattern = refused(|w| w.ignore = vec!["a".into(), "[z-a]".into()]);
    assert!(
        pattern.starts_with("watch[1].ignore: \"[z-a]\" is not a gitignore pattern"),
        "{pattern}"
    );
    let unclosed = refused(|w| w.ignore = vec!["[a".into()]);
    assert!(
        unclosed.starts_with("watch[1].ignore: \"[a\" is not a gitignore pattern"),
        "{unclosed}"
    );
    assert!(refused(|w| w.hash_bytes_max = 0).contains("hashes = []"));
    assert!(refused(|w| w.max_depth = Some(1_000_000)).contains("leave it out"));
    assert!(refused(|w| w.rehash_days = 100_000).contains("0 switches it off"));
    let clock = Arc::new(SystemClock::new());
    assert!(Scanner::new(Rules::of_paths(["x"]), ScanOptions::default(), clock).is_err());
}

#[test]
fn default_rules_are_optional_and_name_what_starts_programs() {
    let rules = Rules::default_system();
    rules.validate().unwrap();
    assert!(rules.0.iter().all(|watch| watch.optional));
    for path in ["/etc", "/root/.ssh", "/usr/local/bin", "/var/spool/cron"] {
        assert!(rules.0.iter().any(|watch| watch.path == Path::new(path)), "{path}");
    }
}

fn paths(b: &Bench, below: &Path) -> Vec<String> {
    let kept = b.store.0.lock();
    let relative = |p: PathBuf| p.strip_prefix(below).map(|p| p.display().to_string()).ok();
    kept.items.keys().filter_map(|k| relative(path_of(k))).filter(|p| !p.is_empty()).collect()
}

#[test]
fn patterns_filter_paths_and_new_patterns_report_no_change() {
    let f = Folder::new();
    for name in ["a.conf", "a.tmp", "d/b.conf", "d/b.txt", "cache/x.conf"] {
        f.write(name, "1");
    }
    let b = Bench::of(&f.path);
    b.scan();
    assert_eq!(b.store.len(), 8);
    let mut watch = Watch::new(&f.path);
    watch.ignore = vec!["*.tmp".into(), "cache/".into()];
    watch.restrict = vec!["*.conf".into()];
    let b = b.again(Rules(vec![watch]));
    let report = b.scan();
    assert_eq!(paths(&b, &f.path), ["a.conf", "d", "d/b.conf"]);
    assert_eq!((report.counts.forgotten, report.counts.changes()), (4, 0));
    assert_eq!(report.counts.ignored, 3);
    fs::remove_file(f.at("a.tmp")).unwrap();
    assert_eq!(b.scan().counts.changes(), 0);
}

#[test]
fn depth_is_counted_in_levels_below_the_path() {
    let f = Folder::new();
    f.write("a", "1");
    f.write("d/b", "1");
    f.write("d/e/c", "1");
    let at_depth = |depth: Option<u32>, b: &Bench| {
        let mut watch = Watch::new(&f.path);
        watch.max_depth = depth;
        let b = b.again(Rules(vec![watch]));
        let report = b.scan();
        (paths(&b, &f.path), report.counts.changes(), report.counts.forgotten)
    };
    let own = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    let b = Bench::of(&f.path);
    assert_eq!(at_depth(None, &b).0.len(), 5);
    assert_eq!(at_depth(Some(2), &b), (own(&["a", "d", "d/b", "d/e"]), 0, 1));
    assert_eq!(at_depth(Some(1), &b), (own(&["a", "d"]), 0, 2));
    assert_eq!(at_depth(Some(0), &b), (own(&[]), 0, 2));
}

#[test]
fn overlapping_rules_count_files_once_and_the_deepest_rule_wins() {
    let f = Folder::new();
    f.write("a", "1");
    f.write("d/b", "1");
    f.write("d/e/c", "1");
    let mut inner = Watch::new(f.at("d"));
    inner.hashes = vec![Algorithm::Md5];
    let rules = Rules(vec![Watch::new(f.at("d/e/c")), Watch::new(&f.path), inner]);
    let b = Bench::new(rules);
    let report = b.scan();
    assert_eq!((report.counts.files, report.counts.directories), (3, 3));
    assert_eq!(b.store.len(), 6);
    assert!(b.store.get(&f.at("d/b")).unwrap().hashes.md5.is_some());
    assert!(b.store.get(&f.at("d/e/c")).unwrap().hashes.sha256.is_some());
    assert_eq!(b.scan().counts.changes(), 0);
    fs::write(f.at("d/b"), "2").unwrap();
    fs::write(f.at("d/e/c"), "2").unwrap();
    b.scan();
    assert_eq!(
        b.store.reported_changes(),
        [("modified", f.at("d/b")), ("modified", f.at("d/e/c"))]
    );
    // Without the inner rules the outer one covers their items, and no change is reported.
    let b = b.again(Rules::of_paths([&f.path]));
    assert_eq!(b.scan().counts.changes(), 0);
    assert_eq!(b.scan().counts.files, 3);
}

#[test]
fn missing_nested_root_is_a_gap_not_a_deletion() {
    let f = Folder::new();
    f.write("a/d/b", "1");
    f.write("a/x", "1");
    let b = Bench::new(Rules::of_paths([f.path.clone(), f.at("a/d")]));
    b.scan();
    b.store.coverage();
    fs::remove_dir_all(f.at("a")).unwrap();
    b.scan();
    assert_eq!(b.store.reported_changes(), [("deleted", f.at("a")), ("deleted", f.at("a/x"))]);
    assert_eq!(b.store.gaps(), [CoverageKind::RootGone]);
    assert!(b.store.get(&f.at("a/d/b")).is_some());
}

#[test]
fn symlink_root_watches_link_and_its_target() {
    let f = Folder::new();
    f.write("real/a", "1");
    f.write("other/b", "1");
    symlink("real", f.at("link")).unwrap();
    let b = Bench::new(Rules::of_paths([f.at("link"), f.at("real")]));
    let report = b.scan();
    assert_eq!((report.counts.files, report.counts.others), (1, 1), "{report:?}");
    assert!(b.store.get(&f.at("real/a")).is_some() && b.store.get(&f.at("link/a")).is_none());
    fs::remove_file(f.at("link")).unwrap();
    symlink("other", f.at("link")).unwrap();
    b.scan();
    assert_eq!(b.store.reported_changes(), [("modified", f.at("link"))]);
}

#[test]
fn single_file_root_is_watched_and_its_absence_is_a_gap() {
    let f = Folder::new();
    let path = f.write("one", "1");
    f.write("two", "2");
    let b = Bench::of(&path);
    assert_eq!(b.scan().counts.files, 1);
    assert_eq!(b.store.len(), 1);
    b.store.coverage();
    fs::write(&path, "11").unwrap();
    b.scan();
    assert_eq!(b.store.reported_changes(), [("modified", path.clone())]);
    fs::remove_file(&path).unwrap();
    b.scan();
    assert_eq!(b.store.gaps(), [CoverageKind::RootGone]);
    assert_eq!(b.store.len(), 1);
}

#[test]
fn forget_drops_unwatched_items_and_reports_no_change() {
    let f = Folder::new();
    f.write("a/d/b", "1");
    f.write("a/e/c", "1");
    f.write("z/y", "1");
    let b = Bench::new(Rules::of_paths([f.at("a"), f.at("z")]));
    b.scan();
    let b = b.again(Rules::of_paths([f.at("a/d")]));
    let (mut baseline, mut sink) = (b.store.clone(), b.store.clone());
    let path = f.at("a");
    let gone =
        b.scanner.forget(path.as_os_str().as_encoded_bytes(), &mut baseline, &mut sink).unwrap();
    assert_eq!(gone, 3);
    assert_eq!(b.scanner.forget_unwatched(&mut baseline, &mut sink).unwrap(), Some(2));
    assert_eq!(paths(&b, &f.path), ["a/d", "a/d/b"]);
    assert!(b.store.changes().is_empty());
    assert_eq!(b.scan().counts.changes(), 0);
}

#[test]
fn system_names_resolve_root() {
    let names = SystemNames::new();
    for _ in 0..2 {
        assert_eq!(names.user(0).as_deref(), Some("root"));
        assert_eq!(names.group(0).as_deref(), Some("root"));
        assert_eq!(names.user(3_999_999_999), None);
        names.clear();
    }
}

#[test]
fn excluded_folder_is_never_reported_and_is_forgotten() {
    let f = Folder::new();
    let own = f.write("data/agent.db", "1");
    f.write("other", "1");
    let rules = Rules::of_paths([&f.path]);
    let before = Bench::new(rules.clone());
    before.scan();
    assert!(before.store.get(&own).is_some());
    let excluded = vec![f.at("data").as_os_str().as_encoded_bytes().to_vec()];
    let options = ScanOptions { excluded, ..ScanOptions::default() };
    let mut b = Bench::with_options(rules, options, Arc::new(SystemClock::new()));
    b.store = before.store.clone();
    f.write("data/agent.db", "2");
    f.write("data/new", "2");
    b.scan();
    b.check([own.as_path(), f.at("data").as_path()]);
    assert!(b.store.changes().is_empty());
    assert!(b.store.get(&own).is_none() && b.store.get(&f.at("data")).is_none());
    assert!(b.store.get(&f.at("other")).is_some());
}
