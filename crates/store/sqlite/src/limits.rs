//! Limits of queries, each with its unit.

use std::time::Duration;

/// Time that a query waits for a free connection before it is refused.
pub const READER_WAIT: Duration = Duration::from_secs(5);
/// Time after which a query is interrupted, because a reader keeps the write-ahead log from being
/// checkpointed.
pub const READ_TIME_MAX: Duration = Duration::from_secs(10);
