//! The limits of the API, each with its unit.

use std::time::Duration;

/// Largest body of a request, bytes. Above it: 413.
pub const BODY_BYTES_MAX: usize = 10 * 1024 * 1024;
/// Largest body of a login, which comes from anybody, bytes. Above it: 413.
pub const LOGIN_BODY_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of bodies in memory at once; what does not fit: 503.
pub const BODIES_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The same of one user.
pub const BODIES_BYTES_EACH_MAX: usize = 24 * 1024 * 1024;
/// Largest body of a request over the unix socket, bytes: what is known of a whole fleet.
pub const LOCAL_BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Most bytes of those in memory at once.
pub const LOCAL_BODIES_BYTES_MAX: usize = 128 * 1024 * 1024;
/// The same of logins.
pub const LOGIN_BODIES_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The same of logins from one network (an IPv4 address, 64 bits of an IPv6 one).
pub const LOGIN_BODIES_BYTES_EACH_MAX: usize = 1024 * 1024;
/// Answers from this size on take their share of [`ANSWERS_BYTES_MAX`], bytes.
pub const LARGE_ANSWER_BYTES: usize = 256 * 1024;
/// Most bytes of large answers that wait for their readers; what does not fit: 503. Callers on the
/// unix socket have as much for themselves, here and below.
pub const ANSWERS_BYTES_MAX: usize = 256 * 1024 * 1024;
/// The same of one user; a larger answer has it to itself.
pub const ANSWERS_BYTES_EACH_MAX: usize = 64 * 1024 * 1024;
/// Lists at once that are sent while they are read; above it: 503.
pub const LISTS_MAX: usize = 64;
/// The same of one user.
pub const LISTS_EACH_MAX: usize = 8;
/// Digests of groups' files that are remembered.
pub const DIGESTS_KEPT_MAX: u64 = 16_384;
/// Event streams of one user at once; above it: 503.
pub const STREAMS_EACH_MAX: usize = 8;
/// Event streams at once; above it: 503.
pub const STREAMS_MAX: usize = 64;
/// What is taken and thrown away of a body that is refused, bytes, so that the answer arrives.
pub const REFUSED_BYTES_MAX: usize = 24 * 1024 * 1024;
/// For how long.
pub const REFUSED_TIME_MAX: Duration = Duration::from_secs(5);
/// Longest value of one parameter, bytes. Above it: 400. Numbers of agents and the like may take
/// all that a path may: 64 KiB over HTTP/1.1 (above it: 414), 16 KiB over HTTP/2 (431).
pub const PARAMETER_BYTES_MAX: usize = 8 * 1024;
/// How long a request may take unless it says `wait_for_complete`, milliseconds.
pub const REQUEST_TIMEOUT_MS: u64 = 10_000;
/// Store requests that run at once; others wait for their turn.
pub const RUNNING_MAX: usize = 16;
/// The same of one user; others wait for one of their own to end.
pub const RUNNING_EACH_MAX: usize = RUNNING_MAX / 2;
/// Store requests that run or wait; above it: 503.
pub const WAITING_MAX: usize = 1_024;
/// The same of one user.
pub const WAITING_EACH_MAX: usize = 256;
/// How long after its login a token may still be renewed, seconds: 12 hours.
pub const SESSION_SECONDS_MAX: i64 = 12 * 3600;
/// Verified tokens that are remembered.
pub const TOKENS_CACHED_MAX: u64 = 4_500;
/// Requests a minute from one address, loopback and the unix socket excepted. 0 switches it off.
pub const REQUESTS_PER_MINUTE_MAX: u32 = 300;
/// Requests a minute from all addresses together, loopback and the unix socket excepted. 0
/// switches it off.
pub const REQUESTS_PER_MINUTE_ALL_MAX: u32 = 6_000;
/// Rows of the audit log a minute for what one user did that changed nothing, refused or not; what is
/// beyond is only logged.
pub const IDLE_ROWS_MAX: u32 = 100;
