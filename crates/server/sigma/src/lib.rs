//! Sigma detection rules as files of a folder: read, checked, written, kept in memory for a while.
//!
//! # Invariants
//! - What [`RuleFolder::put`] writes was read as a rule first, has an id that no other file has, and
//!   is whole after a power cut: a new file is persisted and then takes the old one's name.
//! - A name reaches the file system only if it is one plain name within the folder; links in the
//!   folder are not followed.
//! - A first start puts the shipped rules there; later nothing is put or changed unasked.
//! - What is kept in memory is at most `ttl` old and was read after the last write of this process.
//!
//! Files put by other hands may be no rules: they are listed with what is wrong with them.
//! Limits: [`limits`]. What a rule must be: `docs/reference/sigma.md`.

mod condition;
mod error;
mod folder;
pub mod limits;
mod rule;
mod shipped;

pub use error::{FolderError, RuleError};
pub use folder::{FolderCounts, RuleFile, RuleFolder, is_name};
pub use rule::{LEVELS, Rule, STATUSES};
