//! The fleet at a glance.

use std::collections::BTreeMap;

use model::{AgentId, AgentRecord};
use registry::{AgentColumn, AgentQuery, Sort};
use serde::Serialize;
use utoipa::ToSchema;

use super::agents::{AgentItem, READ, item};
use super::summary::StatusData;
use crate::call::Call;
use crate::envelope::Answer;
use crate::error::Failure;
use crate::operation::{COMMON, Handler, Operation, PAGE_ITEMS_MAX, Shape, Verb};

pub(super) const OPERATIONS: &[Operation] = &[Operation {
    verb: Verb::Get,
    path: "/overview/agents",
    id: "overview.agents",
    about: "Counters of the fleet and the agent registered last.",
    access: READ,
    parameters: &[COMMON],
    body: None,
    shape: Shape::Plain("OverviewData"),
    handler: Handler::Blocking(overview),
}];

/// The fleet at a glance.
#[derive(Serialize, ToSchema)]
pub(crate) struct OverviewData {
    nodes: Vec<NodeCount>,
    groups: Vec<GroupCount>,
    agent_os: Vec<OsCount>,
    agent_status: StatusData,
    agent_version: Vec<VersionCount>,
    /// None or one.
    last_registered_agent: Vec<AgentItem>,
}

/// Agents of one node.
#[derive(Serialize, ToSchema)]
pub(crate) struct NodeCount {
    node_name: String,
    count: u64,
}

/// Agents of one group.
#[derive(Serialize, ToSchema)]
pub(crate) struct GroupCount {
    name: String,
    count: u64,
}

/// Agents of one operating system.
#[derive(Serialize, ToSchema)]
pub(crate) struct OsCount {
    os: OsKey,
    count: u64,
}

/// An operating system.
#[derive(Serialize, ToSchema, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OsKey {
    name: String,
    platform: String,
    version: String,
}

/// Agents of one version of the program.
#[derive(Serialize, ToSchema)]
pub(crate) struct VersionCount {
    version: String,
    count: u64,
}

fn overview(call: &Call) -> Result<Answer, Failure> {
    let summary = call.registry().summary()?;
    let total = summary.status.total;
    Answer::data(&OverviewData {
        nodes: vec![NodeCount { node_name: call.api.node().to_owned(), count: total }],
        groups: summary
            .groups
            .into_iter()
            .map(|(name, count)| GroupCount { name, count })
            .collect(),
        agent_os: systems(call)?,
        agent_status: StatusData::from(summary.status),
        agent_version: summary
            .versions
            .into_iter()
            .filter(|(version, _)| !version.is_empty())
            .map(|(version, count)| VersionCount { version, count })
            .collect(),
        last_registered_agent: last_registered(call)?
            .into_iter()
            .map(|agent| item(&call.api, agent))
            .collect(),
    })
}

/// Agents by name, platform and version of their system: the kept counters know the platform only,
/// so this one walks the agents, a page at a time.
fn systems(call: &Call) -> Result<Vec<OsCount>, Failure> {
    let mut counts: BTreeMap<OsKey, u64> = BTreeMap::new();
    let mut query = AgentQuery { limit: PAGE_ITEMS_MAX, ..AgentQuery::default() };
    loop {
        let page = call.registry().agents(&query)?;
        let read = page.items.len() as u64;
        for agent in page.items {
            let Some(os) = agent.os.filter(|_| agent.id != AgentId::SERVER) else { continue };
            let key = OsKey { name: os.name, platform: os.platform, version: os.version };
            *counts.entry(key).or_default() += 1;
        }
        query.offset += read;
        if read == 0 || query.offset >= page.total {
            break;
        }
    }
    let mut list: Vec<OsCount> =
        counts.into_iter().map(|(os, count)| OsCount { os, count }).collect();
    list.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.os.cmp(&b.os)));
    Ok(list)
}

fn last_registered(call: &Call) -> Result<Option<AgentRecord>, Failure> {
    let query = AgentQuery {
        limit: 1,
        sort: vec![Sort { column: AgentColumn::Id, descending: true }],
        ..AgentQuery::default()
    };
    let page = call.registry().agents(&query)?;
    Ok(page.items.into_iter().next().filter(|agent| agent.id != AgentId::SERVER))
}
