//! SQL expressions of the columns of lists.

use crate::AgentColumn;

/// The way in which a column's values are compared.
pub(super) enum Form {
    /// Text, without case.
    Text(&'static str),
    /// The word of a status.
    Status,
    Number(&'static str),
    /// Seconds since the epoch, which lists print as a date.
    Date(&'static str),
    /// Text that is ordered by a number stored with it.
    Version(&'static str, &'static str),
    /// Names in another table.
    Group,
    /// The word of a flag.
    Config,
}

pub(super) fn form(column: AgentColumn) -> Form {
    match column {
        AgentColumn::Id => Form::Number("a.id"),
        AgentColumn::Name => Form::Text("a.name"),
        AgentColumn::Ip => Form::Text("coalesce(a.ip, a.register_ip)"),
        AgentColumn::RegisterIp => Form::Text("a.register_ip"),
        AgentColumn::Status => Form::Status,
        AgentColumn::Version => Form::Version("a.version", "a.version_key"),
        AgentColumn::Hostname => Form::Text("a.hostname"),
        AgentColumn::OsName => Form::Text("a.os_name"),
        AgentColumn::OsPlatform => Form::Text("a.os_platform"),
        AgentColumn::OsVersion => Form::Version("a.os_version", "a.os_version_key"),
        AgentColumn::OsArch => Form::Text("a.os_arch"),
        AgentColumn::OsUname => Form::Text("a.os_uname"),
        AgentColumn::OsCodename => Form::Text("nullif(a.os_codename, '')"),
        AgentColumn::DateAdd => Form::Date("a.added_at_s"),
        AgentColumn::LastKeepAlive => Form::Date("a.keepalive_at_s"),
        AgentColumn::DisconnectionTime => Form::Date("a.disconnected_at_s"),
        AgentColumn::Group => Form::Group,
        AgentColumn::StatusCode => Form::Number("a.status_code"),
        AgentColumn::OsMajor => Form::Text(OS_MAJOR),
        AgentColumn::OsMinor => Form::Text(OS_MINOR),
        AgentColumn::ConfigSum => Form::Text("nullif(a.merged_sum, '')"),
        AgentColumn::ConfigStatus => Form::Config,
        AgentColumn::Nothing => Form::Text("NULL"),
    }
}

/// A date as [`model::timestamp::seconds_offset`] prints it.
pub(super) const PRINTED_DATE: &str = "%Y-%m-%dT%H:%M:%S+00:00";
/// The names of an agent's groups in their order, joined with commas.
pub(super) const GROUPS: &str = "(SELECT group_concat(name) FROM (SELECT g.name FROM membership m \
     JOIN agent_group g ON g.id = m.grp WHERE m.agent = a.id ORDER BY m.priority))";
const OS_MAJOR: &str = "substr(a.os_version, 1, instr(a.os_version || '.', '.') - 1)";
const OS_MINOR: &str = "CASE WHEN instr(a.os_version, '.') THEN substr(a.os_version, \
     instr(a.os_version, '.') + 1, instr(substr(a.os_version, instr(a.os_version, '.') + 1) || '.', \
     '.') - 1) END";
