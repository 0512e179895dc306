//! Commands to agents and how far each agent is with them.

use model::{AgentId, timestamp};
use registry::{CommandRow, OutcomeRow, OutcomeState, Permitted};
use serde::Serialize;
use utoipa::ToSchema;

use crate::call::Call;
use crate::envelope::{Answer, List, to_value};
use crate::error::Failure;
use crate::operation::{
    COMMON, Handler, Kind, Operation, PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX, Parameter, Shape, Verb,
    action, path, query,
};

const STATES: &[&str] = &["pending", "sent", "acknowledged", "failed", "expired", "cancelled"];

const LIMIT: Parameter = query(
    "limit",
    Kind::Whole { min: 1, max: PAGE_ITEMS_MAX, default: PAGE_ITEMS_DEFAULT },
    "Most items to return.",
);

const ID: Parameter = path(
    "command_id",
    Kind::Whole { min: 1, max: i64::MAX as u64, default: 1 },
    "Number of the command.",
);

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/commands",
        id: "commands.list",
        about: "The newest commands with their counts.",
        access: action("agent:read", "agent:id"),
        parameters: &[COMMON, &[LIMIT]],
        body: None,
        shape: Shape::List("CommandItem"),
        handler: Handler::Blocking(list),
    },
    Operation {
        verb: Verb::Get,
        path: "/commands/{command_id}",
        id: "commands.one",
        about: "One command with each agent's outcome.",
        access: action("agent:read", "agent:id"),
        parameters: &[
            COMMON,
            &[
                ID,
                LIMIT,
                query("state", Kind::Word(STATES), "Only outcomes of this state."),
                query(
                    "after",
                    Kind::Whole { min: 0, max: u32::MAX as u64, default: 0 },
                    "Only outcomes of agents with a higher number.",
                ),
            ],
        ],
        body: None,
        shape: Shape::Plain("CommandData"),
        handler: Handler::Blocking(one),
    },
    Operation {
        verb: Verb::Delete,
        path: "/commands/{command_id}",
        id: "commands.cancel",
        about: "Take a command back where it is not answered yet.",
        access: action("agent:restart", "agent:id"),
        parameters: &[COMMON, &[ID]],
        body: None,
        shape: Shape::Message,
        handler: Handler::Blocking(cancel),
    },
];

/// A command.
#[derive(Serialize, ToSchema)]
pub(crate) struct CommandItem {
    id: u64,
    /// `rescan`, `restart`, ...
    kind: &'static str,
    /// Who asked for it.
    user: String,
    created: String,
    /// When unanswered outcomes expire.
    expires: String,
    counts: CountsItem,
}

/// How many agents are how far.
#[derive(Serialize, ToSchema)]
pub(crate) struct CountsItem {
    pending: u64,
    sent: u64,
    acknowledged: u64,
    failed: u64,
    expired: u64,
    cancelled: u64,
    total: u64,
}

/// A command with outcomes.
#[derive(Serialize, ToSchema)]
pub(crate) struct CommandData {
    command: CommandItem,
    /// By agent number.
    outcomes: Vec<OutcomeItem>,
}

/// One agent's outcome.
#[derive(Serialize, ToSchema)]
pub(crate) struct OutcomeItem {
    agent: String,
    state: &'static str,
    /// What the agent said.
    detail: String,
    /// Since when.
    time: String,
}

impl From<CommandRow> for CommandItem {
    fn from(row: CommandRow) -> Self {
        let counts = row.counts;
        Self {
            id: row.id,
            kind: row.kind.name(),
            user: row.user,
            created: timestamp::seconds_offset(row.created_at_s),
            expires: timestamp::seconds_offset(row.expires_at_s),
            counts: CountsItem {
                pending: counts.pending,
                sent: counts.sent,
                acknowledged: counts.acknowledged,
                failed: counts.failed,
                expired: counts.expired,
                cancelled: counts.cancelled,
                total: counts.total,
            },
        }
    }
}

impl From<OutcomeRow> for OutcomeItem {
    fn from(row: OutcomeRow) -> Self {
        Self {
            agent: row.agent.to_string(),
            state: row.state.name(),
            detail: row.detail,
            time: timestamp::seconds_offset(row.at_s),
        }
    }
}

/// Outcomes read at once to find those that the caller may see.
const OUTCOMES_AT_ONCE: u64 = 10_000;

/// The command as far as it is about agents that the caller may see; `None` when it is about none.
fn narrowed(
    call: &Call,
    scope: &Permitted,
    mut command: CommandRow,
) -> Result<Option<CommandRow>, Failure> {
    if scope.is_all() {
        return Ok(Some(command));
    }
    command.counts = call.registry().counts_within(&command, scope)?;
    Ok((command.counts.total > 0).then_some(command))
}

fn list(call: &Call) -> Result<Answer, Failure> {
    let scope = call.scope();
    let mut items = Vec::new();
    for row in call.registry().commands(call.parameters.whole("limit"))? {
        if let Some(row) = narrowed(call, &scope, row)? {
            items.push(to_value(&CommandItem::from(row))?);
        }
    }
    let total = items.len() as u64;
    let messages =
        ["The newest commands were returned", "Some commands were not returned", "No command"];
    Ok(Answer::List(List::new(items, total, messages)))
}

fn find(call: &Call) -> Result<CommandRow, Failure> {
    let id = call.parameters.whole("command_id");
    let missing = || Failure::missing(format!("no such command: {id}"));
    call.registry().command(id)?.ok_or_else(missing)
}

fn one(call: &Call) -> Result<Answer, Failure> {
    let scope = call.scope();
    let command = narrowed(call, &scope, find(call)?)?;
    let command = command.ok_or_else(|| Failure::denied("agent:id"))?;
    let parameters = &call.parameters;
    let state = parameters.text("state").and_then(OutcomeState::from_name);
    let mut after = Some(AgentId(parameters.whole("after") as u32)).filter(|id| id.0 > 0);
    let (limit, mut outcomes) = (parameters.whole("limit") as usize, Vec::new());
    loop {
        let page = call.registry().outcomes(command.id, state, after, OUTCOMES_AT_ONCE)?;
        let more = page.len() as u64 == OUTCOMES_AT_ONCE;
        after = page.last().map(|outcome| outcome.agent);
        let room = limit - outcomes.len();
        let seen = page.into_iter().filter(|outcome| scope.holds(outcome.agent)).take(room);
        outcomes.extend(seen.map(OutcomeItem::from));
        if !more || outcomes.len() == limit {
            break;
        }
    }
    Answer::data(&CommandData { command: command.into(), outcomes })
}

fn cancel(call: &Call) -> Result<Answer, Failure> {
    let command = find(call)?;
    let (id, total) = (command.id, command.counts.total);
    // What is taken back is taken back for all of its agents.
    if narrowed(call, &call.scope(), command)?.is_none_or(|own| own.counts.total < total) {
        return Err(Failure::denied("agent:id"));
    }
    let count = call.registry().cancel_command(id)?;
    Ok(Answer::Message(format!("Command {id} was taken back for {count} agents")))
}
