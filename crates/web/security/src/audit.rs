//! The audit log: every operation that changed something, with its user.

use model::timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, List, to_value};
use rest::http::operation::{COMMON, Handler, Kind, Operation, Shape, Verb, action, query};

pub const OPERATIONS: &[Operation] = &[Operation {
    verb: Verb::Get,
    path: "/audit",
    id: "audit.list",
    about: "Changes and the users who made them, newest first.",
    access: action("audit:read", "*:*"),
    parameters: &[
        &[
            query("before", Kind::Position, "Only rows with a lower number: the next page."),
            query(
                "limit",
                Kind::Whole { min: 1, max: 1_000, default: 100 },
                "Most items to return.",
            ),
        ],
        COMMON,
    ],
    body: None,
    shape: Shape::List("AuditItem"),
    handler: Handler::Blocking(list),
}];

/// One row of the audit log.
#[derive(Serialize, ToSchema)]
pub struct AuditItem {
    /// Number of the row; later rows have higher numbers.
    id: u64,
    /// Time, RFC 3339.
    timestamp: String,
    /// Name of the user, or `uid:N` over the unix socket.
    user: String,
    /// The action.
    action: String,
    /// Method, path, parameters and body; secrets masked.
    detail: String,
    /// `done`; `unchanged` if nothing was different afterwards; `partly` or `refused` if some or
    /// all of it was refused; `failed`; `begun` if the server ended before it wrote the outcome.
    outcome: &'static str,
}

fn list(call: &Call) -> Result<Answer, Failure> {
    let limit = call.parameters.whole("limit");
    let rows =
        call.registry().audit_log(call.reader(), call.parameters.position("before"), limit)?;
    let items = rows
        .into_iter()
        .map(|row| {
            to_value(&AuditItem {
                id: row.id,
                timestamp: timestamp::micros(row.at_us),
                user: row.user,
                action: row.action,
                detail: row.detail,
                outcome: row.outcome.name(),
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let total = items.len() as u64;
    Ok(Answer::List(List::new(items, total, ["The audit log was returned", "", ""])))
}
