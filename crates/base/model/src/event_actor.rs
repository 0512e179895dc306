//! The actor of a change in an event: `process.*`, `user.*` and `container.*` of ECS, and
//! `holdfast.seen` for what ECS has no words for.

use serde::{Deserialize, Serialize};

use crate::actor::{Actor, ActorUser, Attribution, ProcessInfo};
use crate::notification::Seen;
use crate::timestamp;

/// `process.hash.*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ProcessHash {
    /// SHA-256 of the executable as lower-case hex.
    pub sha256: String,
}

/// `process.tty.*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ProcessTty {
    /// Name of the terminal, such as `pts/1`. (ECS has only its numbers.)
    pub name: String,
}

/// `process.*` and `process.parent.*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ProcessBody {
    pub pid: u32,
    /// Time at which it started, RFC 3339.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub start: String,
    /// Path of the executable; absent if it is unknown or ambiguous.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub executable: String,
    /// Last part of `executable`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<ProcessHash>,
    /// True if the executable was removed or replaced while the process ran.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// Arguments, with secrets masked.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub command_line: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub working_directory: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tty: Option<ProcessTty>,
    /// Number of the login session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<u32>,
    /// Real user; only of the process itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub real_user: Option<UserBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<Box<ProcessBody>>,
}

/// `user.*`: the user that logged in if known, else the real user of the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct UserBody {
    /// Number, as text.
    pub id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Effective user, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective: Option<Box<UserBody>>,
}

/// `container.*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ContainerBody {
    pub id: String,
}

/// `holdfast.seen`: the detection of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct SeenBody {
    /// `realtime`. Changes that a scan found have no `seen`.
    pub found_by: String,
    /// Time of the first notification, RFC 3339; absent if the name had none of its own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub first: String,
    /// Time of the last notification, RFC 3339.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last: String,
    /// Number of notifications.
    pub notifications: u32,
    /// Certainty of `process`; absent if changes are not attributed or there are several writers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attribution: Option<Attribution>,
    /// The reason if the attribution is not exact.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The writers, if there are several or the only one is not known exactly.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub actors: Vec<Actor>,
    /// Number of further writers.
    #[serde(skip_serializing_if = "is_zero")]
    pub more: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The parts of an event that its notifications decide.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ActorParts {
    pub(crate) process: Option<ProcessBody>,
    pub(crate) user: Option<UserBody>,
    pub(crate) container: Option<ContainerBody>,
}

impl SeenBody {
    pub(crate) fn new(seen: &Seen) -> Self {
        let time = |us: u64| match seen.notices {
            0 => String::new(),
            _ => timestamp::micros(us),
        };
        let only = only(seen);
        let exact = only.is_some_and(|actor| actor.attribution == Attribution::Exact);
        Self {
            found_by: "realtime".into(),
            first: time(seen.first_us),
            last: time(seen.last_us),
            notifications: seen.notices,
            attribution: only.map(|actor| actor.attribution),
            reason: only.map(|actor| actor.reason.clone()).unwrap_or_default(),
            actors: if exact { Vec::new() } else { seen.actors.clone() },
            more: seen.more_actors,
        }
    }
}

/// Returns the writer, if there is one only.
fn only(seen: &Seen) -> Option<&Actor> {
    match &*seen.actors {
        [actor] if seen.more_actors == 0 => Some(actor),
        _ => None,
    }
}

impl ActorParts {
    /// Returns the fields of the only writer; none if there are several or it is not known.
    pub(crate) fn new(seen: &Seen) -> Self {
        let Some(actor) = only(seen) else { return Self::default() };
        let container = Some(ContainerBody { id: actor.container_id.clone() });
        Self {
            process: actor.process.as_ref().map(|process| process_of(actor, process)),
            user: user_of(actor),
            container: container.filter(|container| !container.id.is_empty()),
        }
    }
}

fn process_of(actor: &Actor, process: &ProcessInfo) -> ProcessBody {
    let parent = actor.ancestors.iter().rev().fold(None, |parent, ancestor| {
        Some(Box::new(ProcessBody { parent, ..ProcessBody::from(ancestor) }))
    });
    let tty = Some(ProcessTty { name: actor.tty.clone() }).filter(|tty| !tty.name.is_empty());
    ProcessBody {
        tty,
        session: actor.session,
        real_user: actor.real_user.as_ref().map(UserBody::from),
        parent,
        ..ProcessBody::from(process)
    }
}

fn user_of(actor: &Actor) -> Option<UserBody> {
    let user = actor.login_user.as_ref().or(actor.real_user.as_ref());
    let effective = actor.effective_user.as_ref().filter(|effective| Some(*effective) != user);
    let effective = effective.map(|effective| Box::new(UserBody::from(effective)));
    user.map(|user| UserBody { effective, ..UserBody::from(user) })
}

impl From<&ProcessInfo> for ProcessBody {
    fn from(process: &ProcessInfo) -> Self {
        let executable = process.executable.as_ref();
        let path = executable.map(|e| e.path.clone()).unwrap_or_default();
        Self {
            pid: process.pid,
            start: process.start.clone(),
            name: path.rsplit('/').next().unwrap_or_default().to_owned(),
            executable: path,
            hash: executable.and_then(|e| e.sha256.clone()).map(|sha256| ProcessHash { sha256 }),
            deleted: executable.is_some_and(|e| e.deleted),
            command_line: process.command_line.clone(),
            working_directory: process.working_directory.clone(),
            ..Self::default()
        }
    }
}

impl From<&ActorUser> for UserBody {
    fn from(user: &ActorUser) -> Self {
        Self { id: user.id.to_string(), name: user.name.clone(), effective: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::Executable;

    fn user(id: u32, name: &str) -> ActorUser {
        ActorUser { id, name: name.into() }
    }

    fn process(pid: u32, path: &str) -> ProcessInfo {
        let executable = Executable { path: path.into(), ..Executable::default() };
        ProcessInfo { pid, executable: Some(executable), ..ProcessInfo::default() }
    }

    fn alice() -> Actor {
        Actor {
            attribution: Attribution::Exact,
            process: Some(process(7, "/usr/bin/vim")),
            ancestors: vec![process(6, "/usr/bin/sudo"), process(5, "/bin/bash")],
            real_user: Some(user(0, "root")),
            effective_user: Some(user(0, "root")),
            login_user: Some(user(1000, "alice")),
            tty: "pts/1".into(),
            ..Actor::default()
        }
    }

    fn seen(actors: Vec<Actor>) -> Seen {
        Seen { first_us: 1, last_us: 2, notices: 3, actors, more_actors: 0 }
    }

    #[test]
    fn login_user_comes_first_and_ancestors_are_nested() {
        let seen = seen(vec![alice()]);
        let parts = ActorParts::new(&seen);
        let user = parts.user.unwrap();
        assert_eq!((&*user.name, &*user.effective.unwrap().name), ("alice", "root"));
        let process = parts.process.unwrap();
        assert_eq!((process.pid, &*process.name), (7, "vim"));
        let parent = process.parent.unwrap();
        assert_eq!((&*parent.name, &*parent.parent.unwrap().name), ("sudo", "bash"));
        let body = SeenBody::new(&seen);
        assert_eq!(body.attribution, Some(Attribution::Exact));
        assert!(body.actors.is_empty(), "it is in process and user");
    }

    #[test]
    fn several_writers_are_listed_and_none_is_picked() {
        let two = seen(vec![alice(), Actor::default()]);
        assert_eq!(ActorParts::new(&two), ActorParts::default());
        let body = SeenBody::new(&two);
        assert_eq!((body.attribution, body.actors.len()), (None, 2));
        let mut more = seen(vec![alice()]);
        more.more_actors = 4;
        assert_eq!(ActorParts::new(&more), ActorParts::default());
    }

    #[test]
    fn unknown_writer_has_its_reason() {
        let actor = Actor { reason: "gone before it was read".into(), ..Actor::default() };
        let seen = seen(vec![actor]);
        assert_eq!(ActorParts::new(&seen), ActorParts::default());
        let body = SeenBody::new(&seen);
        assert_eq!(body.attribution, Some(Attribution::Unknown));
        assert_eq!(body.reason, "gone before it was read");
    }
}
