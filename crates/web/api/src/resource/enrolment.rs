//! Tokens with which agents register themselves.

use model::timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ASSIGN;
use crate::call::Call;
use crate::envelope::Answer;
use crate::error::Failure;
use crate::operation::{COMMON, Handler, Operation, Shape, Verb, action};

/// Life of a token unless asked otherwise, seconds: 1 hour.
const TTL_SECONDS: u64 = 3_600;

pub(super) const OPERATIONS: &[Operation] = &[Operation {
    verb: Verb::Post,
    path: "/enrolment/tokens",
    id: "enrolment.create_token",
    about: "A token with which agents register; it is shown once and kept as a digest only.",
    access: action("enrolment:create", "*:*"),
    parameters: &[COMMON],
    body: Some("NewToken"),
    shape: Shape::Plain("NewTokenData"),
    handler: Handler::Blocking(create),
}];

/// What to make.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NewToken {
    /// Groups its agents get; they must exist.
    groups: Vec<String>,
    /// How many agents it may register.
    uses: u32,
    /// How long it is valid, seconds.
    ttl_s: u64,
}

impl Default for NewToken {
    fn default() -> Self {
        Self { groups: Vec::new(), uses: 1, ttl_s: TTL_SECONDS }
    }
}

/// What was made.
#[derive(Serialize, ToSchema)]
pub(crate) struct NewTokenData {
    /// For `holdfast enroll --token`.
    token: String,
    uses: u32,
    /// RFC 3339.
    expires: String,
}

fn create(call: &Call) -> Result<Answer, Failure> {
    let wanted: NewToken = call.json()?;
    for group in &wanted.groups {
        call.require(ASSIGN, "group:id", group)?;
    }
    let token =
        call.registry().create_enrolment_token(&wanted.groups, wanted.uses, wanted.ttl_s)?;
    let expires = call.now_s().saturating_add_unsigned(wanted.ttl_s);
    Answer::data(&NewTokenData {
        token,
        uses: wanted.uses,
        expires: timestamp::seconds_offset(expires),
    })
}
