//! The columns of documents and events, read from their JSON once when they are applied.

mod document;
mod event;
mod kind;
mod text;

pub use document::Columns;
pub use event::EventColumns;
pub use kind::EventKind;

/// Longest id of a cause and longest name of its package that are stored in columns, bytes.
pub const CAUSE_TEXT_BYTES_MAX: usize = 128;
/// Most programs of an event that are columns besides the one that is known.
pub const CANDIDATES_MAX: usize = 32;
