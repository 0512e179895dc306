//! The server's clock: whether it follows the system clock, and following it at once.

use env::guard::{Acceptance, Hold};
use model::timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::node;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::Answer;
use rest::http::operation::{COMMON_PRETTY, Handler, Operation, Shape, Verb, action};

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/clock",
        id: "clock.read",
        about: "The server's clock, and whether its wall clock is held after a jump.",
        access: node::MANAGER,
        parameters: &[COMMON_PRETTY],
        body: None,
        shape: Shape::Plain("ClockData"),
        handler: Handler::Blocking(read),
    },
    Operation {
        verb: Verb::Put,
        path: "/clock/accept",
        id: "clock.accept",
        about: "Accept the wall clock at once because it is right.",
        access: action("manager:update_config", "*:*"),
        parameters: &[COMMON_PRETTY],
        body: None,
        shape: Shape::Message,
        handler: Handler::Blocking(accept),
    },
];

/// The server's clock.
#[derive(Serialize, ToSchema)]
pub(crate) struct ClockData {
    /// The wall clock, RFC 3339.
    wall: String,
    /// The time by which things expire and are forgotten, RFC 3339.
    guarded: String,
    /// Why the two differ; null when the wall clock is followed.
    held: Option<HeldData>,
}

/// A wall clock that moved by more than a day and is not followed.
#[derive(Serialize, ToSchema)]
pub(crate) struct HeldData {
    /// Guarded time at which it moved, RFC 3339.
    since: String,
    /// Wall clock minus guarded time, seconds.
    offset_s: i64,
    /// Uptime until it is followed unless it comes back, seconds.
    follows_in_s: u64,
    /// Description of the jump, and the remedy.
    detail: String,
}

fn read(call: &Call) -> Result<Answer, Failure> {
    let clock = &call.api.options.clock;
    let hold = call.api.options.server_clock.as_ref().and_then(|own| own.clock.hold());
    Answer::data(&ClockData {
        wall: timestamp::micros(clock.now_us()),
        guarded: timestamp::micros(clock.guarded_us()),
        held: hold.map(|hold| held_data(call, hold)),
    })
}

fn held_data(call: &Call, hold: Hold) -> HeldData {
    HeldData {
        since: timestamp::micros(hold.since_us),
        offset_s: hold.offset_us / 1_000_000,
        follows_in_s: hold.remaining.as_secs(),
        detail: held_detail(call, hold),
    }
}

/// Describes a wall clock that is held, with the remedy.
pub(super) fn held_detail(call: &Call, hold: Hold) -> String {
    let days = hold.offset_us.unsigned_abs() / 86_400_000_000;
    let side = if hold.offset_us > 0 { "ahead of" } else { "behind" };
    format!(
        "The server's wall clock is {days} {} {side} the last time known to be right. Until it is \
         set right or accepted, nothing expires or is deleted by it. If the wall clock is right, \
         run `holdfast clock accept --data {}` on the server.",
        if days == 1 { "day" } else { "days" },
        call.api.options.folder,
    )
}

fn accept(call: &Call) -> Result<Answer, Failure> {
    call.begun()?;
    let own = call.api.options.server_clock.as_ref();
    let held = own.is_some_and(|own| own.clock.accept() == Acceptance::Released);
    if let Some(Err(problem)) = own.map(|own| own.store()) {
        // The acceptance stays in effect until the server stops.
        return Err(Failure::internal(&format!("{problem:#}")));
    }
    let said = if held { "accepted" } else { "it was not held" };
    let time = timestamp::micros(call.api.options.clock.guarded_us());
    Ok(Answer::Message(format!("{said}; the guarded time is {time}")))
}
