//! Actors: the process and the user that changed an item, as ECS fields.
//!
//! Source of the names: Elastic Common Schema 8, `process.*`, `user.*` and `container.*`. ECS has
//! no word for the certainty of an attribution; [`Actor::attribution`] is ours.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Certainty that a process made a change, the most certain first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Attribution {
    /// Process, executable and users are known.
    Exact,
    /// The process is known. It had several programs in the interval of its last change or several
    /// users, which are listed; which of them made the change is not known.
    Ambiguous,
    /// The process may be another one with the same number, because the number was reused or
    /// messages were lost; or it closed the file and was not seen changing it.
    Uncertain,
    /// The process or its executable is not known; a reason is given.
    #[default]
    Unknown,
}

/// An executable file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Executable {
    /// Path as the kernel names it; empty if unknown. A deleted file has no marker here, see
    /// `deleted`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// SHA-256 of its content as lower-case hex, if it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// True if the file was removed or replaced while the process ran.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

/// A program that comes into question, as the process that ran it shows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Candidate {
    #[serde(flatten)]
    pub executable: Executable,
    /// Arguments joined by blanks, with secrets masked; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command_line: String,
    /// Working directory when the program was started.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub working_directory: String,
    /// See [`ProcessInfo::foreign`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
    /// See [`ProcessInfo::arguments`].
    #[serde(skip)]
    pub arguments: Arc<[String]>,
}

/// A user: number and, if it has one, name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct ActorUser {
    pub id: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// One process: the writer or one of its ancestors.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct ProcessInfo {
    pub pid: u32,
    /// Id that no other process has, on this or another host; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub entity_id: String,
    /// Time at which it started, RFC 3339; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub start: String,
    /// The executable; absent if it is unknown or ambiguous.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executable: Option<Executable>,
    /// Arguments joined by blanks, with secrets masked; empty if unknown or ambiguous.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command_line: String,
    /// Working directory when the executable was started.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub working_directory: String,
    /// True for a program that explains changes, such as dpkg, if the host has another file at its
    /// path, or none: it was started in another mount namespace, or replaced. Also true if it was
    /// started so that it may run other code.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
    /// The first few arguments with the program's name, without masks. The agent needs them to
    /// explain the change; they are not part of events.
    #[serde(skip)]
    pub arguments: Arc<[String]>,
    /// True if it ran as root, in the agent's container or outside of any, at the time of the
    /// change. The agent needs this to explain the change; it is not part of events.
    #[serde(skip)]
    pub is_root: bool,
}

/// The process and user that made a change, or the reason why they are unknown.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Actor {
    pub attribution: Attribution,
    /// The reason if the attribution is not exact, such as `gone before it was read`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessInfo>,
    /// The candidates for its last change in the order in which the process ran them, if several
    /// programs come into question.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub executables: Vec<Candidate>,
    /// Other programs that the same process ran when it made changes before its last one, in their
    /// order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Candidate>,
    /// Ancestors, the parent first; at most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ancestors: Vec<ProcessInfo>,
    /// The candidates for the effective user, if several come into question.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<ActorUser>,
    /// Real user; absent if it is unknown or ambiguous.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real_user: Option<ActorUser>,
    /// Effective user; absent if it is unknown or ambiguous.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_user: Option<ActorUser>,
    /// User that logged in (`/proc/PID/loginuid`); absent for services, and if it is unknown or
    /// ambiguous.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login_user: Option<ActorUser>,
    /// Session of the login (`/proc/PID/sessionid`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u32>,
    /// Terminal, such as `pts/1`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tty: String,
    /// Id of the container, from the control group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub container_id: String,
}
