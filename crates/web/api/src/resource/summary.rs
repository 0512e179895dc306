//! The fleet's counters, maintained by the registry.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{AgentId, AgentStatus, timestamp};
use registry::{Permitted, SilentAgents};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::agent_list::READ;
use super::event_item::CAUSES;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, List};
use rest::http::operation::{AGENTS_LIST, COMMON, Handler, Operation, Shape, Verb};

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/agents/summary",
        id: "agents.summary",
        about: "Agents by status, operating system and group, from one snapshot.",
        access: READ,
        parameters: &[COMMON, &[AGENTS_LIST]],
        body: None,
        shape: Shape::Plain("SummaryData"),
        handler: Handler::Blocking(summary),
    },
    Operation {
        verb: Verb::Get,
        path: "/agents/summary/status",
        id: "agents.summary_status",
        about: "Agents by status.",
        access: READ,
        parameters: &[COMMON],
        body: None,
        shape: Shape::Plain("StatusData"),
        handler: Handler::Blocking(summary_status),
    },
    Operation {
        verb: Verb::Get,
        path: "/agents/summary/os",
        id: "agents.summary_os",
        about: "The platforms that agents run on.",
        access: READ,
        parameters: &[COMMON],
        body: None,
        shape: Shape::List("Platform"),
        handler: Handler::Blocking(summary_os),
    },
];

/// Agents by status.
#[derive(Serialize, ToSchema)]
pub(crate) struct StatusCounts {
    active: u64,
    disconnected: u64,
    never_connected: u64,
    pending: u64,
    total: u64,
}

/// Agents by whether they have their groups' configuration.
#[derive(Serialize, ToSchema)]
pub(crate) struct ConfigurationCounts {
    synced: u64,
    not_synced: u64,
    total: u64,
}

/// The counters of the fleet's status.
#[derive(Serialize, ToSchema)]
pub(crate) struct StatusData {
    connection: StatusCounts,
    configuration: ConfigurationCounts,
}

impl From<registry::StatusSummary> for StatusData {
    fn from(s: registry::StatusSummary) -> Self {
        Self {
            connection: StatusCounts {
                active: s.active,
                disconnected: s.disconnected,
                never_connected: s.never_connected,
                pending: s.pending,
                total: s.total,
            },
            configuration: ConfigurationCounts {
                synced: s.synced,
                not_synced: s.total.saturating_sub(s.synced),
                total: s.total,
            },
        }
    }
}

fn summary_status(call: &Call) -> Result<Answer, Failure> {
    Answer::data(&StatusData::from(status_within(call, &call.scope())?))
}

/// Returns the agents that the caller may see by status: the registry's counters if these are all
/// agents, otherwise counted from memory.
fn status_within(call: &Call, scope: &Permitted) -> Result<registry::StatusSummary, Failure> {
    if scope.is_all() {
        return Ok(call.registry().status_summary()?);
    }
    Ok(call.registry().status_of(scope))
}

/// Agents by status, without their sum.
#[derive(Serialize, ToSchema, Default)]
pub(crate) struct SummaryStatus {
    active: u64,
    disconnected: u64,
    never_connected: u64,
    pending: u64,
}

/// The counters of the fleet.
#[derive(Serialize, ToSchema, Default)]
pub(crate) struct SummaryData {
    status: SummaryStatus,
    /// Group and agents.
    groups: BTreeMap<String, u64>,
    /// Platform and agents.
    os: BTreeMap<String, u64>,
    /// Cause and changes; absent if the caller may not read the changes of every agent, or names agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<BTreeMap<&'static str, u64>>,
    silent: SilentCount,
}

/// The agents that are not heard although they did not say goodbye. Most of them are still active by
/// their status.
#[derive(Serialize, ToSchema, Default)]
pub(crate) struct SilentCount {
    agents: u64,
    /// Time since when the first of them is silent, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    /// Names of up to three of them, the longest silence first.
    names: Vec<String>,
}

impl From<SilentAgents> for SilentCount {
    fn from(silent: SilentAgents) -> Self {
        let SilentAgents { count, oldest_us, names } = silent;
        Self { agents: count, since: oldest_us.map(timestamp::micros), names }
    }
}

fn summary(call: &Call) -> Result<Answer, Failure> {
    let scope = call.scope();
    if let Some(ids) = call.parameters.agents("agents_list") {
        let mut ids: Vec<AgentId> = ids.iter().copied().filter(|id| scope.holds(*id)).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return Err(Failure::denied("agent:id"));
        }
        return Answer::data(&summary_of(call, &Permitted::Only(Arc::new(ids))));
    }
    if !scope.is_all() {
        return Answer::data(&summary_of(call, &scope));
    }
    let summary = call.registry().summary(call.reader())?;
    let status = summary.status;
    Answer::data(&SummaryData {
        status: SummaryStatus {
            active: status.active,
            disconnected: status.disconnected,
            never_connected: status.never_connected,
            pending: status.pending,
        },
        groups: summary.groups.into_iter().filter(|(_, count)| *count > 0).collect(),
        os: summary.os.into_iter().filter(|(name, _)| !name.is_empty()).collect(),
        changes: changes(call)?,
        silent: call.api.registry.silent_agents(&scope).into(),
    })
}

/// Returns the stored counters of changes, which include those of agents that were removed.
fn changes(call: &Call) -> Result<Option<BTreeMap<&'static str, u64>>, Failure> {
    let removed = call.caller.may_gone("change:read", AgentId(u32::MAX));
    if !removed || !call.scope_of("change:read").is_all() {
        return Ok(None);
    }
    let counts = call.state().counts(call.reader())?.changes_by_cause;
    Ok(Some(CAUSES.iter().copied().zip(counts.into_iter().map(|(_, changes)| changes)).collect()))
}

/// Returns the counters for some agents, counted from memory; never includes the server.
pub(super) fn summary_of(call: &Call, scope: &Permitted) -> SummaryData {
    let silent = call.api.registry.silent_agents(scope).into();
    let mut data = SummaryData { silent, ..SummaryData::default() };
    call.registry().for_each_agent(scope, |agent| {
        let count = match agent.status {
            AgentStatus::Active => &mut data.status.active,
            AgentStatus::Disconnected => &mut data.status.disconnected,
            AgentStatus::NeverConnected => &mut data.status.never_connected,
            AgentStatus::Pending => &mut data.status.pending,
        };
        *count += 1;
        for group in &agent.groups {
            count_one(&mut data.groups, group);
        }
        if let Some(os) = agent.os.as_ref().filter(|os| !os.platform.is_empty()) {
            count_one(&mut data.os, &os.platform);
        }
    });
    data
}

/// Increments the count of a name; the name is copied only on first use.
fn count_one(counts: &mut BTreeMap<String, u64>, name: &str) {
    match counts.get_mut(name) {
        Some(count) => *count += 1,
        None => _ = counts.insert(name.to_owned(), 1),
    }
}

fn summary_os(call: &Call) -> Result<Answer, Failure> {
    let scope = call.scope();
    let mut names: Vec<String> = if scope.is_all() {
        call.registry().summary(call.reader())?.os.into_iter().map(|(name, _)| name).collect()
    } else {
        summary_of(call, &scope).os.into_keys().collect()
    };
    names.retain(|name| !name.is_empty());
    names.sort();
    let total = names.len() as u64;
    Ok(Answer::List(List::new(
        names.into_iter().map(Value::String).collect(),
        total,
        [
            "Showing the operative system of all specified agents",
            "Could not get the operative system of some agents",
            "Could not get the operative system of any agent",
        ],
    )))
}
