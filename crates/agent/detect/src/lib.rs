//! Detects changes of files: rules, walk, observation, comparison.
//!
//! A [`Scanner`] walks the roots of its [`Rules`], compares each directory with the
//! [`model::Baseline`] and passes the changes to a [`model::Sink`] in batches. It does not depend
//! on the queue or the protocol. Single directories and files are read by [`observe`].
//!
//! **Invariants.** Stat and content are always read through descriptors below the root's own
//! descriptor. No path is resolved through a symbolic link unless a rule says so. Only regular
//! files are opened for reading. A root or directory that cannot be read, is not mounted or lies on
//! another file system than before is a gap: its baseline stays, nothing below it is reported as
//! deleted. An interrupted first scan stays a first scan: the root's own item is written last.
//!
//! **Limits.** Memory use depends on the largest single directory and the depth, not on the tree.
//! Paths above [`model::limits::PATH_BYTES_MAX`] are not recorded; a coverage note names their
//! directory. Other limits: [`limits`].

mod check;
mod entry;
mod forget;
mod gaps;
mod interrupt;
pub mod limits;
mod merge;
mod mounts;
mod moves;
mod ports;
mod rehash;
mod report;
mod root;
mod scanner;
mod settle;
mod visit;
mod walk;
mod writer;

pub use observe::{Algorithm, Cancel, PoolError, SystemNames};
pub use ports::{DueChecks, Interrupt, NoChecks, ScanPorts};
pub use report::{
    CheckReport, Counts, Deferred, Gap, GapKind, Progress, ProgressCounts, RootReport, RootState,
    ScanError, ScanReport,
};
pub use rules::{Attribute, Rules, RulesError, Watch};
pub use scanner::{ScanBudget, ScanOptions, Scanner};
