//! Limits of the state store, each with its unit.

/// Most items in one page of any query.
pub const PAGE_ITEMS_MAX: usize = 100_000;
/// Most tests in one condition, after `hash`-like shorthands are spelled out.
pub const CONDITION_TESTS_MAX: usize = 256;
/// Deepest nesting of a condition.
pub const CONDITION_DEPTH_MAX: usize = 32;
/// Longest name of a dataset, bytes.
pub const DATASET_NAME_BYTES_MAX: usize = 128;
/// Longest id of an event, bytes.
pub const EVENT_ID_BYTES_MAX: usize = 128;
/// Longest session id kept, bytes.
pub const SESSION_ID_BYTES_MAX: usize = 256;
/// Sessions of each agent that stay known by id and content: one of them again writes nothing.
pub const SESSIONS_KEPT: usize = 32;
/// How long events are kept by default, days.
pub const EVENT_AGE_DAYS: u64 = 400;
/// How many bytes of event bodies are kept by default: 20 GB.
pub const EVENT_BYTES_MAX: u64 = 20_000_000_000;
/// Events and tombstones that one transaction of retention drops at most.
pub const RETAIN_CHUNK_ROWS: usize = 5_000;
/// Connections for queries.
pub const READERS: usize = 4;
/// How many numbers are looked at for what arrived, before others may read.
pub const ARRIVALS_LOOKED_AT_MAX: u64 = 50_000;
/// How many candidates a path prefix may have before changes are searched by time instead.
pub const PREFIX_CANDIDATES_MAX: usize = 2_000;
/// Free space below which the operator is warned, bytes.
pub const DISK_LOW_BYTES: u64 = 1024 * 1024 * 1024;
/// Free space below which writes are refused, bytes.
pub const DISK_CRITICAL_BYTES: u64 = 128 * 1024 * 1024;
