//! Agents: the list.

use model::{AgentId, AgentOs, AgentRecord, AgentStatus, timestamp};
use registry::{AgentColumn, AgentQuery, CompareOp, Condition, Sort};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::Api;
use crate::call::Call;
use crate::envelope::{Answer, List, to_value};
use crate::error::Failure;
use crate::operation::{
    AGENTS_LIST, Access, COMMON, Handler, Kind, Operation, PAGE_ITEMS_MAX, PAGING, Parameter, Q,
    Shape, Verb, action, query,
};
use crate::q::{self, Op, Query};
use crate::shape;

const STATUSES: &[&str] = &["active", "pending", "never_connected", "disconnected"];

/// The filters of `GET /agents`.
const FILTERS: &[Parameter] = &[
    AGENTS_LIST,
    query("select", Kind::Names, "Fields to return, with commas; id comes always."),
    query("sort", Kind::Sort, "Fields to sort by, with commas, a sign before each."),
    query("search", Kind::Text, "Text that any field holds; with - before it, that none holds."),
    query("status", Kind::Words(STATUSES), "Statuses, with commas."),
    Q,
    query("older_than", Kind::Timeframe, "Not heard from for this long, for example 7d."),
    query("os.platform", Kind::Text, "Platform, for example debian."),
    query("os.version", Kind::Text, "Version of the operating system."),
    query("os.name", Kind::Text, "Name of the operating system."),
    query("manager", Kind::Text, "Host name of the server."),
    query("version", Kind::Text, "Version of the agent's program."),
    query("group", Kind::Text, "Name of a group."),
    query("node_name", Kind::Text, "Name of the server's node."),
    query("name", Kind::Text, "Name of the agent."),
    query("ip", Kind::Text, "Address the agent was last heard from."),
    query("registerIP", Kind::Text, "Address the agent registered with."),
    query("group_config_status", Kind::Word(&["synced", "not synced"]), "Group configuration."),
    query("distinct", Kind::Flag, "Each different item once."),
];

/// Reading agents.
pub(super) const READ: Access = action("agent:read", "agent:id");

pub(super) const OPERATIONS: &[Operation] = &[Operation {
    verb: Verb::Get,
    path: "/agents",
    id: "agents.list",
    about: "Agents, filtered, sorted, a page at a time; 000 is the server itself.",
    access: READ,
    parameters: &[COMMON, PAGING, FILTERS],
    body: None,
    shape: Shape::List("AgentItem"),
    handler: Handler::Blocking(list),
}];

/// What a list may be sorted by.
const COLUMNS: &[(&str, AgentColumn)] = &[
    ("id", AgentColumn::Id),
    ("name", AgentColumn::Name),
    ("ip", AgentColumn::Ip),
    ("registerIP", AgentColumn::RegisterIp),
    ("status", AgentColumn::Status),
    ("version", AgentColumn::Version),
    ("os.name", AgentColumn::OsName),
    ("os.platform", AgentColumn::OsPlatform),
    ("os.version", AgentColumn::OsVersion),
    ("os.arch", AgentColumn::OsArch),
    ("os.uname", AgentColumn::OsUname),
    ("dateAdd", AgentColumn::DateAdd),
    ("lastKeepAlive", AgentColumn::LastKeepAlive),
    ("disconnection_time", AgentColumn::DisconnectionTime),
    ("group", AgentColumn::Group),
];

/// What may be selected.
const FIELDS: &[&str] = &[
    "id",
    "name",
    "ip",
    "registerIP",
    "status",
    "status_code",
    "dateAdd",
    "lastKeepAlive",
    "disconnection_time",
    "version",
    "manager",
    "node_name",
    "group",
    "group_config_status",
    "os.name",
    "os.platform",
    "os.version",
    "os.major",
    "os.minor",
    "os.arch",
    "os.uname",
];

/// An agent.
#[derive(Serialize, ToSchema)]
#[expect(non_snake_case, reason = "the names of the 4.x API")]
pub(crate) struct AgentItem {
    id: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip: Option<String>,
    registerIP: String,
    status: &'static str,
    /// 0 fine, 3 said goodbye or 4 fell silent.
    status_code: u8,
    dateAdd: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    lastKeepAlive: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disconnection_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    manager: String,
    node_name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    group: Vec<String>,
    group_config_status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    os: Option<OsItem>,
}

/// An agent's operating system.
#[derive(Serialize, ToSchema)]
pub(crate) struct OsItem {
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    platform: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    major: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    minor: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    arch: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uname: String,
}

impl From<AgentOs> for OsItem {
    fn from(os: AgentOs) -> Self {
        let mut parts = os.version.split('.').map(str::to_owned);
        let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        Self {
            name: os.name,
            platform: os.platform,
            version: os.version,
            major,
            minor,
            arch: os.arch,
            uname: os.uname,
        }
    }
}

/// `status_code` of an agent that fell silent.
const CODE_SILENT: u8 = 4;

pub(super) fn item(api: &Api, agent: AgentRecord) -> AgentItem {
    AgentItem {
        id: agent.id.to_string(),
        name: agent.name,
        ip: agent.ip.or_else(|| Some(agent.register_ip.clone()).filter(|ip| ip != "any")),
        registerIP: agent.register_ip,
        status: agent.status.name(),
        status_code: if agent.status == AgentStatus::Disconnected { CODE_SILENT } else { 0 },
        dateAdd: timestamp::seconds_offset(agent.added_at_s),
        lastKeepAlive: agent.keepalive_at_s.map(timestamp::seconds_offset),
        disconnection_time: agent.disconnected_at_s.map(timestamp::seconds_offset),
        version: agent.version,
        manager: api.options.hostname.clone(),
        node_name: api.node().to_owned(),
        group: agent.groups,
        group_config_status: match agent.status {
            AgentStatus::NeverConnected => "not synced",
            _ => "synced",
        },
        os: agent.os.map(OsItem::from),
    }
}

/// RFC 3339 with a fraction, cut to whole seconds.
pub(super) fn seconds_z(text: &str) -> String {
    match text.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => text.to_owned(),
    }
}

fn list(call: &Call) -> Result<Answer, Failure> {
    let parameters = &call.parameters;
    let selected = parameters.list("select");
    shape::check_select(selected, FIELDS)?;
    let mut query = agent_query(call)?;
    let (offset, limit) = (query.offset, query.limit);
    let distinct = parameters.flag("distinct");
    if distinct {
        (query.offset, query.limit) = (0, PAGE_ITEMS_MAX);
    }
    let page = call.registry().agents(&query)?;
    let always: &[&str] = if distinct { &[] } else { &["id"] };
    let mut items = Vec::with_capacity(page.items.len());
    for agent in page.items {
        let value = to_value(&item(&call.api, agent))?;
        items.push(shape::select(value, selected, always));
    }
    let mut total = page.total;
    if distinct {
        items = shape::distinct(items);
        total = items.len() as u64;
        items = shape::page(items, offset, limit);
    }
    let mut list = List::new(
        items,
        total,
        [
            "All selected agents information was returned",
            "Some agents information was not returned",
            "No agent information was returned",
        ],
    );
    for id in parameters.agents("agents_list").unwrap_or_default() {
        if call.api.registry.agent(*id).is_none() {
            list.fail(1701, id.to_string());
        }
    }
    Ok(Answer::List(list))
}

fn condition(query: Query<AgentColumn>, now_us: u64) -> Result<Condition, Failure> {
    let list = |list: Vec<Query<AgentColumn>>| {
        list.into_iter().map(|query| condition(query, now_us)).collect::<Result<Vec<_>, _>>()
    };
    let (column, op, value) = match query {
        Query::All(all) => return Ok(Condition::And(list(all)?)),
        Query::Any(any) => return Ok(Condition::Or(list(any)?)),
        Query::Compare { column, op, value } => (column, op, value),
    };
    let ordered = matches!(op, Op::Less | Op::Greater);
    let (op, value) = match column {
        AgentColumn::DateAdd | AgentColumn::LastKeepAlive | AgentColumn::DisconnectionTime => {
            let (op, at_us) = q::instant(op, &value, now_us)?;
            (op, (at_us / 1_000_000).to_string())
        }
        AgentColumn::Group if ordered => {
            return Err(Failure::detailed(1409, "q: group takes = != ~ only"));
        }
        _ if value == "null" && op == Op::Equal => return Ok(Condition::IsNull(column)),
        _ => (op, value),
    };
    let op = match op {
        Op::Equal => CompareOp::Equal,
        Op::NotEqual => CompareOp::NotEqual,
        Op::Less => CompareOp::Less,
        Op::Greater => CompareOp::Greater,
        Op::Contains => CompareOp::Contains,
    };
    Ok(Condition::Compare { column, op, value })
}

fn agent_query(call: &Call) -> Result<AgentQuery, Failure> {
    let parameters = &call.parameters;
    // The word `all` is no filter.
    let one = |name: &str| -> Vec<String> {
        parameters.text(name).filter(|t| *t != "all").map(str::to_owned).into_iter().collect()
    };
    let sort = shape::sort_fields(parameters.text("sort"), COLUMNS)?;
    let mut conditions = Vec::new();
    let own = [("manager", call.api.options.hostname.as_str()), ("node_name", call.api.node())];
    for (name, value) in own {
        if one(name).iter().any(|wanted| !wanted.eq_ignore_ascii_case(value)) {
            conditions.push(Condition::Or(Vec::new()));
        }
    }
    if let Some(wanted) = parameters.text("group_config_status") {
        let op = if wanted == "synced" { CompareOp::NotEqual } else { CompareOp::Equal };
        let value = AgentStatus::NeverConnected.name().to_owned();
        conditions.push(Condition::Compare { column: AgentColumn::Status, op, value });
    }
    if let Some(text) = parameters.text("q") {
        conditions.push(condition(q::parse(text, COLUMNS)?, call.api.options.clock.now_us())?);
    }
    Ok(AgentQuery {
        offset: parameters.whole("offset"),
        limit: parameters.whole("limit"),
        ids: parameters.agents("agents_list").map(<[AgentId]>::to_vec),
        status: parameters
            .list("status")
            .iter()
            .filter_map(|s| AgentStatus::from_name(s))
            .collect(),
        name: one("name"),
        ip: one("ip"),
        register_ip: one("registerIP"),
        group: one("group"),
        os_platform: one("os.platform"),
        os_name: one("os.name"),
        os_version: one("os.version"),
        version: one("version"),
        search: parameters.text("search").map(str::to_owned),
        older_than_s: parameters.seconds("older_than"),
        condition: (!conditions.is_empty()).then_some(Condition::And(conditions)),
        sort: sort
            .into_iter()
            .map(|field| Sort { column: field.column, descending: field.descending })
            .collect(),
    })
}
