//! Requests that have no answer.

use axum::http::StatusCode;

/// A request that is refused or has no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

impl Refusal {
    pub(crate) fn bad_data(text: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, kind: "bad_data", text: text.into() }
    }

    pub(crate) fn parameter(name: &str, why: impl std::fmt::Display) -> Self {
        Self::bad_data(format!("invalid parameter {name:?}: {why}"))
    }
}

/// Returns the refusal of a query that has to end.
pub(crate) fn unavailable(text: &str) -> Refusal {
    Refusal { status: StatusCode::SERVICE_UNAVAILABLE, kind: "timeout", text: text.into() }
}

/// Returns the refusal of a query whose thread has panicked.
pub(crate) fn defect() -> Refusal {
    let text = "the query stopped unexpectedly: this is a defect, please report it".into();
    Refusal { status: StatusCode::INTERNAL_SERVER_ERROR, kind: "internal", text }
}
