//! Events of changes and gaps.

use model::document::NoNames;
use model::{
    Change, ChangeKind, Coverage, CoverageKind, EventBody, Fields, FileBody, ItemKey, Kind,
    Observation, PackageBody,
};

#[test]
fn change_contains_before_and_after() {
    let before = Observation::empty(Kind::File);
    let mut after = before.clone();
    after.mode = 0o600;
    let change = Change {
        key: ItemKey::of_path(b"/etc/shadow"),
        kind: ChangeKind::Modified,
        fields: before.difference(&after),
        before: Some(before),
        after: Some(after),
        found_at_us: 1_763_751_122_000_001,
        from: None,
        seen: None,
        cause: None,
    };
    let event = EventBody::of_change(&change, &NoNames);
    assert_eq!(event.path(), "/etc/shadow");
    assert_eq!(event.time_us(), 1_763_751_122_000_001);
    assert_eq!(event.file.as_ref().unwrap().mode, "0600");
    assert_eq!(event.holdfast.previous.as_ref().unwrap().mode, "0000");
    assert_eq!(event.holdfast.changed_fields, ["mode"]);
    assert_eq!(serde_json::from_slice::<EventBody>(&event.to_json()).unwrap(), event);
}

#[test]
fn deleted_file_contains_its_last_state() {
    let change = Change {
        key: ItemKey::of_path(b"/a"),
        kind: ChangeKind::Deleted,
        before: Some(Observation::empty(Kind::File)),
        after: None,
        fields: Fields::default(),
        found_at_us: 1,
        from: None,
        seen: None,
        cause: None,
    };
    let event = EventBody::of_change(&change, &NoNames);
    assert_eq!(event.event.action, "deleted");
    assert!(event.file.is_some() && event.holdfast.previous.is_none());
}

#[test]
fn documents_and_observations_show_the_same_change() {
    let before = Observation::empty(Kind::File);
    let mut after = before.clone();
    (after.size, after.ctime_ns, after.inode) = (7, 1, 2);
    after.hashes.sha256 = Some([1; 32]);
    let key = ItemKey::of_path(b"/etc/passwd");
    let bodies = [&before, &after].map(|o| FileBody::new(&key, o, &NoNames));
    let change = |before: Option<&Observation>, after: Option<&Observation>, kind| Change {
        key: key.clone(),
        kind,
        fields: before.zip(after).map(|(a, b)| a.difference(b)).unwrap_or_default(),
        before: before.cloned(),
        after: after.cloned(),
        found_at_us: 9,
        from: None,
        seen: None,
        cause: None,
    };
    for (from, to, kind) in [
        (Some(0), Some(1), ChangeKind::Modified),
        (None, Some(1), ChangeKind::Created),
        (Some(0), None, ChangeKind::Deleted),
    ] {
        let seen = |at: Option<usize>| at.map(|at| [&before, &after][at]);
        let known = |at: Option<usize>| at.map(|at| &bodies[at]);
        let expected = EventBody::of_change(&change(seen(from), seen(to), kind), &NoNames);
        assert_eq!(EventBody::of_file(known(from), known(to), 9), Some(expected));
    }
    assert_eq!(EventBody::of_file(Some(&bodies[0]), Some(&bodies[0]), 9), None);
    assert_eq!(EventBody::of_file(None, None, 9), None);
}

#[test]
fn package_change_has_before_and_after_under_its_key() {
    let named = |version: &str| PackageBody {
        name: "bash".into(),
        version: version.into(),
        architecture: "amd64".into(),
        ..PackageBody::default()
    };
    let (old, new) = (named("1"), named("2"));
    let event = EventBody::of_package(Some(&old), Some(&new), 1).unwrap();
    assert_eq!((event.path(), event.event.action.as_str()), ("bash:amd64", "modified"));
    assert_eq!(event.holdfast.changed_fields, ["version"]);
    assert_eq!(event.holdfast.previous_package.as_ref(), Some(&old));
    assert_eq!(serde_json::from_slice::<EventBody>(&event.to_json()).unwrap(), event);
    let gone = EventBody::of_package(Some(&old), None, 1).unwrap();
    assert_eq!((gone.event.action.as_str(), gone.package), ("deleted", Some(old)));
    assert_eq!(gone.holdfast.previous_package, None);
    let there = EventBody::of_package(None, Some(&new), 1).unwrap();
    assert_eq!(there.event.kinds, ["installation"]);
    assert_eq!(EventBody::of_package(None, None, 1), None);
}

#[test]
fn coverage_event_has_path_time_and_action() {
    let event = EventBody::of_coverage(Coverage {
        kind: CoverageKind::RootGone,
        path: "/mnt".into(),
        from_us: 1,
        to_us: 2,
        found: None,
        lasting: None,
        detail: "not mounted".into(),
    });
    assert_eq!(event.path(), "/mnt");
    assert_eq!(event.time_us(), 2);
    assert_eq!(event.event.action, "coverage");
}
