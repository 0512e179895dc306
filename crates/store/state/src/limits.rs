//! Limits of the state store, each with its unit.

/// Most items in one page of any query.
pub const PAGE_ITEMS_MAX: usize = 100_000;
/// Most tests in one condition, after `hash`-like shorthands are spelled out.
pub const CONDITION_TESTS_MAX: usize = 256;
/// Deepest nesting of a condition.
pub const CONDITION_DEPTH_MAX: usize = 32;
/// Longest name of a dataset, bytes.
pub const DATASET_NAME_BYTES_MAX: usize = 128;
/// Most datasets of one agent. Documents of a further one are skipped. The limits of datasets are
/// fixed, because a replay must skip what was skipped before.
pub const AGENT_DATASETS_MAX: u64 = 256;
/// Most datasets of all agents together. Documents of a further one are skipped.
pub const DATASETS_MAX: u64 = 4_096;
/// Longest id of an event, bytes.
pub const EVENT_ID_BYTES_MAX: usize = 128;
/// Most open gaps that one agent has reported. The start of a further one is stored as a gap that is
/// over. The limit is fixed, because a replay must open what was opened before.
pub const OPEN_GAPS_MAX: i64 = 1_000;
/// Late changes of an agent are counted up to this number.
pub const LATE_CHANGES_MAX: u64 = 100_000;
/// Longest session id kept, bytes.
pub const SESSION_ID_BYTES_MAX: usize = 256;
/// Sessions of each agent that are remembered by id and content; repeating one of them writes
/// nothing.
pub const SESSIONS_KEPT: usize = 32;
/// Default age up to which events are kept, days.
pub const EVENT_AGE_DAYS: u64 = 400;
/// Default size of the event bodies that are kept, bytes: 20 GB.
pub const EVENT_BYTES_MAX: u64 = 20_000_000_000;
/// Most events or tombstones that one part of a retention run deletes. The limit of tombstones is
/// fixed, because a replay must delete what was deleted before.
pub const RETAIN_CHUNK_ROWS: usize = 5_000;
/// Default size of the write-ahead log above which a checkpoint is due, bytes.
pub const WAL_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// Connections for queries.
pub const READERS: usize = 4;
/// Maximum event numbers that one call for arrivals examines, before other readers may run.
pub const ARRIVALS_LOOKED_AT_MAX: u64 = 50_000;
/// Maximum changes that one collapsed page examines; a page that reaches it is shorter.
pub const COLLAPSED_LOOKED_AT_MAX: usize = 100_000;
/// Maximum candidates of a path prefix; above it, changes are searched by time instead.
pub const PREFIX_CANDIDATES_MAX: usize = 2_000;
