//! The writers of a change as ECS fields of its event: `process`, `user`, `container` and
//! `holdfast.seen`.

use serde::{Deserialize, Serialize};

use crate::actor::{Actor, ActorUser, Attribution, ProcessInfo};
use crate::notification::Detection;
use crate::timestamp;

/// A user: `user.*`, `user.effective.*` and `process.real_user.*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct UserBody {
    pub id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Effective user, only in `user`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<Box<UserBody>>,
}

impl UserBody {
    fn new(user: &ActorUser) -> Self {
        Self { id: user.id.to_string(), name: user.name.clone(), effective: None }
    }

    /// Returns `user.*`: the login user if it is known, else the real user, else the effective one.
    fn of_actor(actor: &Actor) -> Option<Self> {
        let effective = actor.effective_user.as_ref();
        let first = actor.login_user.as_ref().or(actor.real_user.as_ref()).or(effective)?;
        Some(Self { effective: effective.map(Self::new).map(Box::new), ..Self::new(first) })
    }
}

/// Digests of an executable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ProcessHash {
    pub sha256: String,
}

/// A process: `process.*`, and its ancestors below `process.parent`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ProcessBody {
    pub pid: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub entity_id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub start: String,
    /// Path of the executable; absent if it is unknown or ambiguous.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub executable: String,
    /// Last part of `executable`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<ProcessHash>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command_line: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub working_directory: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real_user: Option<UserBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Box<ProcessBody>>,
}

impl ProcessBody {
    fn new(process: &ProcessInfo) -> Self {
        let executable = process.executable.clone().unwrap_or_default();
        let name = executable.path.rsplit('/').next().unwrap_or_default().to_owned();
        Self {
            pid: process.pid,
            entity_id: process.entity_id.clone(),
            start: process.start.clone(),
            executable: executable.path,
            name,
            hash: executable.sha256.map(|sha256| ProcessHash { sha256 }),
            command_line: process.command_line.clone(),
            working_directory: process.working_directory.clone(),
            real_user: None,
            parent: None,
        }
    }

    fn of_actor(actor: &Actor) -> Option<Self> {
        let parents =
            actor.ancestors.iter().rev().fold(None, |parent, ancestor| {
                Some(Box::new(Self { parent, ..Self::new(ancestor) }))
            });
        let real_user = actor.real_user.as_ref().map(UserBody::new);
        let process = actor.process.as_ref()?;
        Some(Self { real_user, parent: parents, ..Self::new(process) })
    }
}

/// A container: `container.*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ContainerBody {
    pub id: String,
}

/// The way in which a change was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum FoundBy {
    /// A notification of the kernel.
    Realtime,
    /// A comparison of its directory.
    #[default]
    Scan,
}

/// `holdfast.seen`: the notifications of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct SeenBody {
    /// Time of the first notification, RFC 3339.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub first: String,
    /// Time of the last notification, RFC 3339.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub notifications: u32,
    pub found_by: FoundBy,
    /// Certainty of the only writer; absent if there are several or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribution: Option<Attribution>,
    /// Login session of the only writer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u32>,
    /// Terminal of the only writer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tty: String,
    /// The writers, if there are several or the only one is not exact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actors: Vec<Actor>,
    /// Number of further writers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl SeenBody {
    pub(crate) fn new(seen: &Detection) -> Self {
        let notified = seen.notices > 0;
        let time = |us| if notified { timestamp::micros(us) } else { String::new() };
        let only = only_actor(seen);
        let listed = only.is_none_or(|actor| actor.attribution != Attribution::Exact);
        Self {
            first: time(seen.first_us),
            last: time(seen.last_us),
            notifications: seen.notices,
            found_by: if notified { FoundBy::Realtime } else { FoundBy::Scan },
            attribution: only.map(|actor| actor.attribution),
            session: only.and_then(|actor| actor.session),
            tty: only.map(|actor| actor.tty.clone()).unwrap_or_default(),
            actors: if listed { seen.actors.clone() } else { Vec::new() },
            more: seen.more_actors,
        }
    }
}

/// The writer's fields at the top of an event.
#[derive(Debug, Default)]
pub(crate) struct TopBodies {
    pub(crate) process: Option<ProcessBody>,
    pub(crate) user: Option<UserBody>,
    pub(crate) container: Option<ContainerBody>,
}

impl TopBodies {
    /// Returns the fields of the only writer. They are absent if there are several, and if the
    /// process may be another one.
    pub(crate) fn new(seen: &Detection) -> Self {
        let certain = |actor: &&Actor| actor.attribution != Attribution::Uncertain;
        let Some(actor) = only_actor(seen).filter(certain) else { return Self::default() };
        let container = Some(actor.container_id.clone()).filter(|id| !id.is_empty());
        Self {
            process: ProcessBody::of_actor(actor),
            user: UserBody::of_actor(actor),
            container: container.map(|id| ContainerBody { id }),
        }
    }
}

fn only_actor(seen: &Detection) -> Option<&Actor> {
    match seen.actors.as_slice() {
        [actor] if seen.more_actors == 0 => Some(actor),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::NoNames;
    use crate::{Change, ChangeKind, EventBody, Executable, Fields, ItemKey, Kind, Observation};

    fn executable(path: &str) -> Executable {
        Executable { path: path.into(), sha256: Some("ab".into()), deleted: false }
    }

    fn process(pid: u32, path: &str) -> ProcessInfo {
        ProcessInfo {
            pid,
            entity_id: format!("e{pid}"),
            start: timestamp::micros(1),
            executable: Some(executable(path)),
            command_line: format!("{path} x"),
            working_directory: "/root".into(),
            ..ProcessInfo::default()
        }
    }

    fn user(id: u32, name: &str) -> ActorUser {
        ActorUser { id, name: name.into() }
    }

    fn exact() -> Actor {
        Actor {
            attribution: Attribution::Exact,
            process: Some(process(7, "/usr/bin/vim")),
            ancestors: vec![process(6, "/usr/bin/bash"), process(5, "/usr/sbin/sshd")],
            real_user: Some(user(0, "root")),
            effective_user: Some(user(0, "root")),
            login_user: Some(user(1000, "ann")),
            session: Some(3),
            tty: "pts/1".into(),
            container_id: "c0ffee".into(),
            ..Actor::default()
        }
    }

    fn seen(actors: Vec<Actor>) -> Detection {
        Detection {
            first_us: 5_000_000,
            last_us: 6_000_000,
            notices: 3,
            actors,
            ..Detection::default()
        }
    }

    fn event(seen: Option<Detection>) -> EventBody {
        let change = Change {
            key: ItemKey::of_path(b"/a"),
            kind: ChangeKind::Created,
            before: None,
            after: Some(Observation::empty(Kind::File)),
            fields: Fields::default(),
            found_at_us: 9_000_000,
            from: None,
            seen: seen.map(std::sync::Arc::new),
            cause: None,
        };
        let event = EventBody::of_change(&change, &NoNames);
        assert_eq!(serde_json::from_slice::<EventBody>(&event.to_json()).unwrap(), event);
        event
    }

    #[test]
    fn exact_writer_is_at_the_top_of_the_event() {
        let event = event(Some(seen(vec![exact()])));
        assert_eq!(event.time_us(), 5_000_000, "the time of the first notification");
        let json: serde_json::Value = serde_json::from_slice(&event.to_json()).unwrap();
        assert_eq!(
            json["process"],
            serde_json::json!({
                "pid": 7, "entity_id": "e7", "start": "1970-01-01T00:00:00.000001Z",
                "executable": "/usr/bin/vim", "name": "vim", "hash": {"sha256": "ab"},
                "command_line": "/usr/bin/vim x", "working_directory": "/root",
                "real_user": {"id": "0", "name": "root"},
                "parent": {
                    "pid": 6, "entity_id": "e6", "start": "1970-01-01T00:00:00.000001Z",
                    "executable": "/usr/bin/bash", "name": "bash", "hash": {"sha256": "ab"},
                    "command_line": "/usr/bin/bash x", "working_directory": "/root",
                    "parent": {
                        "pid": 5, "entity_id": "e5", "start": "1970-01-01T00:00:00.000001Z",
                        "executable": "/usr/sbin/sshd", "name": "sshd", "hash": {"sha256": "ab"},
                        "command_line": "/usr/sbin/sshd x", "working_directory": "/root",
                    },
                },
            })
        );
        let users = serde_json::json!({
            "id": "1000", "name": "ann", "effective": {"id": "0", "name": "root"},
        });
        assert_eq!(json["user"], users);
        assert_eq!(json["container"], serde_json::json!({"id": "c0ffee"}));
        assert_eq!(
            json["holdfast"]["seen"],
            serde_json::json!({
                "first": "1970-01-01T00:00:05.000000Z", "last": "1970-01-01T00:00:06.000000Z",
                "notifications": 3, "found_by": "realtime", "attribution": "exact", "session": 3,
                "tty": "pts/1",
            })
        );
    }

    #[test]
    fn ambiguous_writer_lists_its_candidates() {
        let mut actor = exact();
        actor.attribution = Attribution::Ambiguous;
        actor.executables = vec![executable("/bin/sh"), executable("/bin/true")];
        actor.process.as_mut().unwrap().executable = None;
        actor.effective_user = None;
        let event = event(Some(seen(vec![actor.clone()])));
        let process = event.process.unwrap();
        assert_eq!((process.pid, process.executable.as_str(), process.name.as_str()), (7, "", ""));
        assert_eq!(event.user.unwrap().effective, None);
        let seen = event.holdfast.seen.unwrap();
        assert_eq!(seen.attribution, Some(Attribution::Ambiguous));
        assert_eq!(seen.actors, [actor]);
    }

    #[test]
    fn uncertain_and_several_writers_are_only_listed() {
        let uncertain = Actor { attribution: Attribution::Uncertain, ..exact() };
        let several = vec![exact(), Actor { process: Some(process(8, "/bin/ed")), ..exact() }];
        for (actors, more) in [(vec![uncertain], 0), (several, 0), (vec![exact()], 2)] {
            let seen = Detection { more_actors: more, ..seen(actors.clone()) };
            let event = event(Some(seen));
            assert_eq!((event.process, event.user, event.container), (None, None, None));
            let seen = event.holdfast.seen.unwrap();
            assert_eq!((seen.actors, seen.more), (actors, more));
        }
    }

    #[test]
    fn user_without_a_login_is_the_real_user() {
        let actor = Actor { login_user: None, real_user: Some(user(33, "www")), ..exact() };
        assert_eq!(event(Some(seen(vec![actor]))).user.unwrap().name, "www");
        let unknown = Actor { reason: "other pid namespace".into(), ..Actor::default() };
        let event = event(Some(seen(vec![unknown])));
        assert_eq!((event.process, event.user), (None, None));
        assert_eq!(event.holdfast.seen.unwrap().attribution, Some(Attribution::Unknown));
    }

    #[test]
    fn change_of_a_scan_keeps_its_bytes() {
        let expected = r#"{"@timestamp":"1970-01-01T00:00:09.000000Z","event":{"kind":"event","#;
        let json = String::from_utf8(event(None).to_json()).unwrap();
        assert!(json.starts_with(expected), "{json}");
        for field in ["process", "user\"", "container", "seen"] {
            assert!(!json.contains(field), "{json}");
        }
        let unnoticed = event(Some(Detection::default()));
        assert_eq!(unnoticed.time_us(), 9_000_000);
        let json: serde_json::Value = serde_json::from_slice(&unnoticed.to_json()).unwrap();
        assert_eq!(json["holdfast"]["seen"], serde_json::json!({"found_by": "scan"}));
    }
}
