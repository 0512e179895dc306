//! The history of all agents: changes, and the gaps between them.

use model::AgentId;
use registry::{AgentQuery, Permitted};
use serde::Serialize;
use serde_json::json;
use state::{ChangePage, ChangeQuery, EventKind, PathMatch, StoredEvent};

use super::common::{MEMBERS, members, named_agents};
use super::event_item::{CAUSES, change_item, coverage_item};
use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, List, to_value};
use rest::http::operation::{
    AGENTS_LIST, COMMON, Handler, Kind, Operation, Parameter, Shape, Verb, action, path, query,
};

/// Largest page of a history, items; each item holds the file before and after.
const PAGE_ITEMS_MAX: u64 = 1_000;
/// Default page of a history, items.
const PAGE_ITEMS_DEFAULT: u64 = 100;
/// Maximum number of events of one agent in one microsecond that are searched for an id.
const SAME_INSTANT_MAX: usize = 100_000;

const KINDS: &[&str] = &["created", "modified", "deleted", "moved", "transient"];

const WINDOW: &[Parameter] = &[
    AGENTS_LIST,
    query("path", Kind::Text, "Beginning of the path; % and _ are ordinary characters."),
    query("file", Kind::Text, "The whole path, also the former one of what was moved."),
    query("from", Kind::Instant, "Found at or after this time, RFC 3339."),
    query("to", Kind::Instant, "Found before this time, RFC 3339."),
    query("cursor", Kind::Text, "Where to continue: next_cursor of the previous page."),
    query(
        "limit",
        Kind::Whole { min: 1, max: PAGE_ITEMS_MAX, default: PAGE_ITEMS_DEFAULT },
        "Most items to return.",
    ),
];

const SELECTION: &[Parameter] = &[
    query("kind", Kind::Words(KINDS), "Kinds, comma-separated; default all."),
    query("cause", Kind::Words(CAUSES), "Causes, comma-separated; default all."),
    query(
        "cause_id",
        Kind::Text,
        "The `cause.id` that the changes of one transaction or run share.",
    ),
    query(
        "sort",
        Kind::Word(&["unexplained"]),
        "Unexplained changes first, each part newest first.",
    ),
    query(
        "collapse",
        Kind::Word(&["cause"]),
        "Of the explained changes of one agent with the same `cause.id` that the request selects, only the newest, with the number of all as `collapsed`. A page may be shorter than `limit`.",
    ),
    query("user", Kind::Text, "Name of the user that made the change."),
    query(
        "process",
        Kind::Text,
        "Name of the program that made the change, or that perhaps made it.",
    ),
];

const SINCE: &[Parameter] = &[query(
    "since",
    Kind::Whole { min: 0, max: i64::MAX as u64, default: 0 },
    "Only changes that arrived after this number, which is `newest` of an earlier page.",
)];

const OPEN: &[Parameter] = &[query("open", Kind::Flag, "Only gaps that have not ended.")];

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/changes",
        id: "changes.list",
        about: "Changes on all agents, newest first, each with the state before and after.",
        access: action("change:read", "agent:id"),
        parameters: &[COMMON, MEMBERS, WINDOW, SELECTION, SINCE],
        body: None,
        shape: Shape::List("ChangeItem"),
        handler: Handler::Blocking(list),
    },
    Operation {
        verb: Verb::Get,
        path: "/changes/{id}",
        id: "changes.one",
        about: "One change.",
        access: action("change:read", "agent:id"),
        parameters: &[COMMON, &[path("id", Kind::Text, "The id of an item of /changes.")]],
        body: None,
        shape: Shape::Plain("ChangeItem"),
        handler: Handler::Blocking(one),
    },
    Operation {
        verb: Verb::Get,
        path: "/coverage",
        id: "coverage.list",
        about: "Gaps: intervals in which something was not watched, on all agents, newest first, with the reason.",
        access: action("coverage:read", "agent:id"),
        parameters: &[COMMON, MEMBERS, WINDOW, SINCE, OPEN],
        body: None,
        shape: Shape::List("CoverageItem"),
        handler: Handler::Blocking(coverage),
    },
];

fn list(call: &Call) -> Result<Answer, Failure> {
    let kinds: Vec<EventKind> = match call.parameters.list("kind") {
        [] => EventKind::CHANGES.to_vec(),
        names => names.iter().filter_map(|name| EventKind::from_name(name)).collect(),
    };
    let text = |name| call.parameters.text(name).map(str::to_owned);
    let causes = call.parameters.list("cause").iter();
    let query = ChangeQuery {
        kinds,
        causes: causes.filter_map(|name| serde_json::from_value(json!(name)).ok()).collect(),
        cause_id: text("cause_id"),
        unexplained_first: text("sort").is_some(),
        collapse: text("collapse").is_some(),
        user: text("user"),
        process: text("process"),
        ..ChangeQuery::default()
    };
    let page = page(call, query)?;
    let messages = [
        "All selected changes were returned",
        "Some changes were not returned",
        "No change was returned",
    ];
    answer(call, page, change_item, messages)
}

fn coverage(call: &Call) -> Result<Answer, Failure> {
    let mut kinds = vec![EventKind::OpenGap];
    if !call.parameters.flag("open") {
        kinds.push(EventKind::Coverage);
    }
    let page = page(call, ChangeQuery { kinds, ..ChangeQuery::default() })?;
    let messages =
        ["All selected gaps were returned", "Some gaps were not returned", "No gap was returned"];
    answer(call, page, coverage_item, messages)
}

/// A page, and the named agents that have no history, with the codes of the reasons.
type Page = (ChangePage, Vec<(Code, AgentId)>);

fn page(call: &Call, query: ChangeQuery) -> Result<Page, Failure> {
    let parameters = &call.parameters;
    let Agents { numbers, former, failed } = agents(call)?;
    let page = call.state().changes(
        call.reader(),
        &ChangeQuery {
            since: Some(parameters.whole("since")).filter(|since| *since > 0),
            agents: numbers,
            former,
            path: match (parameters.text("file"), parameters.text("path")) {
                (Some(file), _) => PathMatch::Exact(file.to_owned()),
                (None, Some(prefix)) => PathMatch::Prefix(prefix.to_owned()),
                (None, None) => PathMatch::Any,
            },
            from_us: parameters.micros("from"),
            to_us: parameters.micros("to"),
            cursor: parameters.text("cursor").map(str::to_owned),
            limit: parameters.whole("limit") as usize,
            ..query
        },
    )?;
    Ok((page, failed))
}

/// Selects the agents that the request names, by number, group or platform, or all that the caller
/// may see. A removed agent may still have a history; it is in no group and of no platform.
fn agents(call: &Call) -> Result<Agents, Failure> {
    let scope = call.scope();
    let (named, failed) = named_agents(call);
    if let Some(numbers) = members(call, &named)? {
        // An empty list selects no history.
        return Ok(Agents { numbers: Some(numbers), former: false, failed });
    }
    Ok(match (named, failed) {
        // The permission on removed agents is the same for all of them, so any unused number will
        // do.
        (Permitted::All, _) if call.may_gone(&call.caller, AgentId(u32::MAX)) => {
            Agents { numbers: None, former: true, failed: Vec::new() }
        }
        (Permitted::All | Permitted::Except(_), _) => {
            let query = AgentQuery { permitted: scope, ..AgentQuery::default() };
            let numbers = Some(call.registry().agent_ids(call.reader(), &query)?);
            Agents { numbers, former: false, failed: Vec::new() }
        }
        (Permitted::Only(ids), failed) => {
            let mut ids = ids.to_vec();
            let mut left = Vec::new();
            for (code, id) in failed {
                // Each iteration queries the store.
                call.in_time()?;
                let visible = code == Code::AgentMissing && call.may_gone(&call.caller, id);
                if visible && call.state().agent_counts(call.reader(), id)?.events > 0 {
                    ids.push(id);
                } else {
                    left.push((code, id));
                }
            }
            let former = ids.iter().all(|id| call.may_gone(&call.caller, *id));
            Agents { numbers: Some(ids), former, failed: left }
        }
    })
}

/// The agents whose history is returned.
struct Agents {
    /// `None` for all agents.
    numbers: Option<Vec<AgentId>>,
    /// True to include removed agents that had these numbers before.
    former: bool,
    /// Named agents that have no history or are not permitted, with the codes of the reasons.
    failed: Vec<(Code, AgentId)>,
}

fn answer<T: Serialize>(
    call: &Call,
    (page, failed): Page,
    item: fn(&Call, &StoredEvent) -> Result<T, Failure>,
    messages: [&'static str; 3],
) -> Result<Answer, Failure> {
    let (next, newest) = (page.next.as_deref(), page.newest);
    let mut items = Vec::with_capacity(page.items.len());
    for event in &page.items {
        items.push(to_value(&item(call, event)?)?);
    }
    let total = items.len() as u64;
    Ok(Answer::List(
        List::new(items, total, messages)
            .with("next_cursor", json!(next))
            .with("newest", json!(newest))
            .with_failed(failed),
    ))
}

fn one(call: &Call) -> Result<Answer, Failure> {
    let missing = || Failure::missing("no such change: it may be past its retention");
    let id = call.parameters.text("id").unwrap_or_default();
    let (agent, found_at_us, number) = parse_id(id).ok_or_else(missing)?;
    let known = call.api.registry.agent(agent).is_some();
    if !call.scope().holds(agent) || !(known || call.may_gone(&call.caller, agent)) {
        return Err(Failure::denied_on("agent:id", &[agent.to_string()]));
    }
    let page = call.state().changes(
        call.reader(),
        &ChangeQuery {
            agents: Some(vec![agent]),
            kinds: EventKind::CHANGES.to_vec(),
            from_us: Some(found_at_us),
            to_us: Some(found_at_us.saturating_add(1)),
            limit: SAME_INSTANT_MAX,
            ..ChangeQuery::default()
        },
    )?;
    let event = page.items.into_iter().find(|e| e.number == number).ok_or_else(missing)?;
    if event.former && !call.may_gone(&call.caller, agent) {
        return Err(Failure::denied_on("agent:id", &[agent.to_string()]));
    }
    Answer::data(&change_item(call, &event)?)
}

fn parse_id(id: &str) -> Option<(AgentId, u64, u64)> {
    let mut parts = id.split('-');
    let agent = parts.next()?.parse().ok()?;
    let found_at_us = u64::from_str_radix(parts.next()?, 16).ok()?;
    let number = u64::from_str_radix(parts.next()?, 16).ok()?;
    parts.next().is_none().then_some((agent, found_at_us, number))
}
