//! Answers in JSON, and refusals with their status, reason and remedy.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use commit::CommitError;
use link::{Answer, ErrorAnswer};
use registry::{EnrollError, IdentityError};
use state::StateError;

/// The reason why a request was refused.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) error: &'static str,
    /// The error and its remedy.
    pub(crate) detail: String,
    pub(crate) retry_after_s: Option<u64>,
    /// Close the connection without reading the rest of the request.
    pub(crate) close: bool,
}

/// Error word while it is not known which of two holders of a certificate is the agent.
pub(crate) const IN_DOUBT: &str = "identity_in_doubt";

/// Seconds after which a temporary failure is worth a retry.
const RETRY_SECONDS: u64 = 5;

impl Refusal {
    pub(crate) fn new(status: StatusCode, error: &'static str, detail: impl Into<String>) -> Self {
        Self { status, error, detail: detail.into(), retry_after_s: None, close: false }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_message", detail)
    }

    pub(crate) fn forbidden(error: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, error, detail)
    }

    pub(crate) fn too_large(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail)
    }

    pub(crate) fn busy(detail: impl Into<String>, retry_after_s: u64) -> Self {
        let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail);
        Self { retry_after_s: Some(retry_after_s), ..refusal }
    }

    pub(crate) fn internal(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
    }

    /// Returns true if the sender is refused, whatever it sends.
    pub(crate) fn is_of_sender(&self) -> bool {
        matches!(self.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
            || self.error == IN_DOUBT
    }

    /// Closes the connection after the answer, because the body was not read.
    pub(crate) fn closing(mut self) -> Self {
        self.close = true;
        self
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (error, detail) = (self.error.into(), self.detail.clone());
        let body = ErrorAnswer { error, detail, code: self.status.as_u16() };
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.close {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

impl From<CommitError> for Refusal {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Full(_) | CommitError::Closed => {
                Self::busy(error.to_string(), RETRY_SECONDS)
            }
            CommitError::TooLarge { .. } => Self::too_large(error.to_string()),
            other => Self::internal(other.to_string()),
        }
    }
}

impl From<StateError> for Refusal {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Cursor | StateError::Query(_) => Self::invalid(error.to_string()),
            error if error.is_transient() => Self::busy(error.to_string(), RETRY_SECONDS),
            other => Self::internal(other.to_string()),
        }
    }
}

impl From<IdentityError> for Refusal {
    fn from(error: IdentityError) -> Self {
        let word = match error {
            IdentityError::Revoked => "certificate_revoked",
            IdentityError::Superseded => "certificate_superseded",
            IdentityError::Expired => "certificate_expired",
            _ => "certificate_unknown",
        };
        Self::new(StatusCode::UNAUTHORIZED, word, error.to_string())
    }
}

impl From<EnrollError> for Refusal {
    fn from(error: EnrollError) -> Self {
        let (status, word) = match error {
            EnrollError::Presented(error) => return error.into(),
            EnrollError::Token(_) => (StatusCode::FORBIDDEN, "token"),
            EnrollError::DuplicateName { .. } => (StatusCode::CONFLICT, "duplicate_name"),
            EnrollError::Name(_)
            | EnrollError::Ip(_)
            | EnrollError::Group(_)
            | EnrollError::Request(_) => (StatusCode::BAD_REQUEST, "invalid_request"),
            EnrollError::NoSuchAgent(_) => (StatusCode::FORBIDDEN, "unknown_agent"),
            EnrollError::Revoked(_) => (StatusCode::FORBIDDEN, "certificate_revoked"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        Self::new(status, word, error.to_string())
    }
}

impl From<registry::RegistryError> for Refusal {
    fn from(error: registry::RegistryError) -> Self {
        Self::internal(error.to_string())
    }
}

/// The refusal for a task that panicked or was cancelled.
impl From<tokio::task::JoinError> for Refusal {
    fn from(error: tokio::task::JoinError) -> Self {
        Self::internal(format!("request was not finished: {error}"))
    }
}

/// Returns the answer to a session.
pub(crate) fn session_answer(status: StatusCode, answer: &Answer) -> Response {
    (status, Json(answer)).into_response()
}
