//! What goes wrong: one code, HTTP status, text and remedy each, as `application/problem+json`.
//!
//! The numbers are those that clients of the 4.x API know; the texts are ours.

use std::borrow::Cow;

use axum::http::StatusCode;
use registry::{RegistryError, RegistryStoreError};
use serde_json::{Map, Value, json};
use state::StateError;

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) title: &'static str,
    pub(crate) detail: String,
    pub(crate) remediation: Option<Cow<'static, str>>,
    /// Absent where a request does not fit the description.
    pub(crate) code: Option<u16>,
    /// `Retry-After`, seconds.
    pub(crate) retry_after_s: Option<u64>,
    /// `Allow`, for 405.
    pub(crate) allow: Option<String>,
}

/// One row of the table of codes.
struct Row {
    code: u16,
    status: StatusCode,
    text: &'static str,
    remedy: &'static str,
}

const fn row(code: u16, status: StatusCode, text: &'static str, remedy: &'static str) -> Row {
    Row { code, status, text, remedy }
}

const BAD: StatusCode = StatusCode::BAD_REQUEST;

/// Most ids that one failure names.
const NAMED_MAX: usize = 20;

/// What a code without a row of its own would be.
const INTERNAL: Row = row(
    1000,
    StatusCode::INTERNAL_SERVER_ERROR,
    "the server failed to answer",
    "look into the server's log",
);

/// Every code that the API answers.
const TABLE: &[Row] = &[
    INTERNAL,
    row(
        1017,
        StatusCode::SERVICE_UNAVAILABLE,
        "the server is not ready for this request",
        "try again a little later",
    ),
    row(1704, BAD, "no agent matches what was asked", "name an existing agent"),
    row(
        1705,
        BAD,
        "there is an agent with the same name already",
        "choose another name, or remove the other agent first",
    ),
    row(
        1706,
        BAD,
        "there is an agent with the same address already, or the address is not one",
        "use another address, or any",
    ),
    row(
        1708,
        BAD,
        "there is an agent with the same number already",
        "leave the number out to draw the next",
    ),
    row(1709, BAD, "the key is too short", "give a key of at least 64 characters"),
    row(1711, BAD, "group already exists", "choose another name"),
    row(1712, BAD, "the group default cannot be deleted", "leave it out"),
    row(1713, BAD, "not a name that a group may have", "choose another name than ., .. and all"),
    row(1731, BAD, "agent does not match the filters", "look at the agent and change the filters"),
    row(
        1734,
        BAD,
        "agent is not in the group",
        "GET /groups/GROUP/agents lists the agents of a group",
    ),
    row(1737, BAD, "an agent can be in at most 128 groups", "remove it from another group first"),
    row(1738, BAD, "the name of an agent is 2 to 128 of A-Z a-z 0-9 . _ -", "choose another name"),
    row(
        1745,
        BAD,
        "the agent is in no other group than default",
        "put it into another group instead",
    ),
    row(
        1760,
        BAD,
        "only possible for agents of versions below 3.12, of which there are none here",
        "remove the agent to clear what is known of it",
    ),
    row(
        1005,
        BAD,
        "the file cannot be read or written",
        "let the server's user read and write the file and its folder",
    ),
    row(
        1006,
        BAD,
        "there is no configuration file",
        "start the server with `holdfast server --config FILE`",
    ),
    row(1103, BAD, "no such field", "leave field out to see those there are"),
    row(1106, BAD, "no such section", "leave section out to see those there are"),
    row(
        1125,
        BAD,
        "not a configuration that this server can run with",
        "mend what the message names; `holdfast config check server FILE` says the same",
    ),
    row(1112, BAD, "the file is empty", "send the file as the body"),
    row(1113, BAD, "not a Sigma rule", "mend what the message names and send it again"),
    row(
        1114,
        BAD,
        "not a configuration that a group may have",
        "mend the line that the message names; docs/reference/groups.md says what may stand there",
    ),
    row(1415, BAD, "no such rules file", "GET /rules/files lists the files"),
    row(1905, BAD, "the file exists already", "add overwrite=true to replace it"),
    row(1906, BAD, "no such rules file", "GET /rules/files lists the files"),
    row(3013, BAD, "there is no cluster: this server runs alone", "ask /manager instead"),
    row(3022, BAD, "no such node", "GET /cluster/nodes lists the nodes"),
    row(1403, BAD, "not a field to sort by", "name one of the fields that the detail lists"),
    row(1405, BAD, "limit is above the maximum of 100000", "ask for pages with offset and limit"),
    row(1406, BAD, "limit must be at least 1", "leave limit away for the default"),
    row(
        1407,
        BAD,
        "q is not understood",
        "write field, operator and value, joined with ; (and) or , (or)",
    ),
    row(1408, BAD, "q names a field that there is not", "name one of the fields of an item"),
    row(1409, BAD, "q has no such operator", "use one of = != < > ~"),
    row(1411, BAD, "not a timeframe", "write a number with d, h, m or s, for example 7d"),
    row(1412, BAD, "not a date", "write RFC 3339, for example 2026-11-21T18:52:02Z"),
    row(1701, StatusCode::NOT_FOUND, "agent does not exist", "GET /agents lists the agents"),
    row(1703, BAD, "not possible for agent 000, the server itself", "name another agent"),
    row(1707, BAD, "agent is not active", "wait until the agent is connected"),
    row(1710, StatusCode::NOT_FOUND, "group does not exist", "name one of the existing groups"),
    row(1722, BAD, "not a name of a group", "use letters, digits, dot, dash and underscore"),
    row(1724, BAD, "not a field to select", "name one of the fields that the detail lists"),
    row(
        3021,
        StatusCode::INTERNAL_SERVER_ERROR,
        "the request took too long",
        "ask for less, or add wait_for_complete=true",
    ),
    row(
        4000,
        StatusCode::FORBIDDEN,
        "permission denied",
        "ask an administrator for a role that allows it",
    ),
    row(4001, BAD, "the request changes nothing", "name what is to be changed"),
    row(4002, StatusCode::NOT_FOUND, "role does not exist", "GET /security/roles lists the roles"),
    row(
        4003,
        BAD,
        "not a name, or not a rule",
        "use 1 to 64 characters, and operators with objects for a rule",
    ),
    row(4005, BAD, "there is such a name or rule already", "choose another name or rule"),
    row(4006, BAD, "not a policy", "give actions, resources and the effect allow or deny"),
    row(
        4007,
        StatusCode::NOT_FOUND,
        "policy does not exist",
        "GET /security/policies lists the policies",
    ),
    row(
        4008,
        BAD,
        "it belongs to the program and cannot be changed",
        "make one of your own: its number is above 99",
    ),
    row(
        4009,
        BAD,
        "there is such a policy already",
        "use the one there is, or choose another name",
    ),
    row(4010, BAD, "the role does not have this policy", "GET /security/roles shows what it has"),
    row(
        4011,
        BAD,
        "the role has this policy already",
        "take it away first to move it to another place",
    ),
    row(4013, BAD, "there is a policy of this name already", "choose another name"),
    row(4016, BAD, "the user does not have this role", "GET /security/users shows what it has"),
    row(
        4017,
        BAD,
        "the user has this role already",
        "take it away first to move it to another place",
    ),
    row(
        4022,
        StatusCode::NOT_FOUND,
        "security rule does not exist",
        "GET /security/rules lists the rules",
    ),
    row(4023, BAD, "the rule gives this role already", "nothing is left to do"),
    row(4024, BAD, "the rule does not give this role", "GET /security/roles shows what gives it"),
    row(5000, BAD, "there is a user of this name already", "choose another name"),
    row(5001, StatusCode::NOT_FOUND, "user does not exist", "GET /security/users lists the users"),
    row(
        5004,
        BAD,
        "the user belongs to the program and cannot be changed",
        "create a user of your own",
    ),
    row(
        5007,
        BAD,
        "the password needs 8 to 64 characters with a lower-case and an upper-case letter, a digit \
         and a symbol",
        "choose another password",
    ),
    row(5008, BAD, "nobody can delete their own account", "ask another administrator"),
    row(5009, BAD, "the password needs 8 to 64 characters", "choose another password"),
    row(5011, BAD, "only the user itself may change this password", "log in as that user"),
    row(
        6000,
        StatusCode::FORBIDDEN,
        "Limit of login attempts reached. The current IP has been blocked due to a high number of \
         login attempts",
        "wait until the block ends",
    ),
    row(
        6001,
        StatusCode::TOO_MANY_REQUESTS,
        "too many requests in this minute",
        "wait, or raise the limit in the server's configuration",
    ),
    row(
        6002,
        StatusCode::NOT_ACCEPTABLE,
        "this operation takes another content type",
        "send the body as one that it takes",
    ),
    row(
        6004,
        StatusCode::FORBIDDEN,
        "this user may not log in with an authorization context",
        "ask an administrator for PUT /security/users/{user_id}/run_as",
    ),
];

/// Where the cause of a failure is told: no file is written, whoever runs the server keeps it.
const LOGFILE: &str = "the server's standard error, GET /manager/logs";

/// Codes of the entrance, which no node is to blame for.
const LIMITS: std::ops::RangeInclusive<u16> = 6000..=6999;

fn find(code: u16) -> &'static Row {
    TABLE.iter().find(|row| row.code == code).unwrap_or(&INTERNAL)
}

impl Failure {
    /// The failure of a code, with the table's text.
    pub(crate) fn code(code: u16) -> Self {
        Self::detailed(code, find(code).text)
    }

    /// The failure of a code, with a text of its own.
    pub(crate) fn detailed(code: u16, detail: impl Into<String>) -> Self {
        let row = find(code);
        Self {
            status: row.status,
            title: title(row.status),
            detail: detail.into(),
            remediation: Some(row.remedy.into()),
            code: Some(row.code),
            retry_after_s: None,
            allow: None,
        }
    }

    /// The roles do not allow it on this type of resource.
    pub(crate) fn denied(kind: &str) -> Self {
        Self::detailed(4000, format!("Permission denied: Resource type: {kind}"))
    }

    /// The roles do not allow it on any of these things.
    pub(crate) fn denied_on(kind: &str, ids: &[String]) -> Self {
        let mut named =
            ids.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
        if ids.len() > NAMED_MAX {
            named.push_str(", ...");
        }
        Self::detailed(4000, format!("Permission denied: Resource type: {kind}, ids: {named}"))
    }

    /// A failure without a number.
    pub(crate) fn plain(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            title: title(status),
            detail: detail.into(),
            remediation: None,
            code: None,
            retry_after_s: None,
            allow: None,
        }
    }

    /// The request does not fit the description.
    pub(crate) fn bad(detail: impl Into<String>) -> Self {
        Self::plain(BAD, detail)
    }

    /// Nobody is logged in.
    pub(crate) fn unauthorized(detail: &str) -> Self {
        Self::plain(StatusCode::UNAUTHORIZED, detail)
    }

    /// Something of the server's own failed: the cause goes to the log, not to the caller.
    pub(crate) fn internal(cause: &dyn std::fmt::Display) -> Self {
        tracing::error!("request failed: {cause}");
        Self::code(1000)
    }

    /// The server has too much to do.
    pub(crate) fn busy(detail: &str, retry_after_s: u64) -> Self {
        let mut failure = Self::detailed(1017, detail);
        failure.retry_after_s = Some(retry_after_s);
        failure
    }

    pub(crate) fn unknown_path() -> Self {
        Self::plain(StatusCode::NOT_FOUND, "404: Not Found")
    }

    /// No such object at a path that exists.
    pub(crate) fn missing(detail: impl Into<String>) -> Self {
        Self::plain(StatusCode::NOT_FOUND, detail)
    }

    /// The body of the answer.
    pub(crate) fn body(&self, node: &str) -> Value {
        let mut fields = Map::new();
        fields.insert("title".into(), self.title.into());
        fields.insert("detail".into(), self.detail.as_str().into());
        if let Some(remedy) = &self.remediation {
            fields.insert("remediation".into(), remedy.as_ref().into());
        }
        if self.code.is_some_and(|code| !LIMITS.contains(&code)) {
            fields.insert(
                "dapi_errors".into(),
                json!({node: {"error": self.detail, "logfile": LOGFILE}}),
            );
        }
        if let Some(code) = self.code {
            fields.insert("error".into(), code.into());
        }
        Value::Object(fields)
    }
}

/// Every number with its HTTP status, text and remedy, ascending: for the reference.
pub fn error_codes() -> Vec<(u16, u16, &'static str, &'static str)> {
    let row = |row: &Row| (row.code, row.status.as_u16(), row.text, row.remedy);
    let mut rows: Vec<_> = TABLE.iter().map(row).collect();
    rows.sort_unstable();
    rows
}

/// Text and remedy of a code, for `failed_items`.
pub(crate) fn text_of(code: u16) -> (&'static str, &'static str) {
    let row = find(code);
    (row.text, row.remedy)
}

fn title(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "Bad Request",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Permission Denied",
        StatusCode::NOT_FOUND => "Not Found",
        StatusCode::METHOD_NOT_ALLOWED => "Method Not Allowed",
        StatusCode::NOT_ACCEPTABLE => "Not Acceptable",
        StatusCode::REQUEST_TIMEOUT => "Request Timeout",
        StatusCode::PAYLOAD_TOO_LARGE => "Request Entity Too Large",
        StatusCode::EXPECTATION_FAILED => "Expectation Failed",
        StatusCode::TOO_MANY_REQUESTS => "Too Many Requests",
        StatusCode::SERVICE_UNAVAILABLE => "Service Unavailable",
        _ => "Internal Server Error",
    }
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Cursor | StateError::Query(_) => Self::bad(error.to_string()),
            StateError::Busy { .. } | StateError::Full { .. } => {
                tracing::warn!("state: {error}");
                Self::busy("the state is too busy or its disk is full", 1)
            }
            StateError::TooLong { .. } => Self::code(3021),
            other => Self::internal(&other),
        }
    }
}

impl From<RegistryError> for Failure {
    fn from(error: RegistryError) -> Self {
        match error {
            RegistryError::Store(RegistryStoreError::NotFound { what: "agent", .. }) => {
                Self::code(1701)
            }
            RegistryError::Store(RegistryStoreError::NotFound { what: "group", name }) => {
                Self::detailed(1710, format!("group does not exist: {name}"))
            }
            RegistryError::Store(
                ref refused @ (RegistryStoreError::Refused(_)
                | RegistryStoreError::Limit { .. }
                | RegistryStoreError::NotFound { .. }
                | RegistryStoreError::Exists { .. }),
            ) => Self::bad(refused.to_string()),
            RegistryError::Refused(text) => Self::bad(text),
            RegistryError::Settings(error) => Self::detailed(1114, error.to_string()),
            RegistryError::Password(rule) => Self::detailed(5007, rule.to_string()),
            RegistryError::Store(ref error) if error.is_too_long() => Self::code(3021),
            error if error.is_transient() => {
                tracing::warn!("registry: {error}");
                Self::busy("the registry is too busy or its disk is full", 1)
            }
            other => Self::internal(&other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_code_stands_twice_and_each_has_its_own_row() {
        for row in TABLE {
            assert_eq!(TABLE.iter().filter(|other| other.code == row.code).count(), 1);
            assert_eq!(Failure::code(row.code).code, Some(row.code));
            assert_ne!(title(row.status), "");
        }
    }

    #[test]
    fn a_problem_names_the_node_and_the_number() {
        let body = Failure::detailed(1405, "500000 is greater than the maximum of 100000");
        let body = body.body("node01");
        assert_eq!(body["title"], "Bad Request");
        assert_eq!(body["error"], 1405);
        assert!(body["dapi_errors"]["node01"]["error"].as_str().unwrap().contains("500000"));
        assert_eq!(body["dapi_errors"]["node01"]["logfile"], LOGFILE);
        let body = Failure::unauthorized("Invalid token").body("node01");
        assert_eq!(body, json!({"title": "Unauthorized", "detail": "Invalid token"}));
    }

    #[test]
    fn a_busy_database_is_a_reason_to_come_back_and_a_long_query_is_not() {
        let sqlite = |code| {
            let error = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
            Failure::from(RegistryError::from(RegistryStoreError::Sqlite(error)))
        };
        let what = || "read".to_owned();
        let busy = [
            sqlite(rusqlite::ffi::SQLITE_BUSY),
            sqlite(rusqlite::ffi::SQLITE_FULL),
            Failure::from(RegistryError::from(RegistryStoreError::Busy)),
            Failure::from(StateError::Busy { what: what() }),
        ];
        for failure in busy {
            assert_eq!((failure.code, failure.retry_after_s), (Some(1017), Some(1)), "{failure:?}");
        }
        for failure in [
            sqlite(rusqlite::ffi::SQLITE_INTERRUPT),
            Failure::from(StateError::TooLong { what: what() }),
        ] {
            assert_eq!((failure.code, failure.retry_after_s), (Some(3021), None), "{failure:?}");
        }
        assert_eq!(sqlite(rusqlite::ffi::SQLITE_CORRUPT).code, Some(1000));
    }
}
