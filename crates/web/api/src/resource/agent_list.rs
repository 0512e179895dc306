//! Lists of agents, shared by several resources: the query, the columns and the items.

use model::{AgentId, AgentOs, AgentStatus, timestamp};
use registry::{AgentColumn, AgentCondition, AgentQuery, AgentRow, CompareOp, Sort, StatusCode};
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use rest::code::Code;
use rest::error::Failure;
use rest::http::api::Api;
use rest::http::call::Call;
use rest::http::envelope::{ItemWriter, List, to_value};
use rest::http::operation::{Access, PAGE_ITEMS_MAX, action};
use rest::http::q::{self, Op, Query};
use rest::http::shape;

pub(super) const READ: Access = action("agent:read", "agent:id");

/// Fields that `sort` and `q` may name.
const COLUMNS: &[(&str, Column)] = &[
    ("id", Column::Of(AgentColumn::Id)),
    ("name", Column::Of(AgentColumn::Name)),
    ("ip", Column::Of(AgentColumn::Ip)),
    ("registerIP", Column::Of(AgentColumn::RegisterIp)),
    ("status", Column::Of(AgentColumn::Status)),
    ("status_code", Column::Of(AgentColumn::StatusCode)),
    ("version", Column::Of(AgentColumn::Version)),
    ("os.name", Column::Of(AgentColumn::OsName)),
    ("os.platform", Column::Of(AgentColumn::OsPlatform)),
    ("os.version", Column::Of(AgentColumn::OsVersion)),
    ("os.major", Column::Of(AgentColumn::OsMajor)),
    ("os.minor", Column::Of(AgentColumn::OsMinor)),
    ("os.arch", Column::Of(AgentColumn::OsArch)),
    ("os.uname", Column::Of(AgentColumn::OsUname)),
    ("os.codename", Column::Of(AgentColumn::OsCodename)),
    ("os.build", Column::Of(AgentColumn::Nothing)),
    ("dateAdd", Column::Of(AgentColumn::DateAdd)),
    ("lastKeepAlive", Column::Of(AgentColumn::LastKeepAlive)),
    ("disconnection_time", Column::Of(AgentColumn::DisconnectionTime)),
    ("group", Column::Of(AgentColumn::Group)),
    ("configSum", Column::Of(AgentColumn::ConfigSum)),
    ("mergedSum", Column::Of(AgentColumn::ConfigSum)),
    ("manager", Column::Manager),
    ("node_name", Column::Node),
    ("group_config_status", Column::Of(AgentColumn::ConfigStatus)),
];

/// The word before the number in the version of an agent.
const PRODUCT: &str = "Holdfast";

/// The source of a field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    /// The agent's row.
    Of(AgentColumn),
    /// The same for all: the name of the server's host.
    Manager,
    /// The same for all: the name of this node.
    Node,
}

/// Fields that `select` may name.
const FIELDS: &[&str] = &[
    "id",
    "name",
    "ip",
    "registerIP",
    "status",
    "status_code",
    "state",
    "silent_since",
    "ephemeral_s",
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
    "os.build",
    "os.codename",
    "os.uname",
    "configSum",
    "mergedSum",
];

/// An agent.
#[derive(Serialize, ToSchema)]
#[expect(non_snake_case, reason = "the names of the 4.x API")]
pub(crate) struct AgentItem {
    id: String,
    name: String,
    /// `silent`: not heard although it did not say goodbye. `left`: it has left the fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    /// Time since when it is silent, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    silent_since: Option<String>,
    /// Silence after which it is removed, seconds; absent for an agent that stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    ephemeral_s: Option<u64>,
    /// Its last known address; before the first contact the one it was registered with, or `any`.
    ip: String,
    registerIP: String,
    status: &'static str,
    /// 0: no problem, 3: shut down, 4: no heartbeat, 6: left the fleet.
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
    /// `synced` if the agent runs the configuration of its groups.
    group_config_status: &'static str,
    /// MD5 of the groups' configuration that it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    configSum: Option<String>,
    /// The same sum as `configSum`: an agent has no other file of its groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    mergedSum: Option<String>,
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
    /// `bookworm`.
    #[serde(skip_serializing_if = "String::is_empty")]
    codename: String,
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
            codename: os.codename,
        }
    }
}

pub(super) fn item(api: &Api, row: AgentRow) -> AgentItem {
    let AgentRow { record: agent, status_code: code, config, ephemeral_s } = row;
    let silent_since_us = api.registry.silent_since(agent.id);
    let sum = config.sum.filter(|sum| !sum.is_empty());
    AgentItem {
        id: agent.id.to_string(),
        name: agent.name,
        state: state(code, silent_since_us),
        silent_since: silent_since_us.map(timestamp::micros),
        ephemeral_s,
        ip: agent.ip.unwrap_or_else(|| agent.register_ip.clone()),
        registerIP: agent.register_ip,
        status: agent.status.name(),
        status_code: code.number(),
        dateAdd: timestamp::seconds_offset(agent.added_at_s),
        lastKeepAlive: agent.keepalive_at_s.map(timestamp::seconds_offset),
        disconnection_time: agent.disconnected_at_s.map(timestamp::seconds_offset),
        version: agent.version,
        manager: api.options.hostname.clone(),
        node_name: api.node().to_owned(),
        group: agent.groups,
        group_config_status: config_status(config.synced),
        configSum: sum.clone(),
        mergedSum: sum,
        os: agent.os.map(OsItem::from),
    }
}

/// Returns the word for the state of an agent, if it is neither connected nor stopped.
fn state(code: StatusCode, silent_since_us: Option<u64>) -> Option<&'static str> {
    let silent = silent_since_us.map(|_| "silent");
    (code == StatusCode::Left).then_some("left").or(silent)
}

/// Returns the word for whether an agent has the configuration of its groups.
pub(super) fn config_status(synced: bool) -> &'static str {
    if synced { "synced" } else { "not synced" }
}

/// Messages of lists of agents.
pub(super) const LIST_MESSAGES: [&str; 3] = [
    "All selected agents information was returned",
    "Some agents information was not returned",
    "No agent information was returned",
];

/// Returns a page of agents as `select` and `distinct` shape it.
pub(super) fn page(call: &Call, query: AgentQuery) -> Result<List, Failure> {
    page_and_missing(call, query).map(|(list, _)| list)
}

/// Returns the page, and the agents named in the query that do not exist, from one snapshot.
pub(super) fn page_and_missing(
    call: &Call,
    mut query: AgentQuery,
) -> Result<(List, Vec<AgentId>), Failure> {
    let parameters = &call.parameters;
    let selected = parameters.list("select");
    shape::check_select(selected, FIELDS)?;
    if parameters.flag("distinct") {
        return distinct(call, query, selected);
    }
    if selected == ["id"] && query.sort.is_empty() && query.ids.is_none() {
        return Ok((ids(call, &query)?, Vec::new()));
    }
    query.limit = query.limit.min(PAGE_ITEMS_MAX);
    let mut page = call.registry().agents(call.reader(), &query)?;
    let (total, missing) = (page.total, std::mem::take(&mut page.missing));
    let mut items = ItemWriter::default();
    for row in page.items {
        let item = item(&call.api, row);
        if selected.is_empty() {
            items.push(&item)?;
        } else {
            items.push(&shape::select(to_value(&item)?, selected, &["id"]))?;
        }
    }
    Ok((List::written(items, total, LIST_MESSAGES), missing))
}

/// Returns a list of agent numbers only, without reading any other column.
fn ids(call: &Call, query: &AgentQuery) -> Result<List, Failure> {
    let (ids, total) = call.registry().agent_ids_page(call.reader(), query)?;
    let mut items = ItemWriter::default();
    for id in ids {
        items.push(&IdItem(id))?;
    }
    Ok(List::written(items, total, LIST_MESSAGES))
}

/// An agent's number, serialized without an intermediate string.
struct IdItem(AgentId);

impl Serialize for IdItem {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut fields = to.serialize_struct("IdItem", 1)?;
        fields.serialize_field("id", &format_args!("{}", self.0))?;
        fields.end()
    }
}

/// Returns the distinct items, and the agents named in the query that do not exist. The database
/// removes duplicates, unless the number is selected and makes every item unique.
fn distinct(
    call: &Call,
    query: AgentQuery,
    selected: &[String],
) -> Result<(List, Vec<AgentId>), Failure> {
    if !selected.is_empty() && !selected.iter().any(|name| name == "id") {
        // A field with nested fields stands for all of them.
        let named = |known: &str, name: &str| {
            known.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let wanted = |(known, _): &&(&str, Column)| selected.iter().any(|name| named(known, name));
        let columns: Vec<(&'static str, Column)> = COLUMNS.iter().filter(wanted).copied().collect();
        let missing = missing(call, &query);
        return Ok((super::agent_values::different(call, query, &columns)?, missing));
    }
    let mut page = call.registry().agents(call.reader(), &query)?;
    let (all, missing) = (page.total, std::mem::take(&mut page.missing));
    let mut items = Vec::with_capacity(page.items.len());
    for row in page.items {
        let value = to_value(&item(&call.api, row))?;
        items.push(shape::select(value, selected, &[]));
    }
    Ok((List::new(items, all, LIST_MESSAGES), missing))
}

/// Returns the agents named in the query that do not exist, from memory.
fn missing(call: &Call, query: &AgentQuery) -> Vec<AgentId> {
    let there = |id: &AgentId| call.api.registry.agent(*id).is_some();
    let named = query.ids.as_deref().unwrap_or_default();
    let mut missing: Vec<AgentId> = named.iter().copied().filter(|id| !there(id)).collect();
    missing.sort_unstable();
    missing
}

/// Converts `q` into a condition over the fixed list of columns, with bound values.
fn condition(api: &Api, query: Query<Column>) -> Result<AgentCondition, Failure> {
    let list = |list: Vec<Query<Column>>| {
        list.into_iter().map(|query| condition(api, query)).collect::<Result<Vec<_>, _>>()
    };
    let (column, op, value) = match query {
        Query::All(all) => return Ok(AgentCondition::And(list(all)?)),
        Query::Any(any) => return Ok(AgentCondition::Or(list(any)?)),
        Query::Compare { column, op, value } => (column, op, value),
    };
    let column = match column {
        Column::Of(column) => column,
        Column::Manager => return Ok(constant(&api.options.hostname, op, &value)),
        Column::Node => return Ok(constant(api.node(), op, &value)),
    };
    let ordered = matches!(op, Op::Less | Op::Greater);
    let (op, value) = match column {
        _ if value == "null" && op == Op::Equal => return Ok(AgentCondition::IsNull(column)),
        _ if value == "null" && op == Op::NotEqual => return Ok(AgentCondition::NotNull(column)),
        AgentColumn::DateAdd | AgentColumn::LastKeepAlive | AgentColumn::DisconnectionTime
            if op != Op::Contains =>
        {
            let (op, at_us) = q::instant(op, &value, api.options.clock.guarded_us())?;
            (op, (at_us / 1_000_000).to_string())
        }
        AgentColumn::Group if ordered => {
            return Err(Failure::detailed(
                Code::QueryOperatorInvalid,
                "q: group takes = != ~ only",
            ));
        }
        _ => (op, value),
    };
    Ok(AgentCondition::Compare { column, op: compare_op(op), value })
}

fn compare_op(op: Op) -> CompareOp {
    match op {
        Op::Equal => CompareOp::Equal,
        Op::NotEqual => CompareOp::NotEqual,
        Op::Less => CompareOp::Less,
        Op::Greater => CompareOp::Greater,
        Op::Contains => CompareOp::Contains,
    }
}

/// Returns a condition that is always or never true.
fn always(holds: bool) -> AgentCondition {
    if holds { AgentCondition::And(Vec::new()) } else { AgentCondition::Or(Vec::new()) }
}

/// Returns the result of comparing a value that is the same for all agents.
fn constant(own: &str, op: Op, value: &str) -> AgentCondition {
    let (own, value) = (own.to_lowercase(), value.to_lowercase());
    always(match op {
        Op::Equal => own == value,
        Op::NotEqual => own != value,
        Op::Less => own < value,
        Op::Greater => own > value,
        Op::Contains => own.contains(&value),
    })
}

/// Returns the query with the filters, order and page from the parameters.
pub(super) fn agent_query(call: &Call) -> Result<AgentQuery, Failure> {
    let parameters = &call.parameters;
    // The word `all` means no filter.
    let one = |name: &str| -> Vec<String> {
        parameters.text(name).filter(|t| *t != "all").map(str::to_owned).into_iter().collect()
    };
    let mut conditions = Vec::new();
    let own = [("manager", call.api.options.hostname.as_str()), ("node_name", call.api.node())];
    for (name, value) in own {
        if one(name).iter().any(|wanted| !wanted.eq_ignore_ascii_case(value)) {
            conditions.push(AgentCondition::Or(Vec::new()));
        }
    }
    if let Some(wanted) = parameters.text("group_config_status") {
        conditions.push(AgentCondition::any_of(AgentColumn::ConfigStatus, [wanted]));
    }
    if let Some(text) = parameters.text("q") {
        conditions.push(condition(&call.api, q::parse(text, COLUMNS)?)?);
    }
    let search = search(call, &mut conditions);
    Ok(AgentQuery {
        offset: parameters.database_offset()?,
        limit: parameters.whole("limit"),
        ids: parameters.agents("agents_list").map(<[AgentId]>::to_vec),
        permitted: call.scope(),
        status: parameters
            .list("status")
            .iter()
            .filter_map(|s| AgentStatus::from_name(s))
            .collect(),
        silent: parameters.flag_given("silent"),
        name: one("name"),
        ip: one("ip"),
        register_ip: one("registerIP"),
        group: one("group"),
        os_platform: one("os.platform"),
        os_name: one("os.name"),
        os_version: one("os.version"),
        version: one("version").iter().flat_map(|asked| versions(asked)).collect(),
        search,
        older_than_s: parameters.seconds("older_than"),
        condition: (!conditions.is_empty()).then_some(AgentCondition::And(conditions)),
        sort: sort(parameters.text("sort"))?,
    })
}

/// Returns the versions that a filter stands for: the one written, and for a number with or without
/// the product (`v1.2.3`, `1.2.3`, `Holdfast 1.2.3`) the version of that number.
fn versions(asked: &str) -> Vec<String> {
    let number = match asked.split_once(' ') {
        Some((product, number)) if product.eq_ignore_ascii_case(PRODUCT) => number,
        _ => asked,
    };
    let number = number.strip_prefix('v').unwrap_or(number);
    let bare = number.starts_with(|first: char| first.is_ascii_digit());
    let named = bare.then(|| format!("{PRODUCT} v{number}"));
    named.into_iter().chain([asked.to_owned()]).collect()
}

/// Returns the text left to search for. A match in the names that are the same for all agents selects
/// all of them or, with a leading `-`, none.
fn search(call: &Call, conditions: &mut Vec<AgentCondition>) -> Option<String> {
    let text = call.parameters.text("search")?;
    let (wanted, unwanted) = match text.strip_prefix('-') {
        Some(text) => (text, true),
        None => (text, false),
    };
    let own = [call.api.options.hostname.as_str(), call.api.node()];
    if !own.iter().any(|own| own.to_lowercase().contains(&wanted.to_lowercase())) {
        return Some(text.to_owned());
    }
    if unwanted {
        conditions.push(always(false));
    }
    None
}

/// Parses `sort`. Fields with the same value for all agents are ignored.
pub(super) fn sort(text: Option<&str>) -> Result<Vec<Sort>, Failure> {
    let steps = shape::sort_fields(text, COLUMNS)?.into_iter().filter_map(|field| {
        let column = match field.column {
            Column::Of(column) => column,
            Column::Manager | Column::Node => return None,
        };
        Some(Sort { column, descending: field.descending })
    });
    Ok(steps.collect())
}

/// Returns the column of a field of `stats/distinct`.
pub(super) fn column(name: &str) -> Result<Column, Failure> {
    if let Some((_, column)) = COLUMNS.iter().find(|(known, _)| *known == name) {
        return Ok(*column);
    }
    let known: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    let name: String = name.chars().take(60).collect();
    let detail = format!("not a field: '{name}': allowed are {}", known.join(", "));
    Err(Failure::detailed(Code::SelectFieldInvalid, detail))
}
