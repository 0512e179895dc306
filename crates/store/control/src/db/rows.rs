//! Conversions between rows and the registry's types.

use std::collections::HashMap;

use model::{AgentId, AgentOs, AgentRecord, AgentStatus, Incarnation};
use rusqlite::{Connection, Params, Row};

use crate::{AgentRow, ConfigState, ControlError, ControlResult, StatusCode};

/// Runs a statement that changes something, prepared once per connection. Returns the number of
/// changed rows.
pub(super) fn run(tx: &Connection, sql: &str, values: impl Params) -> rusqlite::Result<usize> {
    tx.prepare_cached(sql)?.execute(values)
}

/// Returns the single row of a query, which is prepared once per connection too.
pub(super) fn get<T>(
    tx: &Connection,
    sql: &str,
    values: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    tx.prepare_cached(sql)?.query_row(values, read)
}

/// Columns of [`agent`], in its order; `a` is the agent's table.
pub(super) const AGENT_COLUMNS: &str = "a.id, a.incarnation, a.name, a.register_ip, a.ip, \
     a.version, a.hostname, a.os_name, a.os_platform, a.os_family, a.os_version, a.os_arch, \
     a.os_uname, a.status, a.status_code, a.added_at_s, a.keepalive_at_s, a.disconnected_at_s, \
     (SELECT group_concat(grp) FROM (SELECT grp FROM membership WHERE agent = a.id \
      ORDER BY priority)), a.merged_sum, a.config_synced, a.os_codename, \
     a.ephemeral_s";

/// Names of groups by their numbers: read once per list, not joined to each of its rows.
pub(super) type GroupNames = HashMap<i64, String>;

/// Reads an agent from a row of [`AGENT_COLUMNS`].
pub(super) fn agent(row: &Row<'_>, names: &GroupNames) -> ControlResult<AgentRow> {
    let status: String = row.get(13)?;
    let status = AgentStatus::from_name(&status).ok_or_else(|| corrupt("status", &status))?;
    let groups = match row.get_ref(18)?.as_str_or_null() {
        Ok(Some(text)) => groups(text, names)?,
        _ => Vec::new(),
    };
    let record = AgentRecord {
        id: AgentId(row.get(0)?),
        incarnation: incarnation(row.get(1)?),
        name: row.get(2)?,
        register_ip: row.get(3)?,
        ip: row.get(4)?,
        version: row.get(5)?,
        hostname: row.get(6)?,
        os: os(row)?,
        groups,
        status,
        added_at_s: row.get(15)?,
        keepalive_at_s: row.get(16)?,
        disconnected_at_s: row.get(17)?,
    };
    let config = ConfigState { sum: row.get(19)?, synced: row.get(20)? };
    Ok(AgentRow {
        record,
        status_code: StatusCode::from_number(row.get(14)?),
        config,
        ephemeral_s: seconds(row, 22)?,
    })
}

fn groups(numbers: &str, names: &GroupNames) -> ControlResult<Vec<String>> {
    let name = |number: &str| names.get(&number.parse().ok()?).cloned();
    numbers.split(',').map(|n| name(n).ok_or_else(|| corrupt("group", n))).collect()
}

fn os(row: &Row<'_>) -> ControlResult<Option<AgentOs>> {
    let Some(platform) = row.get::<_, Option<String>>(8)? else { return Ok(None) };
    let text = |at: usize| row.get::<_, Option<String>>(at).map(Option::unwrap_or_default);
    Ok(Some(AgentOs {
        name: text(7)?,
        platform,
        family: text(9)?,
        version: text(10)?,
        arch: text(11)?,
        uname: text(12)?,
        codename: text(21)?,
    }))
}

/// Reads a count or a number that is never negative.
pub(super) fn unsigned(row: &Row<'_>, at: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(at).map(|n| u64::try_from(n).unwrap_or(0))
}

/// Reads a number of seconds that may be missing.
pub(super) fn seconds(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<u64>> {
    row.get::<_, Option<i64>>(at).map(|s| s.and_then(|s| u64::try_from(s).ok()))
}

/// Returns a number as SQLite stores it; one beyond its range becomes the largest.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the bits of an incarnation as SQLite stores them.
pub(super) fn bits(incarnation: Incarnation) -> i64 {
    incarnation.0.cast_signed()
}

/// Returns the incarnation with these stored bits.
pub(super) fn incarnation(bits: i64) -> Incarnation {
    Incarnation(bits.cast_unsigned())
}

/// Reads a digest from a blob.
pub(super) fn digest(row: &Row<'_>, at: usize) -> ControlResult<[u8; 32]> {
    let bytes: Vec<u8> = row.get(at)?;
    bytes.try_into().map_err(|_| corrupt("digest", "not 32 bytes"))
}

/// Parses a list of texts from JSON.
pub(super) fn list(json: &str) -> ControlResult<Vec<String>> {
    serde_json::from_str(json).map_err(|_| corrupt("list", json))
}

/// Returns a list of texts as JSON.
pub(super) fn json(list: &[String]) -> String {
    // Serialising texts cannot fail.
    serde_json::to_string(list).unwrap_or_default()
}

/// Returns an error about a stored value.
pub(super) fn corrupt(what: &str, value: &str) -> ControlError {
    ControlError::Corrupt(format!("{what}: unexpected value {value:?}"))
}

/// Returns `text` cut to at most `max` bytes at a character boundary.
pub(super) fn cut(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// Bits per part of a version's sort key.
const VERSION_PART_BITS: u32 = 20;

/// Returns the first three numbers of a version as one number that sorts like them: `Holdfast
/// v4.13.1` sorts above `v4.9.2`. `None` if there is no digit.
pub(crate) fn version_key(version: &str) -> Option<i64> {
    let start = version.find(|c: char| c.is_ascii_digit())?;
    let mut parts = version.get(start..)?.split(|c: char| !c.is_ascii_digit());
    let mut part = || {
        let number = parts.next().unwrap_or_default().parse::<i64>().unwrap_or(0);
        number.min((1 << VERSION_PART_BITS) - 1)
    };
    Some((part() << (2 * VERSION_PART_BITS)) | (part() << VERSION_PART_BITS) | part())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_keys_sort_numerically() {
        let sorted = ["v3.13.2", "Wazuh v4.9.2", "Holdfast v4.13.1", "12"];
        let keys: Vec<_> = sorted.iter().map(|v| version_key(v).unwrap()).collect();
        assert!(keys.is_sorted(), "{keys:?}");
        assert_eq!(version_key("rolling"), None);
        assert_eq!(version_key("99999999999999999999.1"), Some(1 << VERSION_PART_BITS));
    }

    #[test]
    fn long_text_is_cut_at_a_character_boundary() {
        assert_eq!(cut("grün", 3), "gr");
        assert_eq!(cut("grün", 9), "grün");
    }
}
