//! The limits of the API, each with its unit.

use std::time::Duration;

/// Largest body of a request, bytes. Above it: 413.
pub const BODY_BYTES_MAX: usize = 10 * 1024 * 1024;
/// Largest body of a login, bytes; lower because logins need no token. Above it: 413.
pub const LOGIN_BODY_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of request bodies in memory at once; above it: 503.
pub const BODIES_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Most bytes of request bodies of one user in memory at once.
pub const BODIES_BYTES_EACH_MAX: usize = 24 * 1024 * 1024;
/// Largest body of a request over the unix socket, bytes; large enough for the data of a whole fleet.
pub const LOCAL_BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Most bytes of bodies from the unix socket in memory at once.
pub const LOCAL_BODIES_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Most bytes of bodies of logins in memory at once.
pub const LOGIN_BODIES_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most bytes of bodies of logins from one network (an IPv4 address, 64 bits of an IPv6 one).
pub const LOGIN_BODIES_BYTES_EACH_MAX: usize = 1024 * 1024;
/// Size from which an answer counts towards [`ANSWERS_BYTES_MAX`], bytes.
pub const LARGE_ANSWER_BYTES: usize = 256 * 1024;
/// Most bytes of large answers that wait for their readers; above it: 503. Each caller on the unix
/// socket has a quota of the same size; this also holds for the limits below.
pub const ANSWERS_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Most bytes of large answers of one user; a larger answer takes the whole quota.
pub const ANSWERS_BYTES_EACH_MAX: usize = 64 * 1024 * 1024;
/// Lists that are streamed at once; above it: 503.
pub const LISTS_MAX: usize = 64;
/// Lists of one user that are streamed at once.
pub const LISTS_EACH_MAX: usize = 8;
/// Number of cached digests of groups' files.
pub const DIGESTS_KEPT_MAX: u64 = 16_384;
/// Event streams of one user at once; above it: 503.
pub const STREAMS_EACH_MAX: usize = 8;
/// Event streams at once; above it: 503.
pub const STREAMS_MAX: usize = 64;
/// Most bytes read and discarded of a refused body, so that the client receives the answer.
pub const REFUSED_BYTES_MAX: usize = 24 * 1024 * 1024;
/// Longest time spent reading and discarding a refused body.
pub const REFUSED_TIME_MAX: Duration = Duration::from_secs(5);
/// Longest value of one parameter, bytes. Above it: 400. Lists of agent numbers and similar ids may
/// fill the whole path: 64 KiB over HTTP/1.1 (above it: 414), 16 KiB over HTTP/2 (431).
pub const PARAMETER_BYTES_MAX: usize = 8 * 1024;
/// Default time limit of a request without `wait_for_complete`, milliseconds.
pub const REQUEST_TIMEOUT_MS: u64 = 10_000;
/// Store requests that run at once; further ones wait for a permit.
pub const RUNNING_MAX: usize = 16;
/// Store requests of one user that run at once.
pub const RUNNING_EACH_MAX: usize = RUNNING_MAX / 2;
/// Store requests that run or wait; above it: 503.
pub const WAITING_MAX: usize = 1_024;
/// Store requests of one user that run or wait.
pub const WAITING_EACH_MAX: usize = 256;
/// Time after the login during which a token can be renewed, seconds: 12 hours.
pub const SESSION_SECONDS_MAX: i64 = 12 * 3600;
/// Number of cached verified tokens.
pub const TOKENS_CACHED_MAX: u64 = 4_500;
/// Requests per minute from one address, except loopback and the unix socket. 0 disables the limit.
pub const REQUESTS_PER_MINUTE_MAX: u32 = 300;
/// Requests per minute from all addresses together, except loopback and the unix socket. 0 disables the
/// limit.
pub const REQUESTS_PER_MINUTE_ALL_MAX: u32 = 6_000;
/// Requests per minute of one user to `/series/prometheus`, which do not count by address.
pub const REQUESTS_PER_MINUTE_USER_MAX: u32 = 6_000;
/// Largest body of a request to `/series/prometheus`, bytes. Above it: 413.
pub const PROMETHEUS_BODY_BYTES_MAX: usize = 1024 * 1024;
/// Audit log rows per minute for requests of one user that changed nothing, refused or not; further
/// ones are only logged.
pub const IDLE_ROWS_MAX: u32 = 100;
