//! Causes: which package, or which tool of configuration management, accounts for a change.
//!
//! [`ExplainingSink`] stands between detection and queue and sets [`model::Change::cause`]. The rule
//! is in [`explainer`]: a package needs both its content and a writer that descends from dpkg. What
//! nothing accounts for stays unexplained.
//!
//! [`DpkgLock`] and [`is_by_dpkg`] let the caller hold names back until a transaction has ended, so
//! that dpkg's temporary names are not seen and its lists are complete.
//!
//! **Limits.** [`limits`]. The lists of packages are read only while packages changed recently, and
//! are dropped a minute after their last use. Without dpkg the cost is three calls of `stat` for a
//! batch of changes.
//!
//! **What a cause does not prove.** Root can change dpkg's lists and scripts. An unprivileged user
//! cannot: only processes that ran as root count. What opens a door (`doors.rs`) is unexplained, or
//! keeps its cause and has `attention`, unless dpkg itself wrote it.

mod account;
mod content;
mod doors;
pub mod explainer;
mod history;
pub mod limits;
mod lineage;
mod links;
mod lists;
mod lock;
mod log;
mod own;
mod program;
mod sink;
mod start;
mod status;
mod transient;

pub use account::is_by_dpkg;
pub use explainer::Explainer;
pub use lock::{DpkgLock, LockHolder};
pub use program::identity_paths;
pub use sink::ExplainingSink;
pub use start::is_altered;
pub use transient::transient_cause;
