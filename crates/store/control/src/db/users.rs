//! Users, roles, policies, token revocations and settings.

use std::rc::Rc;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{ControlStore, rows};
use crate::limits::{ADMIN_USER, ADMIN_USER_ID, RESERVED_ID_MAX};
use crate::{
    ControlError, ControlResult, Policy, Revocation, RevocationTarget, RoleRef, UserRow,
    WriteContext,
};
use sqlite::Reader;

impl ControlStore {
    /// Returns a user by name.
    pub fn user(&self, reader: &Reader, name: &str) -> ControlResult<Option<UserRow>> {
        self.read_keyed(reader, |tx| one(tx, name))
    }

    /// Returns all users by id.
    pub fn users(&self, reader: &Reader) -> ControlResult<Vec<UserRow>> {
        self.read(reader, all)
    }

    /// Creates a user with roles in the given order; returns its id.
    ///
    /// # Errors
    /// `Exists`, `NotFound` (role).
    pub fn create_user(
        &self,
        context: &WriteContext,
        name: &str,
        password_hash: &str,
        allow_run_as: bool,
        roles: &[u32],
    ) -> ControlResult<u32> {
        self.write(context, |tx| create(tx, name, password_hash, allow_run_as, roles))
    }

    /// Replaces a user's password hash and stores the revocation of its tokens.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn set_password_hash(
        &self,
        context: &WriteContext,
        name: &str,
        hash: &str,
        revoked: &Revocation,
    ) -> ControlResult<()> {
        self.write(context, |tx| {
            set_password_hash(tx, name, hash)?;
            revoke_tokens(tx, revoked)
        })
    }

    /// Deletes a user and stores the revocation of its tokens; returns true if the user existed.
    ///
    /// # Errors
    /// `Refused` for a reserved user (ids up to 99).
    pub fn delete_user(
        &self,
        context: &WriteContext,
        name: &str,
        revoked: &Revocation,
    ) -> ControlResult<bool> {
        self.write(context, |tx| {
            let there = delete(tx, name)?;
            if there {
                revoke_tokens(tx, revoked)?;
            }
            Ok(there)
        })
    }

    /// Returns all roles by id.
    pub fn roles(&self, reader: &Reader) -> ControlResult<Vec<RoleRef>> {
        self.read_keyed(reader, roles)
    }

    /// Returns the policies of a set of roles in the order in which a later one overrides an
    /// earlier one.
    pub fn policies(&self, reader: &Reader, roles: &[u32]) -> ControlResult<Vec<Policy>> {
        self.read_keyed(reader, |tx| policies(tx, roles))
    }

    /// Refuses tokens issued at or before the revocation's instant.
    pub fn revoke_tokens(
        &self,
        context: &WriteContext,
        revocation: &Revocation,
    ) -> ControlResult<()> {
        self.write(context, |tx| revoke_tokens(tx, revocation))
    }

    /// Returns the token revocations in force.
    pub fn revocations(&self) -> ControlResult<Vec<Revocation>> {
        self.read_keyed(&Reader::server(), revocations)
    }

    /// Deletes all revocations (the keys were replaced, so every token is invalid).
    pub fn clear_revocations(&self, context: &WriteContext) -> ControlResult<()> {
        self.write(context, |tx| Ok(rows::run(tx, "DELETE FROM token_revocation", []).map(drop)?))
    }

    /// Returns a setting by name.
    pub fn setting(&self, reader: &Reader, name: &str) -> ControlResult<Option<String>> {
        self.read_keyed(reader, |tx| setting(tx, name))
    }

    /// Refuses tokens and writes settings in one transaction.
    pub fn revoke_and_set(
        &self,
        context: &WriteContext,
        revocation: &Revocation,
        settings: &[(&str, String)],
    ) -> ControlResult<()> {
        self.write(context, |tx| {
            revoke_tokens(tx, revocation)?;
            settings.iter().try_for_each(|(name, value)| set_setting(tx, name, value))
        })
    }

    /// Writes a setting.
    pub fn set_setting(&self, name: &str, value: &str) -> ControlResult<()> {
        self.write(&WriteContext::server(), |tx| set_setting(tx, name, value))
    }

    /// Writes a setting unless it exists; returns its present value.
    pub fn setting_or(&self, name: &str, value: &str) -> ControlResult<String> {
        self.write(&WriteContext::server(), |tx| setting_or(tx, name, value))
    }
}

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

pub(super) fn one(tx: &Connection, name: &str) -> ControlResult<Option<UserRow>> {
    let sql = format!("SELECT {USER_COLUMNS} FROM user u WHERE u.name = ?1");
    tx.prepare_cached(&sql)?.query_and_then([name], user)?.next().transpose()
}

pub(super) fn all(tx: &Connection) -> ControlResult<Vec<UserRow>> {
    let sql = format!("SELECT {USER_COLUMNS} FROM user u ORDER BY u.id");
    tx.prepare_cached(&sql)?.query_and_then([], user)?.collect()
}

/// Creates a user. The first one is `admin` and gets the reserved id; all others get ids above the
/// reserved ones.
fn create(
    tx: &Connection,
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

fn set_password_hash(tx: &Connection, name: &str, hash: &str) -> ControlResult<()> {
    let n = rows::run(tx, "UPDATE user SET password_hash = ?2 WHERE name = ?1", [name, hash])?;
    if n == 0 {
        return Err(ControlError::NotFound { what: "user", name: name.to_owned() });
    }
    Ok(())
}

fn delete(tx: &Connection, name: &str) -> ControlResult<bool> {
    let Some(row) = one(tx, name)? else { return Ok(false) };
    if row.id <= RESERVED_ID_MAX {
        return Err(ControlError::Refused(format!("the user {name} cannot be deleted")));
    }
    rows::run(tx, "DELETE FROM user_role WHERE user = ?1", [row.id])?;
    rows::run(tx, "DELETE FROM user WHERE id = ?1", [row.id])?;
    Ok(true)
}

pub(super) fn roles(tx: &Connection) -> ControlResult<Vec<RoleRef>> {
    let mut statement = tx.prepare_cached("SELECT id, name FROM role ORDER BY id")?;
    let roles = statement
        .query_map([], |r| Ok(RoleRef { id: r.get(0)?, name: r.get(1)? }))?
        .collect::<Result<_, _>>()?;
    Ok(roles)
}

/// Returns the policies in the order of the given roles, then of each role's policies.
pub(super) fn policies(tx: &Connection, roles: &[u32]) -> ControlResult<Vec<Policy>> {
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

pub(super) fn revocations(tx: &Connection) -> ControlResult<Vec<Revocation>> {
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

pub(super) fn revoke_tokens(tx: &Connection, revocation: &Revocation) -> ControlResult<()> {
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

pub(super) fn setting(tx: &Connection, name: &str) -> ControlResult<Option<String>> {
    let mut statement = tx.prepare_cached("SELECT value FROM setting WHERE name = ?1")?;
    Ok(statement.query_row([name], |r| r.get(0)).optional()?)
}

pub(super) fn set_setting(tx: &Connection, name: &str, value: &str) -> ControlResult<()> {
    tx.prepare_cached(
        "INSERT INTO setting VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = excluded.value",
    )?
    .execute([name, value])?;
    Ok(())
}

fn setting_or(tx: &Connection, name: &str, value: &str) -> ControlResult<String> {
    tx.prepare_cached("INSERT OR IGNORE INTO setting VALUES (?1, ?2)")?.execute([name, value])?;
    Ok(setting(tx, name)?.unwrap_or_default())
}

/// Returns numbers as a value for `rarray`.
pub(super) fn array(ids: impl Iterator<Item = i64>) -> Rc<Vec<Value>> {
    Rc::new(ids.map(Value::Integer).collect())
}
