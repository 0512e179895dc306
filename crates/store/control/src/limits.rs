//! Limits of the registry, each with its unit in its name or its description.

/// Longest name of an agent or a group, characters.
pub const NAME_CHARS_MAX: usize = 128;
/// Shortest name of an agent, characters.
pub const NAME_CHARS_MIN: usize = 2;
/// Maximum number of groups of one agent.
pub const GROUPS_PER_AGENT_MAX: usize = 128;
/// Maximum number of enrolment tokens in force at a time.
pub const ENROLMENT_TOKENS_MAX: u64 = 1_000;
/// Maximum number of agents that may register with one enrolment token.
pub const ENROLMENT_TOKEN_USES_MAX: u32 = 1_000_000;
/// Longest life of an enrolment token, seconds: 365 days.
pub const ENROLMENT_TOKEN_TTL_SECONDS_MAX: u64 = 365 * 24 * 3600;
/// Maximum number of stored commands. Beyond it the oldest finished ones are deleted; if none is
/// finished, a new command is refused.
pub const COMMANDS_MAX: u64 = 1_000;
/// Maximum number of unfinished commands of one user, so that one user cannot use up
/// [`COMMANDS_MAX`].
pub const COMMANDS_USER_MAX: u64 = 500;
/// Maximum number of rows of the audit log; beyond it the oldest are deleted.
pub const AUDIT_ROWS_MAX: u64 = 1_000_000;
/// Maximum number of audit rows of actions that changed nothing. A user without permissions must
/// not push out the rows of changes.
pub const AUDIT_IDLE_ROWS_MAX: u64 = 100_000;
/// Longest detail of an audit row or an outcome, bytes; longer ones are cut at a character
/// boundary.
pub const DETAIL_BYTES_MAX: usize = 4096;
/// Maximum number of agents in a page.
pub const PAGE_ROWS_MAX: u64 = 100_000;
/// Default number of agents in a page.
pub const PAGE_ROWS_DEFAULT: u64 = 500;
/// Ids up to this one belong to the program: its users, roles and policies cannot be changed.
pub const RESERVED_ID_MAX: u32 = 99;
/// `lastKeepAlive` of agent 000: 9999-12-31T23:59:59Z, seconds since the epoch.
pub const SERVER_KEEPALIVE_S: i64 = 253_402_300_799;
/// The group that always exists.
pub const DEFAULT_GROUP: &str = "default";
/// The first user's name.
pub const ADMIN_USER: &str = "admin";
/// The first user's id.
pub const ADMIN_USER_ID: u32 = 1;
/// The role that may do everything.
pub const ROLE_ADMINISTRATOR: &str = "administrator";
/// The role that may read everything.
pub const ROLE_READONLY: &str = "readonly";
