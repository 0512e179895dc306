//! The folder of rules: shipped rules, accepted and refused writes, and the cache.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use env::clock::ManualClock;
use sigma::{FolderError, RuleFolder, is_name};
use tempfile::TempDir;

const TTL: Duration = Duration::from_secs(10);

fn rule(id: u32, title: &str) -> Vec<u8> {
    format!(
        "title: \"{title}\"\nid: 00000000-0000-4000-8000-{id:012}\nstatus: test\nlevel: low\n\
         logsource:\n  product: linux\ndetection:\n  one:\n    file.path: /a\n  condition: one\n"
    )
    .into_bytes()
}

fn open(ttl: Duration) -> (TempDir, ManualClock, RuleFolder) {
    let dir = TempDir::new().unwrap();
    let clock = ManualClock::at(1);
    let folder = RuleFolder::open(&dir.path().join("rules"), ttl, Arc::new(clock.clone())).unwrap();
    (dir, clock, folder)
}

#[test]
fn first_start_installs_ten_valid_rules_with_unique_ids() {
    let (_dir, _clock, folder) = open(TTL);
    let files = folder.files().unwrap();
    assert_eq!(files.len(), 10);
    let mut ids: Vec<&str> =
        files.iter().map(|file| file.rule.as_ref().unwrap().id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 10);
    assert!(files.iter().all(|file| file.rule.as_ref().unwrap().is_enabled()));
}

#[test]
fn later_start_does_not_change_the_rules_folder() {
    let (dir, clock, folder) = open(TTL);
    let name = folder.names().unwrap()[0].clone();
    folder.delete(&name).unwrap();
    let other = folder.names().unwrap()[0].clone();
    folder.write_rule(&other, &rule(1, "mine"), true).unwrap();
    drop(folder);
    let folder = RuleFolder::open(&dir.path().join("rules"), TTL, Arc::new(clock)).unwrap();
    assert_eq!(folder.names().unwrap().len(), 9);
    assert_eq!(folder.file(&other).unwrap().unwrap().rule.as_ref().unwrap().title, "mine");
}

#[test]
fn interrupted_first_start_is_repeated() {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("rules.new")).unwrap();
    fs::write(dir.path().join("rules.new/half.yml"), "title: ").unwrap();
    let clock = Arc::new(ManualClock::at(1));
    let folder = RuleFolder::open(&dir.path().join("rules"), TTL, clock).unwrap();
    assert_eq!(folder.names().unwrap().len(), 10);
    assert!(!dir.path().join("rules.new").exists());
}

#[test]
fn traversing_and_hidden_rules_file_names_are_invalid() {
    for bad in [
        "",
        ".yml",
        "..yml",
        "../a.yml",
        "a/b.yml",
        "/etc/passwd",
        ".a.yml",
        "a.yml/..",
        "a\0.yml",
        "a.xml",
        "a.yml ",
        "ä.yml",
        "-a.yml",
        "a.yml.new",
        "~a.yml",
        "a\\b.yml",
    ] {
        assert!(!is_name(bad), "{bad:?}");
    }
    assert!(!is_name(&format!("{}.yml", "a".repeat(125))));
    for good in ["a.yml", "0.yaml", "A-b_c.d.yml", "a..b.yml"] {
        assert!(is_name(good), "{good:?}");
    }
    let (dir, _clock, folder) = open(TTL);
    fs::write(dir.path().join("out.yml"), rule(1, "out")).unwrap();
    assert!(folder.file("../out.yml").unwrap().is_none());
    for outcome in
        [folder.write_rule("../new.yml", &rule(2, "new"), true), folder.delete("../out.yml")]
    {
        assert!(matches!(outcome, Err(FolderError::Name(_))), "{outcome:?}");
    }
    assert!(dir.path().join("out.yml").exists() && !dir.path().join("new.yml").exists());
}

#[test]
fn links_pipes_and_folders_are_not_read_as_rules() {
    let (dir, _clock, folder) = open(Duration::ZERO);
    let path = dir.path().join("rules");
    fs::write(dir.path().join("secret"), "secret").unwrap();
    symlink(dir.path().join("secret"), path.join("link.yml")).unwrap();
    fs::create_dir(path.join("dir.yml")).unwrap();
    assert_eq!(folder.names().unwrap().len(), 10);
    assert!(folder.file("link.yml").unwrap().is_none());
    assert!(folder.file("dir.yml").unwrap().is_none());
}

#[test]
fn rule_id_belongs_to_one_file_replaced_only_on_request() {
    let (_dir, _clock, folder) = open(TTL);
    folder.write_rule("a.yml", &rule(1, "a"), false).unwrap();
    let same = folder.write_rule("b.yml", &rule(1, "b"), false).unwrap_err();
    assert!(matches!(&same, FolderError::SameId { other, .. } if other == "a.yml"), "{same}");
    let exists = folder.write_rule("a.yml", &rule(2, "b"), false).unwrap_err();
    assert!(matches!(exists, FolderError::Exists(_)), "{exists}");
    folder.write_rule("a.yml", &rule(1, "c"), true).unwrap();
    folder.write_rule("b.yml", &rule(2, "b"), true).unwrap();
    assert!(matches!(folder.delete("c.yml"), Err(FolderError::Missing(_))));
}

#[test]
fn refused_rule_does_not_change_the_existing_file() {
    let (dir, _clock, folder) = open(TTL);
    folder.write_rule("a.yml", &rule(1, "a"), false).unwrap();
    let refused = folder.write_rule("a.yml", b"title: x", true).unwrap_err();
    assert!(refused.to_string().contains("id is missing"), "{refused}");
    assert_eq!(fs::read(dir.path().join("rules/a.yml")).unwrap(), rule(1, "a"));
}

#[test]
fn read_file_is_cached_until_it_expires_or_a_write() {
    let (dir, clock, folder) = open(TTL);
    let reads = || folder.counts().file_reads;
    folder.files().unwrap();
    assert_eq!((reads(), folder.counts().folder_reads), (10, 1));
    folder.files().unwrap();
    assert_eq!(folder.counts().hits, 11);
    assert_eq!((reads(), folder.counts().folder_reads), (10, 1), "nothing was read again");
    fs::write(dir.path().join("rules/by_hand.yml"), "no rule").unwrap();
    assert_eq!(folder.files().unwrap().len(), 10);
    clock.advance(TTL);
    let files = folder.files().unwrap();
    assert_eq!(files.len(), 11, "another hand's file is seen when its time is over");
    assert!(files.iter().any(|file| file.rule.is_err()), "and shown for what it is");
    folder.write_rule("a.yml", &rule(1, "a"), false).unwrap();
    assert!(folder.file("a.yml").unwrap().is_some());
    assert_eq!(folder.files().unwrap().len(), 12, "a write is seen at once");
}

#[test]
fn zero_ttl_disables_the_rules_cache() {
    let (_dir, _clock, folder) = open(Duration::ZERO);
    folder.files().unwrap();
    folder.files().unwrap();
    let counts = folder.counts();
    assert_eq!((counts.hits, counts.file_reads, counts.folder_reads), (0, 20, 2));
}

#[test]
fn concurrent_readers_never_see_a_replaced_file() {
    let (_dir, _clock, folder) = open(TTL);
    folder.write_rule("a.yml", &rule(1, "0"), false).unwrap();
    let over = AtomicBool::new(false);
    let title = || -> u32 {
        let file = folder.file("a.yml").unwrap().unwrap();
        file.rule.as_ref().unwrap().title.parse().unwrap()
    };
    let read_on = || {
        let mut last = 0;
        while !over.load(Ordering::Acquire) {
            let now = title();
            assert!(now >= last, "{now} after {last}");
            last = now;
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(read_on);
        }
        for n in 1..=50 {
            folder.write_rule("a.yml", &rule(1, &n.to_string()), true).unwrap();
            assert_eq!(title(), n, "the write that returned is what is read");
        }
        over.store(true, Ordering::Release);
    });
}
