//! Failures of requests, sent as `application/problem+json`.

use std::borrow::Cow;

use axum::http::StatusCode;
use registry::{ControlError, LoginError, RegistryError};
use serde_json::{Map, Value, json};
use state::StateError;

use crate::code::Code;

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub status: StatusCode,
    pub title: &'static str,
    pub detail: String,
    pub remediation: Option<Cow<'static, str>>,
    /// The error code; `None` for failures without one, such as a request that does not match the
    /// description.
    pub code: Option<Code>,
    /// `Retry-After`, seconds.
    pub retry_after_s: Option<u64>,
    /// `Allow`, for 405.
    pub allow: Option<String>,
}

const BAD: StatusCode = StatusCode::BAD_REQUEST;

/// Maximum number of ids listed in one failure.
const NAMED_MAX: usize = 20;

/// The location of the cause of a failure, for clients. The log goes to standard error, not to a file.
const LOGFILE: &str = "the server's standard error, GET /manager/logs";

impl Failure {
    /// Returns the failure of a code, with the code's text.
    pub fn code(code: Code) -> Self {
        Self::detailed(code, code.text())
    }

    /// Returns the failure of a code, with a specific text.
    pub fn detailed(code: Code, detail: impl Into<String>) -> Self {
        Self {
            status: code.status(),
            title: match code.status() {
                StatusCode::NOT_FOUND => "Resource Not Found",
                status => title(status),
            },
            detail: detail.into(),
            remediation: Some(code.remedy().into()),
            code: Some(code),
            retry_after_s: None,
            allow: None,
        }
    }

    /// Returns the failure for an action that the roles do not allow on this type of resource.
    pub fn denied(kind: &str) -> Self {
        Self::detailed(Code::Denied, format!("Permission denied: Resource type: {kind}"))
    }

    /// Returns the failure for an action that the roles do not allow on any of these resources.
    pub fn denied_on(kind: &str, ids: &[String]) -> Self {
        let mut named =
            ids.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
        if ids.len() > NAMED_MAX {
            named.push_str(", ...");
        }
        Self::detailed(
            Code::Denied,
            format!("Permission denied: Resource type: {kind}, ids: {named}"),
        )
    }

    /// Returns a failure without a code.
    pub fn plain(status: StatusCode, detail: impl Into<String>) -> Self {
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

    /// Returns the failure for a request that does not match the description.
    pub fn bad(detail: impl Into<String>) -> Self {
        Self::plain(BAD, detail)
    }

    /// Returns the failure for a request without valid credentials.
    pub fn unauthorized(detail: &str) -> Self {
        Self::plain(StatusCode::UNAUTHORIZED, detail)
    }

    /// Returns the failure for an internal error. The cause is logged and not sent to the caller.
    pub fn internal(cause: &dyn std::fmt::Display) -> Self {
        tracing::error!("request failed: {cause}");
        Self::code(Code::Internal)
    }

    /// Returns the failure for an overloaded server.
    pub fn busy(detail: &str, retry_after_s: u64) -> Self {
        let mut failure = Self::detailed(Code::Busy, detail);
        failure.retry_after_s = Some(retry_after_s);
        failure
    }

    pub fn unknown_path() -> Self {
        Self::plain(StatusCode::NOT_FOUND, "404: Not Found")
    }

    /// Returns the failure for an object that does not exist.
    pub fn missing(detail: impl Into<String>) -> Self {
        Self::plain(StatusCode::NOT_FOUND, detail)
    }

    /// Returns the body of the answer.
    pub fn body(&self, node: &str) -> Value {
        let mut fields = Map::new();
        fields.insert("title".into(), self.title.into());
        fields.insert("detail".into(), self.detail.as_str().into());
        if let Some(remedy) = &self.remediation {
            fields.insert("remediation".into(), remedy.as_ref().into());
        }
        if self.code.is_some_and(|code| !code.is_limit()) {
            fields.insert(
                "dapi_errors".into(),
                json!({node: {"error": self.detail, "logfile": LOGFILE}}),
            );
        }
        if let Some(code) = self.code {
            fields.insert("error".into(), code.number().into());
        }
        Value::Object(fields)
    }
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

impl From<LoginError> for Failure {
    fn from(error: LoginError) -> Self {
        match error {
            LoginError::Invalid => Self::unauthorized("Invalid credentials"),
            LoginError::Blocked { retry_after_s } => {
                let mut failure = Self::code(Code::LoginBlocked);
                failure.retry_after_s = Some(retry_after_s);
                failure
            }
            LoginError::Busy { retry_after_s } => {
                Self::busy("too many logins at once", retry_after_s)
            }
            LoginError::Registry(error) => error.into(),
            other => Self::internal(&other),
        }
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
            StateError::TooLong { .. } => Self::code(Code::Timeout),
            other => Self::internal(&other),
        }
    }
}

impl From<RegistryError> for Failure {
    fn from(error: RegistryError) -> Self {
        match error {
            RegistryError::Store(ControlError::NotFound { what: "agent", .. }) => {
                Self::code(Code::AgentMissing)
            }
            RegistryError::Store(ControlError::NotFound { what: "group", name }) => {
                Self::detailed(Code::GroupMissing, format!("group does not exist: {name}"))
            }
            RegistryError::Store(
                ref refused @ (ControlError::Refused(_)
                | ControlError::Limit { .. }
                | ControlError::NotFound { .. }
                | ControlError::Exists { .. }),
            ) => Self::bad(refused.to_string()),
            RegistryError::Refused(text) => Self::bad(text),
            RegistryError::Settings(error) => {
                Self::detailed(Code::GroupConfigurationInvalid, error.to_string())
            }
            RegistryError::Password(rule) => {
                Self::detailed(Code::PasswordInvalid, rule.to_string())
            }
            RegistryError::Store(ref error) if error.is_too_long() => Self::code(Code::Timeout),
            RegistryError::Store(
                ref lost @ (ControlError::Gone(_) | ControlError::Poisoned(_)),
            ) => {
                tracing::error!("registry: {lost}");
                Self::busy(&lost.to_string(), 1)
            }
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
    fn problem_document_has_the_node_and_the_error_code() {
        let body =
            Failure::detailed(Code::LimitTooLarge, "500000 is greater than the maximum of 100000");
        let body = body.body("node01");
        assert_eq!(body["title"], "Bad Request");
        assert_eq!(body["error"], 1405);
        assert!(body["dapi_errors"]["node01"]["error"].as_str().unwrap().contains("500000"));
        assert_eq!(body["dapi_errors"]["node01"]["logfile"], LOGFILE);
        let body = Failure::unauthorized("Invalid token").body("node01");
        assert_eq!(body, json!({"title": "Unauthorized", "detail": "Invalid token"}));
    }

    #[test]
    fn busy_database_is_retryable_and_a_slow_query_is_not() {
        let sqlite = |code| {
            let error = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
            Failure::from(RegistryError::from(ControlError::Sqlite(error)))
        };
        let what = || "read".to_owned();
        let busy = [
            sqlite(rusqlite::ffi::SQLITE_BUSY),
            sqlite(rusqlite::ffi::SQLITE_FULL),
            Failure::from(RegistryError::from(ControlError::Busy)),
            Failure::from(StateError::Busy { what: what() }),
        ];
        for failure in busy {
            assert_eq!(
                (failure.code, failure.retry_after_s),
                (Some(Code::Busy), Some(1)),
                "{failure:?}"
            );
        }
        for failure in [
            sqlite(rusqlite::ffi::SQLITE_INTERRUPT),
            Failure::from(StateError::TooLong { what: what() }),
        ] {
            assert_eq!(
                (failure.code, failure.retry_after_s),
                (Some(Code::Timeout), None),
                "{failure:?}"
            );
        }
        assert_eq!(sqlite(rusqlite::ffi::SQLITE_CORRUPT).code, Some(Code::Internal));
    }
}
