//! SQLite for the server's stores: settings of a connection, a pool of connections for queries that
//! is fair among users, the cost of their statements, and packed texts.

mod connection;
mod fair_readers;
pub mod limits;
mod meter;
mod packed;
mod pool;
mod reader;
mod system_errors;

pub use connection::{configure, expect_writable, is_failed_flush, keep_log};
pub use limits::READ_TIME_MAX;
pub use meter::{Charge, Meter};
pub use packed::{Packed, Unpacked, unpacked_sql};
pub use pool::ReaderPool;
pub use reader::{Cost, Reader, statements};
pub use system_errors::log_system_errors;
