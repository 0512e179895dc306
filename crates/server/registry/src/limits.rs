//! Limits and times of the registry, each with its unit.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The silence after which an ephemeral agent may be removed, seconds: 1 minute to 30 days.
pub const EPHEMERAL_SECONDS: RangeInclusive<u64> = 60..=30 * 24 * 3600;
/// Highest number that a caller may choose for an agent; drawn numbers continue after it.
pub const AGENT_NUMBER_MAX: u32 = 99_999_999;
/// Most groups; each has up to 1 MiB of configuration.
pub const GROUPS_MAX: usize = 4_096;
/// Shortest password, characters.
pub const PASSWORD_CHARS_MIN: usize = 8;
/// Longest password, characters.
pub const PASSWORD_CHARS_MAX: usize = 64;
/// Characters of the password generated at first start.
pub const PASSWORD_MADE_CHARS: usize = 24;
/// Life of an agent's certificate, seconds: 365 days.
pub const AGENT_CERTIFICATE_SECONDS: i64 = 365 * 24 * 3600;
/// Life of a server certificate, seconds: 397 days. A new one is issued at every start, and after
/// two thirds of its life.
pub const SERVER_CERTIFICATE_SECONDS: i64 = 397 * 24 * 3600;
/// A server certificate begins at most this long before it is issued, seconds: 400 days. Some
/// platforms refuse certificates that are valid for more than 825 days.
pub const SERVER_CERTIFICATE_BACKDATE_SECONDS: i64 = 400 * 24 * 3600;
/// Life of the certificate authority, seconds: 20 years.
pub const CA_SECONDS: i64 = 20 * 365 * 24 * 3600;
/// The certificate authority is valid from this long before it is made, seconds: a day, because a
/// machine whose hardware clock runs in local time is up to 14 hours off.
pub const CA_BACKDATE_SECONDS: i64 = 24 * 3600;
/// A certificate begins at least this long before it is issued, seconds: clocks differ.
pub const CLOCK_SKEW_SECONDS: i64 = 300;
/// Largest signing request, bytes of PEM.
pub const CSR_BYTES_MAX: usize = 16 * 1024;
/// Most sources of failed logins that are remembered; beyond it the oldest is forgotten.
pub const LOGIN_SOURCES_MAX: usize = 65_536;
/// Time without an answer after which a command is handed out again, seconds.
pub const COMMAND_REPEAT_SECONDS: u64 = 60;
/// Most commands in one answer to an agent; the rest follows with its next heartbeats.
pub const COMMANDS_AT_ONCE_MAX: usize = 16;
/// A command that at most this many agents have not answered is indexed by agent; heartbeats of
/// other agents do not examine it.
pub const COMMAND_AGENTS_FEW: u64 = 64;
/// Default time after which unanswered commands expire, seconds: 1 day.
pub const COMMAND_TTL_SECONDS: i64 = 24 * 3600;
/// Time for which a verified password is remembered.
pub const REMEMBERED_TIME: Duration = Duration::from_mins(1);
/// Most verified passwords that are remembered; further ones are verified each time.
pub const REMEMBERED_PASSWORDS_MAX: usize = 4_096;
/// Interval at which expired certificates and tokens are forgotten, seconds.
pub const FORGET_EVERY_SECONDS: u64 = 3600;
/// Most rows written in one transaction of a flush, so that other writes can run in between.
pub const FLUSH_ROWS_MAX: usize = 5_000;
/// Agents with a new keepalive only are written with every N-th flush.
pub const KEEPALIVE_FLUSHES: u32 = 12;
/// Bytes of an enrolment token's secret.
pub const TOKEN_SECRET_BYTES: usize = 32;
/// Most command outcomes that wait for a flush before unsolicited ones are dropped.
pub const OUTCOMES_WAITING_MAX: usize = 100_000;
/// Interval at which revocations written by another process are loaded, seconds.
pub const REVOCATIONS_RELOAD_SECONDS: u64 = 10;
/// Most sets of groups whose configuration's digest is kept in memory in addition to the agents'
/// own; about 200 bytes each.
pub const GROUP_SETS_KEPT_MAX: usize = 100_000;
/// Most bytes of merged configurations that are cached for the agents that fetch them.
pub const MERGED_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Time without a fetch after which a merged configuration is dropped.
pub const MERGED_IDLE: Duration = Duration::from_mins(5);
/// Time for which policies of a role set are cached, seconds.
pub const POLICIES_TTL_SECONDS: u64 = 10;
/// Most role sets whose policies are cached.
pub const POLICIES_KEPT_MAX: u64 = 1_000;
/// Longest time by which a token may be ahead of the clock, seconds: a day. A token further ahead
/// was issued before the clock was set back, and is refused.
pub const TOKEN_AHEAD_SECONDS_MAX: i64 = 24 * 3600;
/// Longest life of an API token, seconds: a year.
pub const TOKEN_TTL_SECONDS_MAX: u64 = 365 * 24 * 3600;
