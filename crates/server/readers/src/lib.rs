//! Readers of metric protocols: bytes become rows of the series store.
//!
//! [`RespReader`], [`TelnetReader`], [`put`], [`influx`] and [`remote`] add rows to a
//! [`RowCollector`], which returns batches and refusals. Nothing here knows of sockets or files.
//!
//! # Invariants
//! - A refused row does not affect the rows around it, and leaves no series behind.
//! - No input causes a panic or exceeds the limits.
//!
//! # Limits
//! Each limit is a constant of its module: lines, items, dictionaries.

mod collector;
pub mod influx;
mod number;
mod protobuf;
pub mod put;
pub mod remote;
mod resp;
mod telnet;

pub use collector::{CollectedRows, REFUSALS_MAX, RowCollector, RowRefusal};
pub use resp::{
    DICTIONARIES_ENTRIES_MAX, DICTIONARY_ENTRIES_MAX, DictionaryQuota, ITEM_BYTES_MAX, RespReader,
    STALE, is_resp_name,
};
pub use telnet::{LINE_BYTES_MAX, ReadUntilAsked, TelnetCommand, TelnetReader};
