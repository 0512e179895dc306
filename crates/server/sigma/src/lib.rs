//! Sigma detection rules as files of a folder: reads, checks, writes and caches them.
//!
//! # Invariants
//! - What [`RuleFolder::write_rule`] writes was read as a rule first, has an id that no other file
//!   has, and is whole after a power cut: a new file is persisted and then takes the old one's
//!   name.
//! - A name reaches the file system only if it is one plain name within the folder; links in the
//!   folder are not followed.
//! - The shipped rules are written at the first start only; later no file is added or changed
//!   unasked.
//! - A cached file is at most `ttl` old and was read after the last write of this process.
//!
//! Files written by other programs may not be rules: they are listed with their error.
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
