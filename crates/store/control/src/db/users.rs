//! Users, roles, policies, token revocations, settings and the audit log.

use std::rc::Rc;

use rusqlite::types::Value;
use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::rows::{self, cut, signed, unsigned};
use crate::limits::{
    ADMIN_USER, ADMIN_USER_ID, AUDIT_IDLE_ROWS_MAX, AUDIT_ROWS_MAX, DETAIL_BYTES_MAX,
    RESERVED_ID_MAX,
};
use crate::{
    AuditEntry, AuditOutcome, ControlError, ControlResult, Policy, Revocation, RevocationTarget,
    RoleRef, UserRow,
};

/// Number of new audit rows between two deletions of old ones, because finding the oldest row to
/// keep reads an index.
const AUDIT_TRIM_ROWS: u64 = 10_000;

pub(super) const USER_COLUMNS: &str = "u.id, u.name, u.password_hash, u.allow_run_as, \
     (SELECT json_group_array(json_object('id', r.id, 'name', r.name) ORDER BY l.level) \
      FROM user_role l JOIN role r ON r.id = l.role WHERE l.user = u.id)";

pub(super) fn user(row: &Row<'_>) -> ControlResult<UserRow> {
    let roles: String = row.get(4)?;
    Ok(UserRow {
        id: row.get(0)?,
        name: row.get(1)?,
        password_hash: row.get(2)?,
        allow_run_as: row.get(3)?,
        roles: serde_json::from_str(&roles).map_err(|_| rows::corrupt("roles", &roles))?,
    })
}

pub(super) fn one(tx: &Transaction<'_>, name: &str) -> ControlResult<Option<UserRow>> {
    let sql = format!("SELECT {USER_COLUMNS} FROM user u WHERE u.name = ?1");
    tx.prepare_cached(&sql)?.query_and_then([name], user)?.next().transpose()
}

pub(super) fn all(tx: &Transaction<'_>) -> ControlResult<Vec<UserRow>> {
    let sql = format!("SELECT {USER_COLUMNS} FROM user u ORDER BY u.id");
    tx.prepare_cached(&sql)?.query_and_then([], user)?.collect()
}

/// Creates a user. The first one is `admin` and gets the reserved id; all others get ids above the
/// reserved ones.
pub(super) fn create(
    tx: &Transaction<'_>,
    name: &str,
    password_hash: &str,
    allow_run_as: bool,
    roles: &[u32],
) -> ControlResult<u32> {
    if one(tx, name)?.is_some() {
        return Err(ControlError::Exists { what: "user", name: name.to_owned() });
    }
    let id = (name == ADMIN_USER).then_some(ADMIN_USER_ID);
    rows::run(
        tx,
        "INSERT INTO user (id, name, password_hash, allow_run_as) VALUES (?1, ?2, ?3, ?4)",
        params![id, name, password_hash, allow_run_as],
    )?;
    let id = u32::try_from(tx.last_insert_rowid())
        .map_err(|_| ControlError::Limit { what: "user ids", max: u64::from(u32::MAX) })?;
    for (level, role) in roles.iter().enumerate() {
        let there = tx.prepare_cached("SELECT 1 FROM role WHERE id = ?1")?.exists([role])?;
        if !there {
            return Err(ControlError::NotFound { what: "role", name: role.to_string() });
        }
        rows::run(
            tx,
            "INSERT OR IGNORE INTO user_role VALUES (?1, ?2, ?3)",
            params![id, role, level as i64],
        )?;
    }
    Ok(id)
}

pub(super) fn set_password_hash(tx: &Transaction<'_>, name: &str, hash: &str) -> ControlResult<()> {
    let n = rows::run(tx, "UPDATE user SET password_hash = ?2 WHERE name = ?1", [name, hash])?;
    if n == 0 {
        return Err(ControlError::NotFound { what: "user", name: name.to_owned() });
    }
    Ok(())
}

pub(super) fn delete(tx: &Transaction<'_>, name: &str) -> ControlResult<bool> {
    let Some(row) = one(tx, name)? else { return Ok(false) };
    if row.id <= RESERVED_ID_MAX {
        return Err(ControlError::Refused(format!("the user {name} cannot be deleted")));
    }
    rows::run(tx, "DELETE FROM user_role WHERE user = ?1", [row.id])?;
    rows::run(tx, "DELETE FROM user WHERE id = ?1", [row.id])?;
    Ok(true)
}

pub(super) fn roles(tx: &Transaction<'_>) -> ControlResult<Vec<RoleRef>> {
    let mut statement = tx.prepare_cached("SELECT id, name FROM role ORDER BY id")?;
    let roles = statement
        .query_map([], |r| Ok(RoleRef { id: r.get(0)?, name: r.get(1)? }))?
        .collect::<Result<_, _>>()?;
    Ok(roles)
}

/// Returns the policies in the order of the given roles, then of each role's policies.
pub(super) fn policies(tx: &Transaction<'_>, roles: &[u32]) -> ControlResult<Vec<Policy>> {
    let mut statement = tx.prepare_cached(
        "SELECT p.id, p.name, p.actions, p.resources, p.allow
         FROM role_policy l JOIN policy p ON p.id = l.policy
         WHERE l.role = ?1 ORDER BY l.level, p.id",
    )?;
    let mut policies = Vec::new();
    for role in roles {
        for policy in statement.query_and_then([role], policy)? {
            policies.push(policy?);
        }
    }
    Ok(policies)
}

pub(super) fn policy(row: &Row<'_>) -> ControlResult<Policy> {
    Ok(Policy {
        id: row.get(0)?,
        name: row.get(1)?,
        actions: rows::list(&row.get::<_, String>(2)?)?,
        resources: rows::list(&row.get::<_, String>(3)?)?,
        allow: row.get(4)?,
    })
}

fn target(kind: &str, id: u32) -> Option<RevocationTarget> {
    match kind {
        "user" => Some(RevocationTarget::User(id)),
        "role" => Some(RevocationTarget::Role(id)),
        "run_as" => Some(RevocationTarget::RunAs),
        "everyone" => Some(RevocationTarget::Everyone),
        _ => None,
    }
}

pub(super) fn revocations(tx: &Transaction<'_>) -> ControlResult<Vec<Revocation>> {
    let mut statement = tx.prepare_cached(
        "SELECT kind, target, issued_until_s, expires_at_s FROM token_revocation",
    )?;
    statement
        .query_and_then([], |row| {
            let kind: String = row.get(0)?;
            Ok(Revocation {
                target: target(&kind, row.get(1)?).ok_or_else(|| rows::corrupt("kind", &kind))?,
                issued_until_s: row.get(2)?,
                expires_at_s: row.get(3)?,
            })
        })?
        .collect()
}

pub(super) fn revoke_tokens(tx: &Transaction<'_>, revocation: &Revocation) -> ControlResult<()> {
    let (kind, id) = match revocation.target {
        RevocationTarget::User(id) => ("user", id),
        RevocationTarget::Role(id) => ("role", id),
        RevocationTarget::RunAs => ("run_as", 0),
        RevocationTarget::Everyone => ("everyone", 0),
    };
    rows::run(
        tx,
        "INSERT INTO token_revocation VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE
         SET issued_until_s = max(issued_until_s, excluded.issued_until_s),
             expires_at_s = max(expires_at_s, excluded.expires_at_s)",
        params![kind, id, revocation.issued_until_s, revocation.expires_at_s],
    )?;
    Ok(())
}

pub(super) fn setting(tx: &Transaction<'_>, name: &str) -> ControlResult<Option<String>> {
    let mut statement = tx.prepare_cached("SELECT value FROM setting WHERE name = ?1")?;
    Ok(statement.query_row([name], |r| r.get(0)).optional()?)
}

pub(super) fn set_setting(tx: &Transaction<'_>, name: &str, value: &str) -> ControlResult<()> {
    tx.prepare_cached(
        "INSERT INTO setting VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = excluded.value",
    )?
    .execute([name, value])?;
    Ok(())
}

pub(super) fn setting_or(tx: &Transaction<'_>, name: &str, value: &str) -> ControlResult<String> {
    tx.prepare_cached("INSERT OR IGNORE INTO setting VALUES (?1, ?2)")?.execute([name, value])?;
    Ok(setting(tx, name)?.unwrap_or_default())
}

pub(super) fn audit(tx: &Transaction<'_>, entry: &AuditEntry) -> ControlResult<u64> {
    tx.prepare_cached(
        "INSERT INTO audit (at_us, user, action, detail, outcome) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![
        entry.at_us.cast_signed(),
        cut(&entry.user, DETAIL_BYTES_MAX),
        cut(&entry.action, DETAIL_BYTES_MAX),
        cut(&entry.detail, DETAIL_BYTES_MAX),
        entry.outcome.name()
    ])?;
    let id = tx.last_insert_rowid().cast_unsigned();
    if id.is_multiple_of(AUDIT_TRIM_ROWS) && id > AUDIT_IDLE_ROWS_MAX {
        trim_audit(tx, AUDIT_ROWS_MAX, AUDIT_IDLE_ROWS_MAX)?;
    }
    Ok(id)
}

/// Deletes old rows. Rows of actions that changed nothing have a limit of their own.
fn trim_audit(tx: &Transaction<'_>, kept_max: u64, idle_max: u64) -> ControlResult<()> {
    rows::run(
        tx,
        "DELETE FROM audit INDEXED BY audit_idle WHERE outcome IN ('refused', 'unchanged') AND id <=
         (SELECT id FROM audit INDEXED BY audit_idle WHERE outcome IN ('refused', 'unchanged')
          ORDER BY id DESC LIMIT 1 OFFSET ?1)",
        [signed(idle_max)],
    )?;
    rows::run(
        tx,
        "DELETE FROM audit INDEXED BY audit_kept WHERE outcome NOT IN ('refused', 'unchanged')
         AND id <= (SELECT id FROM audit INDEXED BY audit_kept
          WHERE outcome NOT IN ('refused', 'unchanged') ORDER BY id DESC LIMIT 1 OFFSET ?1)",
        [signed(kept_max)],
    )?;
    Ok(())
}

pub(super) fn finish_audit(
    tx: &Transaction<'_>,
    id: u64,
    outcome: AuditOutcome,
) -> ControlResult<()> {
    tx.prepare_cached("UPDATE audit SET outcome = ?2 WHERE id = ?1")?
        .execute(params![signed(id), outcome.name()])?;
    Ok(())
}

pub(super) fn drop_audit(tx: &Transaction<'_>, id: u64) -> ControlResult<()> {
    Ok(rows::run(tx, "DELETE FROM audit WHERE id = ?1", [signed(id)]).map(drop)?)
}

pub(super) fn audit_log(
    tx: &Transaction<'_>,
    before: Option<u64>,
    limit: u64,
) -> ControlResult<Vec<AuditEntry>> {
    let mut statement = tx.prepare_cached(
        "SELECT id, at_us, user, action, detail, outcome FROM audit WHERE id < ?1
         ORDER BY id DESC LIMIT ?2",
    )?;
    let before = before.map_or(i64::MAX, signed);
    let rows = statement
        .query_map(params![before, signed(limit)], |row| {
            Ok(AuditEntry {
                id: unsigned(row, 0)?,
                at_us: unsigned(row, 1)?,
                user: row.get(2)?,
                action: row.get(3)?,
                detail: row.get(4)?,
                outcome: AuditOutcome::from_name(&row.get::<_, String>(5)?),
            })
        })?
        .collect::<Result<_, _>>()?;
    Ok(rows)
}

/// Returns numbers as a value for `rarray`.
pub(super) fn array(ids: impl Iterator<Item = i64>) -> Rc<Vec<Value>> {
    Rc::new(ids.map(Value::Integer).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SqliteControl, WriteContext};

    #[test]
    fn refused_and_unchanged_entries_evict_no_done_audit_entries() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = SqliteControl::open(&folder.path().join("registry.db")).unwrap();
        let row = |outcome, n: u64| AuditEntry {
            id: 0,
            at_us: n,
            user: "somebody".into(),
            action: "agent:delete".into(),
            detail: String::new(),
            outcome,
        };
        let left = store.write(&WriteContext::server(), |tx| {
            for n in 0..20 {
                audit(tx, &row(AuditOutcome::Done, n))?;
                let refused = vec![row(AuditOutcome::Refused, n); 5];
                let unchanged = vec![row(AuditOutcome::Unchanged, n); 5];
                refused.iter().chain(&unchanged).try_for_each(|row| audit(tx, row).map(drop))?;
            }
            trim_audit(tx, 15, 7)?;
            audit_log(tx, None, 1_000)
        });
        let left = left.unwrap();
        let of = |outcome| -> Vec<u64> {
            left.iter().filter(|row| row.outcome == outcome).map(|row| row.at_us).collect()
        };
        assert_eq!(of(AuditOutcome::Done), (5..20).rev().collect::<Vec<_>>());
        assert_eq!(
            (of(AuditOutcome::Unchanged), of(AuditOutcome::Refused)),
            (vec![19; 5], vec![19; 2])
        );
    }
}
