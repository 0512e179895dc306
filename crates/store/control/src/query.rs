//! Lists of agents: filters, order and page. What a caller asks becomes one [`AgentCondition`] over
//! whitelisted columns; values reach SQL only as bound parameters.

use model::{AgentId, AgentRecord, AgentStatus};

use super::limits::PAGE_ROWS_DEFAULT;
use super::{ConfigState, Permitted, StatusCode};

/// A column that lists filter and sort by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AgentColumn {
    Id,
    Name,
    /// Address last heard from, else the one registered with.
    Ip,
    /// Address registered with.
    RegisterIp,
    /// Status, by its word.
    Status,
    /// Version of the program; sorted by number.
    Version,
    Hostname,
    OsName,
    OsPlatform,
    /// OS version; sorted by number.
    OsVersion,
    OsArch,
    OsUname,
    /// When it was registered, seconds since the epoch.
    DateAdd,
    /// When it was last heard from, seconds since the epoch.
    LastKeepAlive,
    /// When it went silent, seconds since the epoch.
    DisconnectionTime,
    /// Groups: compares one whole name, finds an agent that has it.
    Group,
    /// Why it has its status, by number.
    StatusCode,
    /// First number of the OS version.
    OsMajor,
    /// Second number of the OS version.
    OsMinor,
    /// MD5 of the groups' configuration that it runs; no value when it runs none.
    ConfigSum,
    /// `synced` or `not synced`: whether it runs what its groups configure.
    ConfigStatus,
    /// A column that no agent has a value in.
    Nothing,
}

/// Comparison of a column with a value. Text compares without case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompareOp {
    Equal,
    /// Not equal; not true of what has no value.
    NotEqual,
    Less,
    Greater,
    Contains,
    NotContains,
}

/// A tree of comparisons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentCondition {
    /// All of them; true when empty.
    And(Vec<AgentCondition>),
    /// Any of them; false when empty.
    Or(Vec<AgentCondition>),
    Compare {
        column: AgentColumn,
        op: CompareOp,
        /// With what; numbers in decimal.
        value: String,
    },
    /// The column has no value.
    IsNull(AgentColumn),
    /// The column has a value.
    NotNull(AgentColumn),
}

impl AgentCondition {
    /// `column` equals any of `values`; the word `null` means no value.
    pub fn any_of<'a>(column: AgentColumn, values: impl IntoIterator<Item = &'a str>) -> Self {
        Self::Or(
            values
                .into_iter()
                .map(|v| match v {
                    "null" => Self::IsNull(column),
                    v => Self::Compare { column, op: CompareOp::Equal, value: v.to_owned() },
                })
                .collect(),
        )
    }
}

/// One step of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sort {
    pub column: AgentColumn,
    pub descending: bool,
}

/// Selection, order and page of agents. Filters of different fields must all hold; of the
/// values of one field any. An empty list is no filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentQuery {
    /// Rows to pass over.
    pub offset: u64,
    /// Rows at most; above [`super::limits::PAGE_ROWS_MAX`] it is cut to it.
    pub limit: u64,
    /// Only these numbers; an empty list matches none.
    pub ids: Option<Vec<AgentId>>,
    /// Of those that the caller may see.
    pub permitted: Permitted,
    pub status: Vec<AgentStatus>,
    pub name: Vec<String>,
    /// Addresses last heard from.
    pub ip: Vec<String>,
    /// Addresses registered with.
    pub register_ip: Vec<String>,
    pub group: Vec<String>,
    pub os_platform: Vec<String>,
    pub os_name: Vec<String>,
    pub os_version: Vec<String>,
    pub version: Vec<String>,
    /// Text that any column contains; with a leading `-`, that none does.
    pub search: Option<String>,
    /// Last heard from longer ago than this (registered, when never heard from), seconds.
    pub older_than_s: Option<u64>,
    pub condition: Option<AgentCondition>,
    /// Order; ties and none: by number.
    pub sort: Vec<Sort>,
}

impl Default for AgentQuery {
    fn default() -> Self {
        Self {
            offset: 0,
            limit: PAGE_ROWS_DEFAULT,
            ids: None,
            permitted: Permitted::All,
            status: Vec::new(),
            name: Vec::new(),
            ip: Vec::new(),
            register_ip: Vec::new(),
            group: Vec::new(),
            os_platform: Vec::new(),
            os_name: Vec::new(),
            os_version: Vec::new(),
            version: Vec::new(),
            search: None,
            older_than_s: None,
            condition: None,
            sort: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentPage {
    pub items: Vec<AgentRecord>,
    /// Status code of each of them, in the same order.
    pub codes: Vec<StatusCode>,
    /// Configuration state of each of them, in the same order.
    pub configs: Vec<ConfigState>,
    /// Number of matches without paging.
    pub total: u64,
    /// Which of [`AgentQuery::ids`] are not registered, ascending.
    pub missing: Vec<AgentId>,
}

/// The distinct values of some columns, each with the number of agents.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DistinctPage {
    /// Values in the order of the columns asked for; most agents first unless sorted.
    pub items: Vec<(Vec<Option<String>>, u64)>,
    /// Number of distinct values without paging.
    pub total: u64,
}
