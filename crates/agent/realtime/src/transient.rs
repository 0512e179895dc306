//! Files that were created and removed before their check: counted by directory and cause, and
//! reported a minute after the first one.

use std::collections::HashMap;

use model::path::show;
use model::transient::NAMES_MAX;
use model::{Actor, Cause, Check, Detection, EventBody, ItemKey, TransientBody};

/// Time from the first file of a directory to its event, nanoseconds.
const REPORT_AFTER_NS: u64 = 60_000_000_000;
/// Directories and causes that are counted apart at the same time; further ones are counted together,
/// without a cause.
const DIRECTORIES_MAX: usize = 1_000;
/// Directory of the files that are counted together.
const TOGETHER: &[u8] = b"/";
/// Different writers in one event; further ones are counted.
const ACTORS_MAX: usize = 8;

/// The files of one directory and cause.
#[derive(Debug, Default)]
struct FileCount {
    began_ns: u64,
    body: TransientBody,
    seen: Detection,
}

impl FileCount {
    fn add(&mut self, name: String, seen: &Detection) {
        self.body.count += 1;
        if self.body.names.len() < NAMES_MAX && !self.body.names.contains(&name) {
            self.body.names.push(name);
        }
        let all = &mut self.seen;
        all.first_us =
            if all.notices == 0 { seen.first_us } else { all.first_us.min(seen.first_us) };
        all.last_us = all.last_us.max(seen.last_us);
        all.notices = all.notices.saturating_add(seen.notices);
        all.more_actors = all.more_actors.max(seen.more_actors);
        for actor in &seen.actors {
            add_actor(all, actor);
        }
    }
}

fn add_actor(seen: &mut Detection, actor: &Actor) {
    if seen.actors.contains(actor) {
        return;
    }
    if seen.actors.len() < ACTORS_MAX {
        seen.actors.push(actor.clone());
    } else {
        seen.more_actors = seen.more_actors.saturating_add(1);
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Transients {
    counts: HashMap<(Vec<u8>, Option<Cause>), FileCount>,
}

impl Transients {
    /// Counts a file that does not exist any more. `explain` returns its cause, if it has one.
    pub(crate) fn add(
        &mut self,
        check: &Check,
        now_ns: u64,
        explain: impl Fn(&ItemKey, &Detection) -> Option<Cause>,
    ) {
        let Some(seen) = &check.seen else { return };
        let (directory, cause) = (check.key.directory.clone(), explain(&check.key, seen));
        let mut key = (directory, cause);
        let name = if self.counts.len() < DIRECTORIES_MAX || self.counts.contains_key(&key) {
            show(&check.key.name).into_owned()
        } else {
            key = (TOGETHER.to_vec(), None);
            show(&check.key.path()).into_owned()
        };
        let new = FileCount { began_ns: now_ns, ..FileCount::default() };
        self.counts.entry(key).or_insert(new).add(name, seen);
    }

    /// Takes the events that are due; at the end of the agent all of them.
    pub(crate) fn take_events(&mut self, now_ns: u64, end: bool) -> Vec<EventBody> {
        let due = |_: &(Vec<u8>, Option<Cause>), counted: &mut FileCount| {
            end || now_ns.saturating_sub(counted.began_ns) >= REPORT_AFTER_NS
        };
        let due = self.counts.extract_if(due);
        due.map(|((path, cause), counted)| {
            let cause = cause.unwrap_or_default();
            EventBody::of_transient(&path, counted.body, &counted.seen, cause)
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::{CauseKind, Depth, ProcessInfo};

    use super::*;

    fn check(path: &str, pid: u32, first_us: u64) -> Check {
        let process = Some(ProcessInfo { pid, ..ProcessInfo::default() });
        let actors = vec![Actor { process, ..Actor::default() }];
        let (last_us, notices) = (first_us + 1, 2);
        let seen = Some(Arc::new(Detection {
            first_us,
            last_us,
            notices,
            actors,
            ..Detection::default()
        }));
        Check { key: ItemKey::of_path(path.as_bytes()), depth: Depth::Name, seen }
    }

    fn add(transients: &mut Transients, check: &Check, now_ns: u64) {
        transients.add(check, now_ns, |_, _| None);
    }

    #[test]
    fn explained_files_have_an_event_of_their_own() {
        let mut transients = Transients::default();
        let cause = Cause { kind: CauseKind::Deployment, ..Cause::default() };
        let explain =
            |key: &ItemKey, _: &Detection| (*key.name == *b"x.dpkg-tmp").then(|| cause.clone());
        for name in ["x.dpkg-tmp", "planted", "x.dpkg-tmp"] {
            transients.add(&check(&format!("/a/{name}"), 7, 1), 1, explain);
        }
        let mut found: Vec<_> = transients
            .take_events(1, true)
            .into_iter()
            .map(|event| {
                (event.holdfast.cause.unwrap().kind, event.holdfast.transient.unwrap().names)
            })
            .collect();
        found.sort_by_key(|(kind, _)| *kind != CauseKind::Deployment);
        let names = |name: &str| vec![name.to_owned()];
        let expected = [
            (CauseKind::Deployment, names("x.dpkg-tmp")),
            (CauseKind::Unexplained, names("planted")),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn one_event_counts_the_files_of_a_directory_in_a_minute() {
        let mut transients = Transients::default();
        for n in 0..20 {
            add(&mut transients, &check(&format!("/a/f{n}"), 7, 100 + n), 5);
        }
        add(&mut transients, &check("/a/f0", 7, 90), 6);
        add(&mut transients, &check("/b/x", 7, 300), REPORT_AFTER_NS);
        assert!(transients.take_events(REPORT_AFTER_NS, false).is_empty());
        let events = transients.take_events(5 + REPORT_AFTER_NS, false);
        assert_eq!(events.len(), 1);
        let body = events[0].holdfast.transient.as_ref().unwrap();
        assert_eq!((body.count, body.names.len()), (21, NAMES_MAX));
        assert_eq!((events[0].path(), events[0].event.action.as_str()), ("/a", "transient"));
        assert_eq!(events[0].time_us(), 90);
        assert_eq!(events[0].process.as_ref().unwrap().pid, 7, "the only writer");
        assert_eq!(events[0].holdfast.seen.as_ref().unwrap().notifications, 42);
        assert_eq!(transients.take_events(6, true)[0].path(), "/b", "the end reports the rest");
        assert!(transients.take_events(6, true).is_empty());
    }

    #[test]
    fn several_writers_are_listed_and_none_is_at_the_top() {
        let mut transients = Transients::default();
        for pid in 1..=10 {
            add(&mut transients, &check("/a/f", pid, 1), 1);
        }
        let event = transients.take_events(1, true).remove(0);
        assert_eq!(event.process, None);
        let seen = event.holdfast.seen.unwrap();
        assert_eq!((seen.actors.len(), seen.more), (ACTORS_MAX, 2));
    }

    #[test]
    fn number_of_directories_is_bounded() {
        let mut transients = Transients::default();
        for n in 0..DIRECTORIES_MAX + 5 {
            add(&mut transients, &check(&format!("/d{n}/f"), 1, 1), 1);
        }
        let events = transients.take_events(1, true);
        assert_eq!(events.len(), DIRECTORIES_MAX + 1);
        let together = events.iter().find(|event| event.path() == "/").unwrap();
        assert_eq!(together.holdfast.transient.as_ref().unwrap().count, 5);
    }
}
