//! Options of the registry.

use std::path::PathBuf;
use std::time::Duration;

use crate::limits::POLICIES_TTL_SECONDS;

/// Cost of one Argon2id password hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashCost {
    pub memory_kib: u32,
    /// Passes over the memory.
    pub passes: u32,
    pub lanes: u32,
}

impl Default for HashCost {
    /// 19 MiB, 2 passes, 1 lane: OWASP's first choice for Argon2id (Password Storage Cheat Sheet,
    /// 2024).
    fn default() -> Self {
        Self { memory_kib: 19 * 1024, passes: 2, lanes: 1 }
    }
}

/// Options of [`crate::Registry::open`].
#[derive(Debug, Clone)]
pub struct RegistryOptions {
    /// Name of the cluster, in every answer to agents and in every document.
    pub cluster_name: String,
    pub node_name: String,
    /// Silence after which an agent is disconnected, seconds.
    pub disconnection_s: u64,
    /// Interval at which [`crate::Registry::tick`] writes what agents reported to the database.
    pub flush_interval: Duration,
    /// Logins processed concurrently. The number of hashes computed at a time is also below the
    /// number of processors, but at least 1.
    pub login_workers: usize,
    /// Logins that may wait for a thread; further ones are refused.
    pub login_queue_max: usize,
    /// Failed logins from one address until it is blocked.
    pub login_attempts_max: u32,
    /// Time for which failures of an address are counted and the address stays blocked, seconds.
    pub login_block_s: u64,
    /// Cost of one password hash.
    pub hash_cost: HashCost,
    /// Life of a token, seconds; revocations are kept that long.
    pub token_ttl_s: u64,
    /// Latest time up to which earlier processes may have issued tokens, guarded time in seconds
    /// since the epoch: revocations cover these tokens even if the wall clock is behind that time
    /// now.
    pub tokens_until_s: Option<i64>,
    /// Time for which authorisation data is cached; at most ten seconds, zero disables the cache.
    pub cache_ttl: Duration,
    /// The file with the first administrator's password, removed when that password is changed.
    pub first_password_file: Option<PathBuf>,
    /// Returns the names and addresses of this host for its certificate.
    pub host_names: fn() -> Vec<String>,
}

impl Default for RegistryOptions {
    fn default() -> Self {
        Self {
            cluster_name: "holdfast".into(),
            node_name: "node01".into(),
            disconnection_s: 900,
            flush_interval: Duration::from_secs(5),
            login_workers: 2,
            login_queue_max: 64,
            login_attempts_max: 50,
            login_block_s: 300,
            hash_cost: HashCost::default(),
            token_ttl_s: 900,
            tokens_until_s: None,
            first_password_file: None,
            cache_ttl: Duration::from_secs(POLICIES_TTL_SECONDS),
            host_names: crate::host::names,
        }
    }
}
