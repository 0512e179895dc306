//! Reads: a snapshot of parts and heads, scans and summaries of one series.
//!
//! What a series has in one partition comes from parts, oldest first, then from heads; of two
//! samples with the same time the one from the later source holds. Tombstones hide what is older
//! than they. What cannot be read is passed over, and told beside the rest.

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
