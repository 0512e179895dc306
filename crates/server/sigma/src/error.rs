//! What can be wrong with a rule, and with the folder of rules.

use std::io;
use std::path::{Path, PathBuf};

use crate::limits::{FILES_MAX, RULE_BYTES_MAX};

/// What is wrong with a rule; each names the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// Nothing in it.
    #[error("the file is empty")]
    Empty,
    /// Above the limit.
    #[error("{0} bytes are too many: a rule has at most {RULE_BYTES_MAX}")]
    TooLarge(usize),
    /// Not UTF-8.
    #[error("not UTF-8 text")]
    NotText,
    /// Not YAML, or more than one document.
    #[error("not one YAML document: {0}")]
    Yaml(String),
    /// YAML, but no rule.
    #[error("not a rule: its fields are names with values, beginning with title")]
    NotARule,
    /// A field that every rule has.
    #[error("{0} is missing: every rule has one")]
    Missing(&'static str),
    /// A field that is not as it must be.
    #[error("{field}: {why}")]
    Field {
        field: String,
        /// What is wrong and what would be right.
        why: String,
    },
    /// A condition that cannot be read.
    #[error("detection.condition: {0}")]
    Condition(String),
    /// A condition that names a selection that is not there.
    #[error("detection.condition names {0:?}, but no selection of the detection is called so")]
    NoSuchSelection(String),
}

impl RuleError {
    pub(crate) fn field(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Field { field: field.into(), why: why.into() }
    }
}

/// Why a call on the folder failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// Not a name that a rules file can have.
    #[error(
        "{0:?} is not the name of a rules file: letters, digits, dot, dash and underscore, \
         beginning with a letter or a digit and ending in .yml"
    )]
    Name(String),
    /// No such file.
    #[error("{0}: no such rules file")]
    Missing(String),
    /// There is such a file already.
    #[error("{0}: there is such a rules file already")]
    Exists(String),
    /// What was to be written is no rule.
    #[error("{name}: {cause}")]
    Invalid {
        /// The file's name.
        name: String,
        /// What is wrong.
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
