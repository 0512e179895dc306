//! Limits of what a group may set, each with its unit. Where the agent has the same limit, it is
//! no wider here.

use std::time::Duration;

/// Longest text of one group, bytes.
pub const TEXT_BYTES_MAX: usize = 1024 * 1024;
/// Most watched paths of one group, and of all groups of an agent.
pub const WATCHES_MAX: usize = 1000;
/// Most bytes of paths, patterns and tags of all groups of an agent.
pub const WATCH_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Longest time between two samples of metrics.
pub const METRICS_INTERVAL_MAX: Duration = Duration::from_hours(24);
/// Most patterns of one path.
pub const PATTERNS_MAX: usize = 10_000;
/// Most patterns of one group, and of all groups of an agent.
pub const PATTERNS_ALL_MAX: usize = 20_000;
/// Longest path or pattern, bytes.
pub const PATH_BYTES_MAX: usize = 4096;
/// Most levels below a path.
pub const DEPTH_MAX: u32 = 2048;
/// Most days until unchanged content is read again.
pub const REHASH_DAYS_MAX: u32 = 3650;
/// Most elements, attributes and texts of an `agent_config`.
pub const XML_NODES_MAX: u32 = 100_000;
/// Shortest time between two scans, samples or checks.
pub const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Longest time between two scans, samples or checks: a year.
pub const INTERVAL_MAX: Duration = Duration::from_hours(365 * 24);
/// Shortest time between two heartbeats.
pub const HEARTBEAT_MIN: Duration = Duration::from_secs(1);
/// Longest time between two heartbeats: a third of the server's default disconnection time.
pub const HEARTBEAT_MAX: Duration = Duration::from_mins(5);
/// Fewest heartbeats within the silence after which a server considers an agent disconnected.
pub const BEATS_MIN: u32 = 3;
/// Most threads that read and hash.
pub const THREADS_MAX: u8 = 8;
/// Most bytes per second or of a file.
pub const BYTES_MAX: u64 = 1 << 50;
/// Largest queue, MiB.
pub const MIB_MAX: u32 = 1_048_576;
/// Most processes that are sampled by name.
pub const PROCESSES_MAX: usize = 64;
/// Longest name of a process, bytes (`TASK_COMM_LEN` less its end, proc(5)).
pub const PROCESS_BYTES_MAX: usize = 15;
