//! A write-ahead log over bytes: group commit, verified recovery, a meter.

mod bytes;
mod consumer;
mod core;
mod error;
mod folder;
mod format;
mod gate;
mod journal;
mod meter;
mod options;
mod place;
mod pool;
mod reader;
mod recover;
mod ring;
mod scan;
mod tools;
mod writer;

pub use consumer::Consumer;
pub use error::{AppendError, Damage, OpenError, ReadError};
pub use journal::Journal;
pub use meter::{Cut, Outcome, Recovery, Stats, TrimOutcome};
pub use options::*;
pub use reader::Reader;
pub use tools::{
    DumpedGroup, FolderStat, RepairReport, SegmentReport, VerifyReport, dump, dump_with, repair,
    repair_with, stat, stat_with, verify, verify_with,
};
