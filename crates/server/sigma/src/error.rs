//! Errors of a rule and of the folder of rules.

use std::io;
use std::path::{Path, PathBuf};

use crate::limits::{FILES_MAX, RULE_BYTES_MAX};

/// An error in a rule; each names the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The file is empty.
    #[error("the file is empty")]
    Empty,
    /// The file is larger than the limit.
    #[error("{0} bytes are too many: a rule has at most {RULE_BYTES_MAX}")]
    TooLarge(usize),
    /// The file is not UTF-8.
    #[error("not UTF-8 text")]
    NotText,
    /// The file is not YAML, or holds more than one document.
    #[error("not one YAML document: {0}")]
    Yaml(String),
    /// The file is YAML but not a rule.
    #[error("not a rule: its fields are names with values, beginning with title")]
    NotARule,
    /// A required field is missing.
    #[error("{0} is missing: every rule has one")]
    Missing(&'static str),
    /// A field has an invalid value.
    #[error("{field}: {why}")]
    Field {
        field: String,
        /// The problem and the expected value.
        why: String,
    },
    /// The condition cannot be parsed.
    #[error("detection.condition: {0}")]
    Condition(String),
    /// The condition names a selection that does not exist.
    #[error("detection.condition names {0:?}, but no selection of the detection is called so")]
    NoSuchSelection(String),
}

impl RuleError {
    pub(crate) fn field(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Field { field: field.into(), why: why.into() }
    }
}

/// Failure of a call on the folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// The name is not a valid name of a rules file.
    #[error(
        "{0:?} is not the name of a rules file: letters, digits, dot, dash and underscore, \
         beginning with a letter or a digit and ending in .yml"
    )]
    Name(String),
    /// The file does not exist.
    #[error("{0}: no such rules file")]
    Missing(String),
    /// The file exists already.
    #[error("{0}: there is such a rules file already")]
    Exists(String),
    /// The content to be written is not a rule.
    #[error("{name}: {cause}")]
    Invalid {
        /// The file's name.
        name: String,
        /// The error in the rule.
        cause: RuleError,
    },
    /// Another file has a rule with this id.
    #[error("id: {id} is that of {other} already; draw a new one")]
    SameId {
        id: String,
        /// The other file's name.
        other: String,
    },
    #[error("the folder has {FILES_MAX} rules files already: delete one first")]
    Full,
    /// The file system failed.
    #[error("{}: {cause}", path.display())]
    Io { path: PathBuf, cause: io::Error },
}

impl FolderError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |cause| Self::Io { path, cause }
    }
}
