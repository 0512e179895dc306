//! The readers of the ingest crate, included as source, so that the fuzzers are built without the
//! crate's sockets.

pub use crate::collector::{CollectedRows, RowCollector};
pub use crate::influx::{Precision, read as influx_read};
pub use crate::remote::read as remote_read;
pub use crate::resp::RespReader;
pub use crate::telnet::TelnetReader;
