//! The state of every watched root, for people and for the server: from realtime detection, the
//! rules and the open gaps.

use detect::{Gap, GapKind, Rules};
use model::path::show;
use model::{CoverageState, WatchedRoot};

/// Reason of a root that notifications do not cover yet.
const NOT_SCANNED: &str = "not scanned yet";
const OFF: &str = "off by configuration";
const SCAN: &str = "scan";
/// Method for a path that does not exist yet.
const ABOVE: &str = "fanotify, directories above";

/// Returns the state of every root. `realtime` are the roots that notifications may cover; `on` is
/// false if realtime detection is off.
pub fn roots(
    rules: &Rules,
    realtime: Vec<WatchedRoot>,
    on: bool,
    gaps: &[Gap],
) -> Vec<WatchedRoot> {
    let mut roots = realtime;
    for watch in &rules.0 {
        let root = show(watch.path.as_os_str().as_encoded_bytes()).into_owned();
        if roots.iter().any(|known| known.root == root) {
            continue;
        }
        let (reason, remedy) = match (on, watch.realtime) {
            (true, true) => (NOT_SCANNED, ""),
            (true, false) => (OFF, "remove `realtime = false` of this path"),
            (false, _) => (OFF, "set `realtime.enabled = true`"),
        };
        roots.push(WatchedRoot {
            path: root.clone(),
            root,
            state: CoverageState::Scan,
            method: SCAN.into(),
            reason: reason.into(),
            remedy: remedy.into(),
            ..WatchedRoot::default()
        });
    }
    add_gaps(&mut roots, gaps);
    // The worst come first: a report that is too long is cut at its end.
    roots.sort_by_key(|root| (badness(root.state), root.root.clone(), root.path.clone()));
    roots
}

/// Marks the roots inside a gap and the optional ones that do not exist, and adds the gaps below a root.
fn add_gaps(roots: &mut Vec<WatchedRoot>, gaps: &[Gap]) {
    let notified = roots.iter().any(|root| root.state == CoverageState::Realtime);
    for gap in gaps {
        let path = show(&gap.path).into_owned();
        if gap.kind == GapKind::Absent {
            let absent = roots.iter_mut().filter(|root| root.path == path);
            absent.for_each(|root| set_absent(root, &gap.detail, notified));
            continue;
        }
        let mut covered = false;
        for root in roots.iter_mut().filter(|root| is_within(&root.path, &path)) {
            (root.state, root.reason) = (CoverageState::Gap, gap.detail.clone());
            root.remedy.clear();
            covered = true;
        }
        if covered {
            continue;
        }
        let holders = roots.iter().filter(|root| is_within(&path, &root.path));
        let root = holders.max_by_key(|root| root.path.len()).map(|holder| holder.root.clone());
        roots.push(WatchedRoot {
            root: root.unwrap_or_else(|| path.clone()),
            path,
            state: CoverageState::Gap,
            method: SCAN.into(),
            reason: gap.detail.clone(),
            ..WatchedRoot::default()
        });
    }
}

/// Describes a path that does not exist yet. Its creation is notified if there are notifications.
fn set_absent(root: &mut WatchedRoot, reason: &str, notified: bool) {
    root.reason = reason.into();
    if notified {
        (root.state, root.method) = (CoverageState::Realtime, ABOVE.into());
    }
}

/// Returns true if `path` is `directory` or lies below it.
fn is_within(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || directory == "/")
}

fn badness(state: CoverageState) -> u8 {
    match state {
        CoverageState::Gap => 0,
        CoverageState::Scan => 1,
        CoverageState::Realtime => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn realtime(root: &str, path: &str) -> WatchedRoot {
        let state = CoverageState::Realtime;
        WatchedRoot { root: root.into(), path: path.into(), state, ..WatchedRoot::default() }
    }

    fn gap(path: &str) -> Gap {
        let (path, detail) = (path.as_bytes().to_vec(), "gone".into());
        Gap { path, kind: GapKind::Missing, since_us: 1, detail }
    }

    fn states(found: &[WatchedRoot]) -> Vec<(&str, &str, CoverageState)> {
        found.iter().map(|r| (r.root.as_str(), r.path.as_str(), r.state)).collect()
    }

    #[test]
    fn every_root_has_a_state() {
        let rules = Rules::of_paths(["/etc", "/srv", "/data"].to_vec());
        let known =
            vec![realtime("/etc", "/etc"), realtime("/srv", "/srv"), realtime("/srv", "/srv/x")];
        let gaps = [gap("/srv/x"), gap("/etc/secret"), gap("/data")];
        let found = roots(&rules, known, true, &gaps);
        assert_eq!(
            states(&found),
            [
                ("/data", "/data", CoverageState::Gap),
                ("/etc", "/etc/secret", CoverageState::Gap),
                ("/srv", "/srv/x", CoverageState::Gap),
                ("/etc", "/etc", CoverageState::Realtime),
                ("/srv", "/srv", CoverageState::Realtime),
            ]
        );
        assert!(found.iter().take(3).all(|root| root.reason == "gone"));
    }

    #[test]
    fn optional_root_that_is_absent_is_no_gap() {
        let rules = Rules::of_paths(["/etc", "/root/.ssh"].to_vec());
        let absent = || Gap { kind: GapKind::Absent, ..gap("/root/.ssh") };
        let found = roots(&rules, vec![realtime("/etc", "/etc")], true, &[absent()]);
        assert!(found.iter().all(|root| root.state == CoverageState::Realtime));
        assert_eq!((&*found[1].method, &*found[1].reason), (ABOVE, "gone"));
        let found = roots(&rules, Vec::new(), true, &[absent()]);
        assert!(found.iter().all(|root| root.state == CoverageState::Scan), "no notifications");
    }

    #[test]
    fn roots_are_scanned_if_realtime_detection_is_off() {
        let rules = Rules::of_paths(vec!["/", "/etc"]);
        let found = roots(&rules, Vec::new(), false, &[gap("/mnt")]);
        assert_eq!(
            states(&found),
            [
                ("/", "/mnt", CoverageState::Gap),
                ("/", "/", CoverageState::Scan),
                ("/etc", "/etc", CoverageState::Scan),
            ]
        );
        assert_eq!(found[1].reason, OFF);
    }
}
