//! Limits of queries, each with its unit.

use std::time::Duration;

/// How long a query waits for a free connection before it is refused.
pub const READER_WAIT: Duration = Duration::from_secs(5);
/// How long one query may run before it is interrupted: a reader pins the write-ahead log.
pub const READ_TIME_MAX: Duration = Duration::from_secs(10);
