//! Causes of changes: `holdfast.cause` of an event.

use serde::{Deserialize, Serialize};

/// Kind of a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CauseKind {
    /// A package manager installed exactly this content, or removed the item.
    Package,
    /// A tool of configuration management, or a script of a package, made the change.
    Deployment,
    /// Nothing explains the change. Kinds that this version does not know are read as this one.
    #[default]
    #[serde(other)]
    Unexplained,
}

/// The package that a change belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct CausePackage {
    pub name: String,
    /// Installed version; empty if the package was removed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Version before; empty if it was not installed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub previous_version: String,
}

/// Explanation of a change.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Cause {
    pub kind: CauseKind,
    /// The explanation for people, or why a likely one does not hold.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Id that the changes of one transaction or run share; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The tool, such as `apt` or `ansible`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tool: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<CausePackage>,
    /// True if the content is what the package installed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub content_matches: bool,
    /// True if a process of the tool was seen making the change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub writer_matches: bool,
    /// True if the change opens a door, such as a file of `/etc/sudoers.d`: it is listed and counted
    /// with the unexplained.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attention: bool,
}
