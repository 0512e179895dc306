//! Lists of agents: filters, order and page. A caller's query becomes one [`AgentCondition`] over
//! whitelisted columns; values reach SQL only as bound parameters.

use model::{AgentId, AgentStatus};

use super::limits::PAGE_ROWS_DEFAULT;
use super::{AgentRow, Permitted};

/// A column that lists filter and sort by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AgentColumn {
    Id,
    Name,
    /// Address last heard from, or else the one registered with.
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
    OsCodename,
    /// Time of registration, seconds since the epoch.
    DateAdd,
    /// Time at which it was last heard from, seconds since the epoch.
    LastKeepAlive,
    /// Time at which it was found disconnected, seconds since the epoch.
    DisconnectionTime,
    /// Groups. A comparison matches if one of the agent's groups matches, a negated one if all do.
    Group,
    /// Reason for its status, by number.
    StatusCode,
    /// First number of the OS version.
    OsMajor,
    /// Second number of the OS version.
    OsMinor,
    /// MD5 of the group configuration that it runs; null when it runs none.
    ConfigSum,
    /// `synced` or `not synced`: whether it runs the configuration of its groups.
    ConfigStatus,
    /// A column that is null for every agent.
    Nothing,
}

/// Comparison of a column with a value. Text compares without case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompareOp {
    Equal,
    /// Not equal; false for null.
    NotEqual,
    Less,
    Greater,
    Contains,
    NotContains,
}

/// A tree of comparisons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentCondition {
    /// All conditions hold; true when empty.
    And(Vec<AgentCondition>),
    /// At least one condition holds; false when empty.
    Or(Vec<AgentCondition>),
    Compare {
        column: AgentColumn,
        op: CompareOp,
        /// The value to compare with; numbers in decimal.
        value: String,
    },
    /// The column has no value.
    IsNull(AgentColumn),
    /// The column has a value.
    NotNull(AgentColumn),
}

impl AgentCondition {
    /// Returns the condition that `column` equals any of `values`; the word `null` matches null.
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

/// One step of a sort order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sort {
    pub column: AgentColumn,
    pub descending: bool,
}

/// Filters, order and page of agents. Filters of different fields must all match; of the values of
/// one field at least one must. An empty list does not filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentQuery {
    /// Number of rows to skip.
    pub offset: u64,
    /// Maximum number of rows, reduced to [`super::limits::PAGE_ROWS_MAX`] if larger.
    pub limit: u64,
    /// Only these numbers; an empty list matches none.
    pub ids: Option<Vec<AgentId>>,
    /// The agents that the caller may see.
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
    /// True: only silent agents, false: all others. Like a search, it is resolved by the registry.
    pub silent: Option<bool>,
    /// Text that some column contains; with a leading `-`, text that no column contains.
    pub search: Option<String>,
    /// Last heard from longer ago than this (or registered, if never heard from), seconds.
    pub older_than_s: Option<u64>,
    pub condition: Option<AgentCondition>,
    /// Sort order. Ties are resolved by number; an empty order sorts by number.
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
            silent: None,
            search: None,
            older_than_s: None,
            condition: None,
            sort: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentPage {
    pub items: Vec<AgentRow>,
    /// Number of matching agents on all pages.
    pub total: u64,
    /// Those of [`AgentQuery::ids`] that are not registered, ascending.
    pub missing: Vec<AgentId>,
}

/// The distinct values of some columns, each with the number of agents.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DistinctPage {
    /// Values in the order of the requested columns; most agents first unless sorted.
    pub items: Vec<(Vec<Option<String>>, u64)>,
    /// Number of distinct values on all pages.
    pub total: u64,
}
