//! Reads: a snapshot of parts and heads, scans and summaries of one series.
//!
//! The samples of a series in one partition come from parts, oldest first, then from heads. Of two
//! samples with the same time, the one from the later source is valid. Tombstones hide older
//! samples. Sources that cannot be read are skipped and reported with the result.

mod events;
mod extremes;
mod grid;
mod piece;
mod present;
mod rolled;
mod scan;
mod snapshot;
mod sorted;
mod summaries;
mod windows;

pub use events::EventScan;
pub use extremes::Extreme;
pub(crate) use piece::Span;
pub use scan::Scan;
pub use snapshot::Snapshot;
pub(crate) use snapshot::Source;
pub(crate) use windows::planned;
