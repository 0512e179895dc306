//! Summary of the whole fleet.

use std::collections::BTreeMap;

use model::AgentRecord;
use registry::{AgentRow, FleetSummary, Overview, Permitted, StatusSummary};
use serde::Serialize;
use utoipa::ToSchema;

use super::agent_list::{AgentItem, READ, item};
use super::group_item::{self, GroupItem};
use super::summary::StatusData;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::Answer;
use rest::http::operation::{COMMON, Handler, Operation, Shape, Verb};

pub(crate) const OPERATIONS: &[Operation] = &[Operation {
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

/// Overview of the fleet.
#[derive(Serialize, ToSchema)]
pub(crate) struct OverviewData {
    nodes: Vec<NodeCount>,
    groups: Vec<GroupItem>,
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
    let scope = call.scope();
    let overview = if scope.is_all() {
        call.registry().overview(call.reader())?
    } else {
        count_overview(call, &scope)
    };
    let summary = overview.summary;
    let node = call.api.node().to_owned();
    let may_read = |group: &registry::GroupCount| call.may("group:read", "group:id", &group.name);
    let groups = overview.groups.into_iter().filter(may_read);
    let os = |[name, platform, version]: [String; 3]| OsKey { name, platform, version };
    Answer::data(&OverviewData {
        nodes: vec![NodeCount { node_name: node, count: summary.status.total }],
        groups: groups.map(|group| group_item::item(&call.api, group)).collect(),
        agent_os: overview
            .systems
            .into_iter()
            .map(|(system, count)| OsCount { os: os(system), count })
            .collect(),
        agent_status: StatusData::from(summary.status),
        agent_version: summary
            .versions
            .into_iter()
            .filter(|(version, _)| !version.is_empty())
            .map(|(version, count)| VersionCount { version, count })
            .collect(),
        last_registered_agent: overview.last.into_iter().map(|row| item(&call.api, row)).collect(),
    })
}

/// Returns the summary for a caller who sees part of the fleet, counted from a snapshot in memory.
fn count_overview(call: &Call, scope: &Permitted) -> Overview {
    let mut systems: BTreeMap<[String; 3], u64> = BTreeMap::new();
    let mut versions: BTreeMap<String, u64> = BTreeMap::new();
    let mut groups: BTreeMap<String, u64> = BTreeMap::new();
    let mut status = StatusSummary::default();
    let mut last: Option<AgentRow> = None;
    call.registry().for_each_row(scope, |row| {
        let agent = &row.record;
        status.add(agent.status);
        status.synced += u64::from(row.config.synced);
        let order = |agent: &AgentRecord| (agent.added_at_s, agent.id);
        if last.as_ref().is_none_or(|last| order(&last.record) < order(agent)) {
            last = Some(row.clone());
        }
        if let Some(os) = &agent.os {
            let key = [os.name.clone(), os.platform.clone(), os.version.clone()];
            *systems.entry(key).or_default() += 1;
        }
        if let Some(version) = &agent.version {
            *versions.entry(version.clone()).or_default() += 1;
        }
        for group in &agent.groups {
            *groups.entry(group.clone()).or_default() += 1;
        }
    });
    Overview {
        summary: FleetSummary { status, versions: most_first(versions), ..FleetSummary::default() },
        groups: most_first(groups)
            .into_iter()
            .map(|(name, count)| registry::GroupCount { name, count, ..Default::default() })
            .collect(),
        systems: most_first(systems),
        last,
    }
}

fn most_first<K: Ord>(counts: BTreeMap<K, u64>) -> Vec<(K, u64)> {
    let mut list: Vec<(K, u64)> = counts.into_iter().collect();
    list.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    list
}
