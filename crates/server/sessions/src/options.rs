//! Options and limits of the sessions side.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use env::clock::{Clock, SystemClock};
use silence::SilenceOptions;

/// A function that returns the process's metrics as Prometheus text.
pub type Renderer = Arc<dyn Fn() -> String + Send + Sync>;

/// Memory of requests in flight: 256 MiB (`docs/reference/wire.md`, "Sessions: limits").
pub(crate) const IN_FLIGHT_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Memory of small bodies in flight, in addition.
pub(crate) const SMALL_IN_FLIGHT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes of bodies in flight of one agent: two of the longest sessions.
pub(crate) const AGENT_SHARE_BYTES_MAX: usize = 2 * model::limits::SESSION_BYTES_MAX;
/// Default limit of series of one agent: a host reports about 100 of its own.
pub const AGENT_SERIES_MAX_DEFAULT: u64 = 2000;
/// Connections over TLS served at once.
pub(crate) const CONNECTIONS_MAX: usize = 1024;
/// Fewest and most connections above a limit that still get 503 with Retry-After; further ones are
/// closed.
const CONNECTIONS_REFUSED: (usize, usize) = (4, 64);
/// Connections on the unix socket served at once.
const LOCAL_CONNECTIONS_MAX: usize = 128;
/// Requests of one agent that may be running or waiting for the agent's lock.
pub(crate) const AGENT_REQUESTS_MAX: usize = 4;
/// Enrolments and renewals running at once.
pub(crate) const ENROLMENTS_MAX: usize = 8;
/// Longest request target, bytes.
pub(crate) const TARGET_BYTES_MAX: usize = 2048;
/// Most header fields of a request.
pub(crate) const HEADERS_MAX: usize = 64;
/// Most header fields that are parsed, so that the refusal of a few too many has a body.
pub(crate) const HEADERS_PARSED_MAX: usize = 4 * HEADERS_MAX;
/// Longest header of a request, names and values, bytes.
pub(crate) const HEADER_BYTES_MAX: usize = 16 * 1024;
/// Longest body of everything but sessions, reports and rows, bytes. Bodies up to this length have memory of their
/// own.
pub(crate) const SMALL_BODY_BYTES_MAX: usize = 64 * 1024;
/// Per-agent queues kept in memory; above this, idle ones are dropped.
pub(crate) const QUEUES_MAX: usize = 65_536;
/// Most documents in one answer about ranges.
pub(crate) const DIGEST_ITEMS_MAX: usize = 10_000;
/// Approximate size of a document in an answer, without its body, bytes.
pub(crate) const DIGEST_ITEM_BYTES: usize = 160;
/// Approximate size of the sum of one part of a range, bytes.
pub(crate) const DIGEST_PART_BYTES: usize = 40;
/// Bodies of documents in one answer about ranges, bytes; the range that exceeds it is still
/// completed.
pub(crate) const DIGEST_BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bodies of documents of one range, bytes; an answer with bodies reserves this much of the bytes
/// in flight.
pub(crate) const DIGEST_RANGE_BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most ranges in one request.
pub(crate) const DIGEST_RANGES_MAX: usize = 2_048;
/// Most parts of ranges in one answer.
pub(crate) const DIGEST_PARTS_MAX: usize = 32_768;
/// Bodies above this size are verified on a thread that may block, bytes.
pub(crate) const INLINE_BYTES_MAX: usize = 64 * 1024;
/// Bytes that are read and discarded from a rejected sender before the connection is closed: a
/// little more than the longest session.
pub(crate) const LINGER_BYTES_MAX: usize = model::limits::SESSION_BYTES_MAX + 4 * 1024 * 1024;

/// Returns the number of connections above a listener's limit of `connections_max` that are
/// accepted, in order to ask them to come back later.
pub fn refused_max(connections_max: usize) -> usize {
    let (least, most) = CONNECTIONS_REFUSED;
    (connections_max / 2).clamp(least, most)
}

/// Limits on what agents send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionsLimits {
    /// Memory of bodies and unread answers in flight, bytes.
    pub in_flight_bytes_max: usize,
    /// Memory that only bodies of up to 64 KiB use, bytes.
    pub small_in_flight_bytes_max: usize,
    /// Bytes of one agent's bodies in flight.
    pub agent_share_bytes_max: usize,
    /// Connections over TLS served at once.
    pub connections_max: usize,
    /// Connections on the unix socket served at once.
    pub local_connections_max: usize,
    /// Longest body of a session, bytes.
    pub session_bytes_max: usize,
    /// Most values in a session.
    pub session_values_max: usize,
    /// Requests of one agent that may be running or waiting for the agent's lock.
    pub agent_requests_max: usize,
    /// Value of Retry-After, seconds.
    pub retry_after_s: u64,
}

impl Default for SessionsLimits {
    fn default() -> Self {
        Self {
            in_flight_bytes_max: IN_FLIGHT_BYTES_MAX,
            small_in_flight_bytes_max: SMALL_IN_FLIGHT_BYTES_MAX,
            agent_share_bytes_max: AGENT_SHARE_BYTES_MAX,
            connections_max: CONNECTIONS_MAX,
            local_connections_max: LOCAL_CONNECTIONS_MAX,
            session_bytes_max: model::limits::SESSION_BYTES_MAX,
            session_values_max: model::limits::SESSION_VALUES_MAX,
            agent_requests_max: AGENT_REQUESTS_MAX,
            retry_after_s: 5,
        }
    }
}

/// Time limits for connections and requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    pub handshake: Duration,
    /// Time that a connection may stay idle: longer than a heartbeat's interval, or each heartbeat
    /// would cost a handshake.
    pub idle: Duration,
    /// Time to receive a request's header, counted from its first byte.
    pub header: Duration,
    /// Time to receive a request's body.
    pub body: Duration,
    /// The time from a request's header to its answer; above it, the answer is 504. Work that has
    /// begun is still completed.
    pub response: Duration,
    /// Time that an answer waits while the reader reads nothing; then the connection ends. A slow
    /// reader has [`Timeouts::response`] for the whole answer.
    pub unread: Duration,
    /// Time that a shutdown waits for running requests.
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

/// An extension of every request that is passed to [`SessionsOptions::local`]: the user id of the
/// process, from the kernel's credentials; already authorized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalCaller {
    pub uid: u32,
}

/// Options for starting the sessions side.
#[derive(Clone)]
pub struct SessionsOptions {
    /// Address for agents over TLS; `None`: no listener. Port 0 lets the system choose.
    pub https: Option<SocketAddr>,
    /// Names and addresses in the server's certificate in addition to the host's own.
    pub names: Vec<String>,
    /// Path of the socket for local callers; `None`: no listener. The file gets the mode 0660.
    pub unix: Option<PathBuf>,
    /// User ids whose processes may send for agents on the unix socket.
    pub allowed_uids: Vec<u32>,
    /// User ids among `allowed_uids` that may also use `local`, with an administrator's
    /// permissions.
    pub operator_uids: Vec<u32>,
    /// Limits on what agents send.
    pub limits: SessionsLimits,
    /// Time limits for connections and requests.
    pub timeouts: Timeouts,
    /// The limits of an agent's silence.
    pub silence: SilenceOptions,
    /// The clock for the times in records.
    pub clock: Arc<dyn Clock>,
    /// The answer to `GET /metrics` on the unix socket for callers that accept `text/plain`; other
    /// callers get this side's own counters as JSON.
    pub metrics: Option<Renderer>,
    /// The boot of this host as its own agent reports it (`link::Instance::boot`); empty when
    /// unknown. An agent on this boot need not wait until an instance of an earlier boot is silent
    /// for long enough.
    pub boot: String,
    /// The store for agents' metrics; without it `POST /series` returns 503.
    pub series: Option<series::Store>,
    /// Most series of one agent; rows of further series are refused.
    pub agent_series_max: u64,
    /// Serves only the routes of the contract, without `POST /digest`, as an older server does.
    pub contract_only: bool,
    /// The router for local callers of the unix socket for everything that is not a route of the
    /// agents' side; without one such requests get 404 or 405.
    pub local: Option<Router>,
}

impl Default for SessionsOptions {
    /// Returns options without a listener; root and the process's own user may use the unix socket.
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
            silence: SilenceOptions::default(),
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
