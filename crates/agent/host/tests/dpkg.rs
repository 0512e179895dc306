//! Reads generated dpkg databases: valid, unusual and malicious ones.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use host::{Dpkg, Inventory, InventoryError, StoredDocuments, limits, plan};
use model::{CoverageKind, PackageDocument};
use proptest::prelude::*;

const DPKG: &str = "Package: dpkg\nStatus: install ok installed\nArchitecture: amd64\n\
                    Version: 1.22\nMaintainer: Dpkg <d@example.org>\nInstalled-Size: 7\n\
                    Description: package manager\n the longer text\n .\n more\n\n";

fn write(root: &Path, status: &[u8]) -> Dpkg {
    fs::create_dir_all(root.join("var/lib/dpkg/info")).unwrap();
    fs::write(root.join("var/lib/dpkg/status"), status).unwrap();
    Dpkg::new(root)
}

fn read(status: impl AsRef<[u8]>) -> Result<Inventory, InventoryError> {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), status.as_ref()).read().map(|(inventory, _)| inventory)
}

fn stanza(name: &str, version: &str, status: &str) -> String {
    format!("Package: {name}\nStatus: {status}\nArchitecture: amd64\nVersion: {version}\n\n")
}

fn kind(status: impl AsRef<[u8]>) -> CoverageKind {
    read(status).unwrap_err().coverage()
}

#[test]
fn installed_package_is_read_with_all_fields() {
    let root = tempfile::tempdir().unwrap();
    let libc = "Package: libc6\nstatus: hold ok installed\nArchitecture: i386\nMulti-Arch: same\n\
                Version: 2:2.41-1~x\nSource: glibc (2.41)\nSection: libs\nPriority: optional\n\n";
    let dpkg = write(root.path(), format!("\n{DPKG}\n\n{libc}").as_bytes());
    let info = root.path().join("var/lib/dpkg/info");
    for (name, seconds) in [("dpkg.list", 1), ("libc6.list", 2), ("libc6:i386.list", 3)] {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        fs::File::create(info.join(name)).unwrap().set_modified(at).unwrap();
    }
    let (inventory, stamp) = dpkg.read().unwrap();
    assert_eq!(stamp, dpkg.stamp().unwrap());
    let found: Vec<_> = inventory.packages.keys().map(String::as_str).collect();
    assert_eq!(found, ["dpkg:amd64", "libc6:i386"]);
    let one = &inventory.packages["dpkg:amd64"];
    assert_eq!(one.vendor.as_deref(), Some("Dpkg <d@example.org>"));
    assert_eq!(one.description.as_deref(), Some("package manager"));
    assert_eq!((one.size, one.kind.as_str()), (Some(7 * 1024), "deb"));
    assert_eq!(one.installed.as_deref(), Some("1970-01-01T00:00:01.000000000Z"));
    let two = &inventory.packages["libc6:i386"];
    assert_eq!((two.version.as_str(), two.source.as_deref()), ("2:2.41-1~x", Some("glibc (2.41)")));
    assert_eq!(two.multiarch.as_deref(), Some("same"));
    assert_eq!(two.installed.as_deref(), Some("1970-01-01T00:00:03.000000000Z"));
}

#[test]
fn only_installed_packages_count_and_unfinished_ones_are_moving() {
    let mut text = DPKG.to_owned();
    for (name, status) in [
        ("held", "hold ok installed"),
        ("leaving", "deinstall ok installed"),
        ("removed", "deinstall ok config-files"),
        ("upgrading", "install ok unpacked"),
        ("broken", "install reinstreq half-installed"),
    ] {
        text += &stanza(name, "1", status);
    }
    text += "Package: never\nStatus: purge ok not-installed\n\n";
    text += "Package: begun\nStatus: install reinstreq half-installed\n\n";
    let inventory = read(text).unwrap();
    let found: Vec<_> = inventory.packages.keys().map(String::as_str).collect();
    assert_eq!(found, ["dpkg:amd64", "held:amd64", "leaving:amd64"]);
    let moving: Vec<_> = inventory.moving.keys().map(String::as_str).collect();
    assert_eq!(moving, ["broken:amd64", "upgrading:amd64"]);
    let mut settled = inventory;
    settled.settle();
    assert_eq!((settled.packages.len(), settled.moving.len()), (5, 0));
    let state = |key: &str| settled.packages[key].state.as_deref();
    assert_eq!(state("upgrading:amd64"), Some("unpacked"));
    assert_eq!(state("broken:amd64"), Some("half-installed"));
    assert_eq!(state("held:amd64"), None);
}

#[test]
fn incomplete_dpkg_database_is_an_error_not_a_shorter_list() {
    let missing = tempfile::tempdir().unwrap();
    let error = Dpkg::new(missing.path()).read().unwrap_err();
    assert_eq!(error.coverage(), CoverageKind::RootGone);
    fs::create_dir_all(missing.path().join("var/lib/dpkg/status")).unwrap();
    let error = Dpkg::new(missing.path()).read().unwrap_err();
    assert_eq!(error.coverage(), CoverageKind::Unreadable);

    let whole = "install ok installed";
    for bad in [
        String::new(),
        "\n\n".into(),
        "Package: a".into(),
        " continued\n".into(),
        format!("{DPKG}no colon\n"),
        format!("{DPKG}: nameless\n"),
        format!("{DPKG}Status: {whole}\n"),
        format!("{DPKG}Package: a\nStatus: {whole}\nVersion: 1\n"),
        format!("{DPKG}Package: a\nStatus: {whole}\nArchitecture: all\n"),
        format!("{DPKG}Package: a\nVersion: 1\nArchitecture: all\n"),
        format!("{DPKG}Package: a\nPackage: b\nStatus: {whole}\nVersion: 1\nArchitecture: all\n"),
        format!("{DPKG}{DPKG}"),
        format!("{DPKG}{}", stanza("../../etc/passwd", "1", whole)),
        format!("{DPKG}{}", stanza("a", "1 or 2", whole)),
        format!("{DPKG}{}", stanza("a", "1", "install ok")),
        format!("{DPKG}{}", stanza("a", "1", "install ok gone")),
    ] {
        assert_eq!(kind(&bad), CoverageKind::Unreadable, "{bad}");
        assert_eq!(kind(format!("{bad}\n")), CoverageKind::Unreadable, "{bad}");
    }
    // Every truncation is detected.
    for end in 1..DPKG.len() {
        assert!(read(&DPKG[..end]).is_err(), "{end}");
    }
}

#[test]
fn every_limit_is_an_error_that_names_it() {
    let line = "x".repeat(limits::LINE_BYTES_MAX);
    assert_eq!(kind(format!("{DPKG}Package: {line}\n")), CoverageKind::LimitReached);
    let line = format!(" {}\n", "x".repeat(limits::LINE_BYTES_MAX - 1));
    let many = line.repeat(limits::STANZA_BYTES_MAX / line.len() + 1);
    assert_eq!(kind(format!("Package: a\nDescription: b\n{many}")), CoverageKind::LimitReached);
    let mut fields = "Package: a\n".to_owned();
    for n in 0..limits::FIELDS_MAX {
        writeln!(fields, "X{n}: 1").unwrap();
    }
    assert_eq!(kind(fields), CoverageKind::LimitReached);
    let name = "n".repeat(limits::NAME_BYTES_MAX + 1);
    assert_eq!(kind(stanza(&name, "1", "install ok installed")), CoverageKind::LimitReached);
    // Long texts are cut. A long field that is not requested is skipped.
    let text = "\u{e4}".repeat(limits::TEXT_BYTES_MAX);
    let long = "y, ".repeat(10_000);
    let inventory = read(format!(
        "Package: a\nStatus: install ok installed\nArchitecture: all\nVersion: 1\n\
         Depends: {long}\nDescription: {text}\n\n"
    ));
    let description = inventory.unwrap().packages["a:all"].description.clone().unwrap();
    assert_eq!(description, "\u{e4}".repeat(limits::TEXT_BYTES_MAX / 2));
}

#[test]
fn hostile_bytes_in_a_text_are_shown_safely() {
    let mut status =
        b"Package: a\nStatus: install ok installed\nArchitecture: all\nVersion: 1\n".to_vec();
    status.extend_from_slice(b"Maintainer: \xff\xfe\x1b[2J\x00x\r\nInstalled-Size: -7\n\n");
    let inventory = read(&status).unwrap();
    let package = &inventory.packages["a:all"];
    assert_eq!(package.vendor.as_deref(), Some("\\xff\\xfe[2Jx"));
    assert_eq!(package.size, None);
}

#[test]
fn stamp_settles_only_once_no_write_can_share_its_timestamp() {
    let root = tempfile::tempdir().unwrap();
    let dpkg = write(root.path(), DPKG.as_bytes());
    let stamp = dpkg.stamp().unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    assert!(!stamp.is_settled(now.as_micros() as u64));
    assert!(stamp.is_settled((now + Duration::from_secs(9)).as_micros() as u64));
    write(root.path(), format!("{DPKG}{}", stanza("a", "1", "install ok installed")).as_bytes());
    assert_ne!(dpkg.stamp().unwrap(), stamp);
}

/// A step of the model test.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    Install(u8, u8),
    Unpack(u8),
    Remove(u8),
    Break,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6u8, 0..4u8).prop_map(|(n, v)| Step::Install(n, v)),
        2 => (0..6u8).prop_map(Step::Unpack),
        2 => (0..6u8).prop_map(Step::Remove),
        1 => Just(Step::Break),
    ]
}

/// Returns the versions of the documents by package key.
fn versions(baseline: &StoredDocuments) -> BTreeMap<String, String> {
    let document = |json: &Vec<u8>| PackageDocument::from_json(json).unwrap().package;
    baseline.values().map(document).map(|p| (p.key(), p.version)).collect()
}

proptest! {
    /// Compares the documents with a plain map over random installs, unpacks, removals and broken
    /// databases. The events, applied to the first state, must give the same map.
    #[test]
    fn package_documents_and_events_follow_dpkg_database(steps in prop::collection::vec(step(), 0..16)) {
        let mut installed: BTreeMap<u8, Option<u8>> = BTreeMap::new();
        let (mut baseline, mut model) = (StoredDocuments::new(), BTreeMap::new());
        let mut told: BTreeMap<String, String> = BTreeMap::new();
        for (at, step) in steps.into_iter().enumerate() {
            let mut broken = false;
            match step {
                Step::Install(n, v) => { installed.insert(n, Some(v)); }
                Step::Unpack(n) => { installed.insert(n, None); }
                Step::Remove(n) => { installed.remove(&n); }
                Step::Break => broken = true,
            }
            let mut text = DPKG.to_owned();
            for (n, version) in &installed {
                text += &match version {
                    Some(v) => stanza(&format!("p{n}"), &v.to_string(), "install ok installed"),
                    None => stanza(&format!("p{n}"), "9", "install ok unpacked"),
                };
            }
            if broken {
                text += "Package";
            }
            let Ok(inventory) = read(text) else {
                prop_assert!(broken);
                continue;
            };
            let first = at == 0;
            let plan = plan(&baseline, &inventory, (!first).then_some(at as u64));
            prop_assert_eq!(plan.items.iter().filter(|put| put.event.is_some()).count() as u64, if first { 0 } else { plan.changes() });
            for put in &plan.items {
                match &put.document {
                    Some(json) => drop(baseline.insert(put.key.clone(), json.clone())),
                    None => drop(baseline.remove(&put.key).unwrap()),
                }
            }
            model.insert("dpkg:amd64".to_owned(), "1.22".to_owned());
            let gone = |key: &String| {
                key.strip_prefix('p').and_then(|k| k.strip_suffix(":amd64")?.parse().ok())
                    .is_some_and(|n: u8| !installed.contains_key(&n))
            };
            model.retain(|key, _| !gone(key));
            for (n, version) in &installed {
                if let Some(v) = version {
                    model.insert(format!("p{n}:amd64"), v.to_string());
                }
            }
            prop_assert_eq!(&versions(&baseline), &model);
            if first {
                told = model.clone();
            }
            for event in plan.items.iter().filter_map(|put| put.event.as_ref()) {
                let package = event.package.clone().unwrap();
                match event.event.action.as_str() {
                    "created" => prop_assert_eq!(told.insert(package.key(), package.version), None),
                    "modified" => drop(told.insert(package.key(), package.version).unwrap()),
                    _ => prop_assert_eq!(told.remove(event.path()), Some(package.version)),
                }
            }
            prop_assert_eq!(&told, &model);
        }
    }

    /// Any bytes give an inventory or an error, never a panic.
    #[test]
    fn arbitrary_status_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), at in 0..DPKG.len()) {
        let mut status = DPKG.as_bytes().to_vec();
        status.splice(at..at, bytes);
        let _ = read(&status);
    }
}
