//! The readers of the ingest crate, without its sockets: included by the fuzzers, so that they need
//! not be built with them.

pub use crate::collector::{CollectedRows, RowCollector};
pub use crate::influx::{Precision, read as influx_read};
pub use crate::remote::read as remote_read;
pub use crate::resp::RespReader;
pub use crate::telnet::TelnetReader;
