//! The writers of a change as ECS fields of its event: `process`, `user`, `container` and
//! `holdfast.seen`.

use serde::{Deserialize, Serialize};

use actor::{Actor, ActorUser, Attribution, Candidate, Executable, ProcessInfo};

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

/// A program that comes into question: an item of `process.candidates` or `process.earlier`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ProgramBody {
    pub executable: String,
    /// Last part of `executable`.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<ProcessHash>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command_line: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub working_directory: String,
    /// True if the host has another file at the path of `executable`, or none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
}

impl ProgramBody {
    fn new(candidate: &Candidate) -> Self {
        let Candidate { executable, command_line, working_directory, foreign, .. } =
            candidate.clone();
        let name = name_of(&executable);
        Self {
            executable: executable.path,
            name,
            hash: executable.sha256.map(|sha256| ProcessHash { sha256 }),
            command_line,
            working_directory,
            foreign,
        }
    }
}

fn name_of(executable: &Executable) -> String {
    executable.path.rsplit('/').next().unwrap_or_default().to_owned()
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
    /// True if the host has another file at the path of `executable`, or none. Known of programs
    /// that explain changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
    /// The programs that come into question, in the order in which the process ran them; empty if
    /// `executable` is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<ProgramBody>,
    /// Other programs that the process ran when it made changes before its last one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<ProgramBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real_user: Option<UserBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Box<ProcessBody>>,
}

impl ProcessBody {
    fn new(process: &ProcessInfo) -> Self {
        let executable = process.executable.clone().unwrap_or_default();
        let name = name_of(&executable);
        Self {
            pid: process.pid,
            entity_id: process.entity_id.clone(),
            start: process.start.clone(),
            executable: executable.path,
            name,
            hash: executable.sha256.map(|sha256| ProcessHash { sha256 }),
            command_line: process.command_line.clone(),
            working_directory: process.working_directory.clone(),
            foreign: process.foreign,
            ..Self::default()
        }
    }

    fn of_actor(actor: &Actor) -> Option<Self> {
        let parents =
            actor.ancestors.iter().rev().fold(None, |parent, ancestor| {
                Some(Box::new(Self { parent, ..Self::new(ancestor) }))
            });
        let real_user = actor.real_user.as_ref().map(UserBody::new);
        let process = Self::new(actor.process.as_ref()?);
        let bodies = |programs: &[Candidate]| programs.iter().map(ProgramBody::new).collect();
        let (candidates, earlier) = (bodies(&actor.executables), bodies(&actor.earlier));
        Some(Self { candidates, earlier, real_user, parent: parents, ..process })
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
    /// True if the kernel reported a rename of the item or of a directory above it. What was deleted
    /// and what was created may then be one move that was too large to be recognized.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub renamed: bool,
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
            renamed: seen.is_renamed,
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
