//! Tokens with which agents enrol.

use std::fmt::Write as _;

use model::timestamp;
use registry::{EnrolmentTokenRow, TokenTerms};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::common::ASSIGN;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, List, to_value};
use rest::http::operation::{COMMON, Handler, Kind, Operation, Shape, Verb, action, required};

/// Default lifetime of a token, seconds: 1 hour.
const TTL_SECONDS: u64 = 3_600;

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/enrolment/tokens",
        id: "enrolment.tokens",
        about: "Enrolment tokens that are still valid, by expiry.",
        access: action("enrolment:read", "*:*"),
        parameters: &[COMMON],
        body: None,
        shape: Shape::List("TokenItem"),
        handler: Handler::Blocking(list),
    },
    Operation {
        verb: Verb::Post,
        path: "/enrolment/tokens",
        id: "enrolment.create_token",
        about: "Create an enrolment token; it is shown once and stored as a digest only.",
        access: action("enrolment:create", "*:*"),
        parameters: &[COMMON],
        body: Some("NewToken"),
        shape: Shape::Plain("NewTokenData"),
        handler: Handler::Blocking(create),
    },
    Operation {
        verb: Verb::Delete,
        path: "/enrolment/tokens",
        id: "enrolment.revoke_tokens",
        about: "Revoke enrolment tokens.",
        access: action("enrolment:revoke", "*:*"),
        parameters: &[
            COMMON,
            &[required("tokens_list", Kind::Names, "Ids of tokens, comma-separated, or all.")],
        ],
        body: None,
        shape: Shape::Message,
        handler: Handler::Blocking(revoke),
    },
];

/// An enrolment token that is still valid.
#[derive(Serialize, ToSchema)]
pub(crate) struct TokenItem {
    /// The SHA-256 of its secret.
    id: String,
    /// Groups its agents get.
    groups: Vec<String>,
    /// Number of agents that may still register with it.
    uses: u32,
    /// RFC 3339.
    expires: String,
    /// Silence after which its agents are removed, seconds; absent if they stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    ephemeral_s: Option<u64>,
}

fn id(row: &EnrolmentTokenRow) -> String {
    row.digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Properties of the token.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NewToken {
    /// Groups its agents get; they must exist.
    groups: Vec<String>,
    /// Number of agents that may register with it.
    uses: u32,
    /// Time until it expires, seconds.
    ttl_s: u64,
    /// Silence after which its agents are removed, seconds; absent if they stay.
    ephemeral_s: Option<u64>,
}

impl Default for NewToken {
    fn default() -> Self {
        Self { groups: Vec::new(), uses: 1, ttl_s: TTL_SECONDS, ephemeral_s: None }
    }
}

/// The new token.
#[derive(Serialize, ToSchema)]
pub(crate) struct NewTokenData {
    /// For `holdfast enroll --token`.
    token: String,
    uses: u32,
    /// RFC 3339.
    expires: String,
}

fn list(call: &Call) -> Result<Answer, Failure> {
    let mut rows = call.registry().enrolment_tokens(call.reader())?;
    rows.sort_by_key(|row| (row.expires_at_s, row.digest));
    let item = |row: &EnrolmentTokenRow| TokenItem {
        id: id(row),
        groups: row.groups.clone(),
        uses: row.uses_left,
        expires: timestamp::seconds_offset(row.expires_at_s),
        ephemeral_s: row.ephemeral_s,
    };
    let items = rows.iter().map(|row| to_value(&item(row))).collect::<Result<Vec<_>, _>>()?;
    let total = items.len() as u64;
    let messages = ["All enrolment tokens were returned", "", "No enrolment token was returned"];
    Ok(Answer::List(List::new(items, total, messages)))
}

/// Revokes all named tokens, or none.
fn revoke(call: &Call) -> Result<Answer, Failure> {
    let rows = call.registry().enrolment_tokens(call.reader())?;
    let named = call.parameters.list("tokens_list");
    let all = named.iter().any(|name| name == "all");
    let wanted: Vec<&EnrolmentTokenRow> =
        rows.iter().filter(|row| all || named.contains(&id(row))).collect();
    let known = |name: &String| wanted.iter().any(|row| id(row) == *name);
    if let Some(name) = named.iter().find(|name| !all && !known(name)) {
        return Err(Failure::missing(format!("no such enrolment token: {name:.64}")));
    }
    let mut gone = 0;
    for row in wanted {
        gone += u32::from(call.registry().revoke_enrolment_token(&call.context, &row.digest)?);
    }
    Ok(Answer::Message(format!("{gone} enrolment tokens were revoked")))
}

fn create(call: &Call) -> Result<Answer, Failure> {
    let wanted: NewToken = call.json()?;
    for group in &wanted.groups {
        call.require(ASSIGN, "group:id", group)?;
    }
    let NewToken { groups, uses, ttl_s, ephemeral_s } = wanted;
    let terms = TokenTerms { groups, uses, ttl_s, ephemeral_s };
    let token = call.registry().create_enrolment_token(&call.context, &terms)?;
    let expires = call.now_s().saturating_add_unsigned(terms.ttl_s);
    Answer::data(&NewTokenData {
        token,
        uses: terms.uses,
        expires: timestamp::seconds_offset(expires),
    })
}
