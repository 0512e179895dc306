//! How to start the sessions side, and its limits.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use env::clock::{Clock, SystemClock};

/// Gives the process's metrics as Prometheus text.
pub type Renderer = Arc<dyn Fn() -> String + Send + Sync>;

/// Bytes of request bodies in flight: 256 MiB (`docs/reference/wire.md`, "Sessions: limits").
pub(crate) const IN_FLIGHT_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Most series of one agent, unless said otherwise: a host tells about 100 of its own.
pub const AGENT_SERIES_MAX_DEFAULT: u64 = 2000;
/// Connections over TLS served at once.
pub(crate) const CONNECTIONS_MAX: usize = 1024;
/// Connections beyond it that are still told to come back later; further ones are closed.
pub(crate) const CONNECTIONS_TOLD_MAX: usize = 64;
/// Connections on the unix socket served at once.
pub(crate) const LOCAL_CONNECTIONS_MAX: usize = 128;
/// Requests of one agent that may be in work or waiting for their turn.
pub(crate) const AGENT_REQUESTS_MAX: usize = 4;
/// Enrolments and renewals in work at once.
pub(crate) const ENROLMENTS_MAX: usize = 8;
/// Longest request target, bytes.
pub(crate) const TARGET_BYTES_MAX: usize = 2048;
/// Most header fields of a request.
pub(crate) const HEADERS_MAX: usize = 64;
/// Longest header of a request, names and values, bytes.
pub(crate) const HEADER_BYTES_MAX: usize = 16 * 1024;
/// Longest body of everything but sessions, bytes.
pub(crate) const SMALL_BODY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of all `/stats` and `/config` kept in memory.
pub(crate) const REPORT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// What keeping one of them costs beside its text, bytes.
pub(crate) const REPORT_OVERHEAD_BYTES: usize = 256;
/// Per-agent queues kept in memory; above this, idle ones are dropped.
pub(crate) const QUEUES_MAX: usize = 65_536;
/// Most documents in one answer about ranges.
pub(crate) const DIGEST_ITEMS_MAX: usize = 10_000;
/// What one of them takes in an answer without its body, about, bytes.
pub(crate) const DIGEST_ITEM_BYTES: usize = 160;
/// What the sum of one part of a range takes, about, bytes.
pub(crate) const DIGEST_PART_BYTES: usize = 40;
/// Bodies of documents in one answer about ranges, bytes; the range that passes it is still whole.
pub(crate) const DIGEST_BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bodies of documents of one range, bytes; such an answer counts so much among the bytes in
/// flight.
pub(crate) const DIGEST_RANGE_BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most ranges in one question.
pub(crate) const DIGEST_RANGES_MAX: usize = 2_048;
/// Most parts of ranges in one answer.
pub(crate) const DIGEST_PARTS_MAX: usize = 32_768;
/// Bodies above this are verified on a thread that may block, bytes.
pub(crate) const INLINE_BYTES_MAX: usize = 64 * 1024;
/// What a sender that was turned away may still send, and is thrown away unread, before the
/// connection is closed, bytes: a little more than the longest session.
pub(crate) const LINGER_BYTES_MAX: usize = model::limits::SESSION_BYTES_MAX + 4 * 1024 * 1024;

/// What is taken at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionsLimits {
    /// Bytes of request bodies in flight.
    pub in_flight_bytes_max: usize,
    /// Connections over TLS served at once.
    pub connections_max: usize,
    /// Longest body of a session, bytes.
    pub session_bytes_max: usize,
    /// Most values in a session.
    pub session_values_max: usize,
    /// Requests of one agent that may be in work or waiting for their turn.
    pub agent_requests_max: usize,
    /// What Retry-After says, seconds.
    pub retry_after_s: u64,
}

impl Default for SessionsLimits {
    fn default() -> Self {
        Self {
            in_flight_bytes_max: IN_FLIGHT_BYTES_MAX,
            connections_max: CONNECTIONS_MAX,
            session_bytes_max: model::limits::SESSION_BYTES_MAX,
            session_values_max: model::limits::SESSION_VALUES_MAX,
            agent_requests_max: AGENT_REQUESTS_MAX,
            retry_after_s: 5,
        }
    }
}

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    pub handshake: Duration,
    /// How long a connection may stay idle: longer than a heartbeat's interval, or each heartbeat
    /// would cost a handshake.
    pub idle: Duration,
    /// A request's header, from its first byte on.
    pub header: Duration,
    /// A request's body.
    pub body: Duration,
    /// From header to answer; then 504. What was begun is finished all the same.
    pub response: Duration,
    /// How long an answer waits for a reader that takes nothing of it; then the connection ends.
    /// One that takes it slowly has [`Timeouts::response`] for the whole.
    pub unread: Duration,
    /// How long stopping waits for requests in work.
    pub shutdown: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            idle: Duration::from_mins(1),
            header: Duration::from_secs(10),
            body: Duration::from_secs(30),
            response: Duration::from_mins(5),
            unread: Duration::from_secs(30),
            shutdown: Duration::from_secs(10),
        }
    }
}

/// Put on every request that is handed to [`SessionsOptions::local`]: whose process asks, as the
/// kernel names it; admitted already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalCaller {
    pub uid: u32,
}

/// How to start.
#[derive(Clone)]
pub struct SessionsOptions {
    /// Where to take agents over TLS; `None`: nowhere. Port 0 lets the system choose.
    pub https: Option<SocketAddr>,
    /// Names and addresses in the server's certificate besides the host's own.
    pub names: Vec<String>,
    /// Where to take local callers; `None`: nowhere. The file gets the mode 0660.
    pub unix: Option<PathBuf>,
    /// User ids whose processes may speak for agents on the unix socket.
    pub allowed_uids: Vec<u32>,
    /// Those of them that may ask everything else, too: what `local` answers is an administrator's.
    pub operator_uids: Vec<u32>,
    /// What is taken at most.
    pub limits: SessionsLimits,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// The time that records carry.
    pub clock: Arc<dyn Clock>,
    /// What `GET /metrics` answers on the unix socket to whoever accepts `text/plain`; everybody
    /// else gets this side's own counters as JSON.
    pub metrics: Option<Renderer>,
    /// The boot of this host as its own agent names it (`link::Instance::boot`); empty when
    /// unknown. An agent on this very boot need not wait for the silence of one on an earlier boot.
    pub boot: String,
    /// Where agents' metrics go; without it `POST /series` is 503.
    pub series: Option<series::Store>,
    /// Most series of one agent; rows of new ones beyond are refused.
    pub agent_series_max: u64,
    /// Only the routes of the contract, as an older server has them: no `POST /digest`.
    pub contract_only: bool,
    /// What answers local callers of the unix socket for everything that is not a route of the
    /// agents' side; without one that is 404 or 405.
    pub local: Option<Router>,
}

impl Default for SessionsOptions {
    /// No listener; root and the process's own user on the unix socket.
    fn default() -> Self {
        let mut allowed_uids = vec![0, rustix::process::geteuid().as_raw()];
        allowed_uids.dedup();
        Self {
            https: None,
            names: Vec::new(),
            unix: None,
            operator_uids: allowed_uids.clone(),
            allowed_uids,
            limits: SessionsLimits::default(),
            timeouts: Timeouts::default(),
            clock: Arc::new(SystemClock::new()),
            metrics: None,
            boot: String::new(),
            series: None,
            agent_series_max: AGENT_SERIES_MAX_DEFAULT,
            contract_only: false,
            local: None,
        }
    }
}
