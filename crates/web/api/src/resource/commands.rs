//! Commands to agents and their progress on each agent.

use std::sync::Arc;

use model::{AgentId, timestamp};
use registry::{CommandKind, CommandRow, OutcomeFilter, OutcomeRow, OutcomeState, Permitted};
use serde::Serialize;
use utoipa::ToSchema;

use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, List, to_value};
use rest::http::operation::{
    COMMON, Handler, Kind, Operation, PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX, Parameter, Shape, Verb,
    action, path, query,
};

/// The action that permits reading the outcomes of a command on an agent.
const READ: &str = "agent:read";

const STATES: &[&str] = &["pending", "sent", "acknowledged", "failed", "expired", "cancelled"];

const LIMIT: Parameter = query(
    "limit",
    Kind::Whole { min: 1, max: PAGE_ITEMS_MAX, default: PAGE_ITEMS_DEFAULT },
    "Most items to return.",
);

/// Lower than for other lists, because the outcomes on the caller's agents are counted for each
/// command.
const NEWEST: Parameter = query(
    "limit",
    Kind::Whole { min: 1, max: PAGE_ITEMS_MAX, default: 50 },
    "Most items to return.",
);

const ID: Parameter = path(
    "command_id",
    Kind::Whole { min: 1, max: i64::MAX as u64, default: 1 },
    "Number of the command.",
);

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/commands",
        id: "commands.list",
        about: "The newest commands with their counts.",
        access: action("command:read", "*:*"),
        parameters: &[COMMON, &[NEWEST]],
        body: None,
        shape: Shape::List("CommandItem"),
        handler: Handler::Blocking(list),
    },
    Operation {
        verb: Verb::Get,
        path: "/commands/{command_id}",
        id: "commands.one",
        about: "One command with each agent's outcome.",
        access: action("command:read", "*:*"),
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
        about: "Cancel a command for the agents that have not answered it.",
        access: action("command:cancel", "*:*"),
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
    /// User who created it.
    user: String,
    created: String,
    /// When unanswered outcomes expire.
    expires: String,
    counts: CountsItem,
}

/// Number of agents by state of the command.
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
    /// Detail that the agent reported.
    detail: String,
    /// Time of the present state.
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

fn list(call: &Call) -> Result<Answer, Failure> {
    let scope = call.scope_of(READ);
    let mut items = Vec::new();
    for row in call.registry().commands(call.reader(), call.parameters.whole("limit"), &scope)? {
        items.push(to_value(&CommandItem::from(row))?);
    }
    let total = items.len() as u64;
    let messages =
        ["The newest commands were returned", "Some commands were not returned", "No command"];
    Ok(Answer::List(List::new(items, total, messages)))
}

/// Returns the command and a page of its outcomes, restricted to the agents that the caller may
/// see.
fn find_command(
    call: &Call,
    page: OutcomeFilter,
) -> Result<(CommandRow, Vec<OutcomeRow>), Failure> {
    let id = call.parameters.whole("command_id");
    let scope = call.scope_of(READ);
    let found = call.registry().command_page(call.reader(), id, &scope, page)?;
    let found = found.ok_or_else(|| Failure::missing(format!("no such command: {id}")))?;
    if found.0.counts.total == 0 && !scope.is_all() {
        return Err(Failure::denied("agent:id"));
    }
    Ok(found)
}

fn one(call: &Call) -> Result<Answer, Failure> {
    let parameters = &call.parameters;
    let page = OutcomeFilter {
        state: parameters.text("state").and_then(OutcomeState::from_name),
        after: Some(AgentId(parameters.whole("after") as u32)).filter(|id| id.0 > 0),
        limit: parameters.whole("limit"),
    };
    let (command, outcomes) = find_command(call, page)?;
    let outcomes = outcomes.into_iter().map(OutcomeItem::from).collect();
    Answer::data(&CommandData { command: command.into(), outcomes })
}

/// Returns the action that is required to create or cancel a command of this kind.
fn permission_to_issue(kind: CommandKind) -> &'static str {
    match kind {
        CommandKind::Reconnect => "agent:reconnect",
        CommandKind::Rescan => "syscheck:run",
        _ => "agent:restart",
    }
}

fn cancel(call: &Call) -> Result<Answer, Failure> {
    let id = call.parameters.whole("command_id");
    let missing = || Failure::missing(format!("no such command: {id}"));
    let counts = |scope: &Permitted| {
        let page =
            call.registry().command_page(call.reader(), id, scope, OutcomeFilter::default())?;
        Ok::<_, Failure>(page.map(|(command, _)| (command.kind, command.counts.total)))
    };
    // Leave out numbers that have since been given to another agent.
    let present = Permitted::Except(Arc::default());
    let (kind, whole) = counts(&present)?.ok_or_else(missing)?;
    let scope = call.scope_of(permission_to_issue(kind));
    // A command is cancelled for all of its agents, so the caller must be permitted on all of them.
    let own = counts(&scope)?.map(|(_, own)| own);
    if !scope.is_all() && (whole == 0 || own != Some(whole)) {
        return Err(Failure::denied("agent:id"));
    }
    let count = call.registry().cancel_command(&call.context, id)?;
    Ok(Answer::Message(format!("Command {id} was taken back for {count} agents")))
}
