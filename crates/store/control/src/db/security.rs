//! Users, roles, policies, rules and links: reads use one snapshot, and each change is one
//! transaction.

use std::collections::HashMap;

use rusqlite::{Connection, params};

use super::{ControlStore, rows, users};
use crate::{
    AccessRows, ControlError, ControlResult, LinkKind, Policy, PolicyRow, RoleRow, RuleRow,
    SecurityChange, SecurityImage, SecurityWrite, UserRow, WriteContext,
};
use sqlite::Reader;

impl ControlStore {
    /// Returns a user by id.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub fn user_by_id(&self, reader: &Reader, id: u32) -> ControlResult<Option<UserRow>> {
        self.read_keyed(reader, |tx| user(tx, id))
    }

    /// Returns a user, the policies of a set of roles and some settings, with one statement.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub fn access(
        &self,
        reader: &Reader,
        user: u32,
        roles: &[u32],
        settings: &[&str],
    ) -> ControlResult<Option<AccessRows>> {
        self.read_keyed(reader, |tx| access(tx, user, roles, settings))
    }

    /// Returns users, roles, policies and rules from one snapshot.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub fn security(&self, reader: &Reader) -> ControlResult<SecurityImage> {
        self.read(reader, image)
    }

    /// Changes users, roles, policies, rules or links in one durable transaction with the
    /// revocations. Returns the id of the created object, or 0 if none was created.
    ///
    /// # Errors
    /// `NotFound`; `Exists` (`role`, `policy`, `policy body`, `rule`, `rule body`, `link`).
    pub fn change_security(
        &self,
        context: &WriteContext,
        write: &SecurityWrite,
    ) -> ControlResult<u32> {
        self.write(context, |tx| apply_write(tx, write))
    }
}

/// Reads one row with the lists as JSON, so that the rows of a request cost one statement.
fn access(
    tx: &Connection,
    user: u32,
    roles: &[u32],
    settings: &[&str],
) -> ControlResult<Option<AccessRows>> {
    let sql = format!(
        "SELECT {},
           (SELECT json_group_array(json_array(p.id, p.name, p.actions, p.resources, p.allow)
                   ORDER BY r.key, l.level, p.id)
            FROM json_each(?2) r CROSS JOIN role_policy l ON l.role = r.value
            CROSS JOIN policy p ON p.id = l.policy),
           (SELECT json_group_object(name, value) FROM setting
            WHERE name IN (SELECT value FROM json_each(?3)))
         FROM user u WHERE u.id = ?1",
        users::USER_COLUMNS
    );
    let json = |list: Result<String, serde_json::Error>| list.unwrap_or_default();
    let lists = (json(serde_json::to_string(roles)), json(serde_json::to_string(settings)));
    let mut statement = tx.prepare_cached(&sql)?;
    let mut found = statement.query(params![user, lists.0, lists.1])?;
    let Some(row) = found.next()? else { return Ok(None) };
    let (policies, settings): (String, String) = (row.get(5)?, row.get(6)?);
    let policies: Vec<(u32, String, String, String, u8)> =
        serde_json::from_str(&policies).map_err(|_| rows::corrupt("policy", &policies))?;
    Ok(Some(AccessRows {
        user: users::user(row)?,
        policies: policies.into_iter().map(read_policy).collect::<ControlResult<_>>()?,
        settings: serde_json::from_str(&settings)
            .map_err(|_| rows::corrupt("setting", &settings))?,
    }))
}

fn read_policy(
    (id, name, actions, resources, allow): (u32, String, String, String, u8),
) -> ControlResult<Policy> {
    let (actions, resources) = (rows::list(&actions)?, rows::list(&resources)?);
    Ok(Policy { id, name, actions, resources, allow: allow != 0 })
}

/// Members by owner, in the owner's order.
type Links = HashMap<u32, Vec<u32>>;

fn links(tx: &Connection, sql: &str) -> ControlResult<Links> {
    let mut links = Links::new();
    let mut statement = tx.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        links.entry(row.get(0)?).or_default().push(row.get(1)?);
    }
    Ok(links)
}

fn image(tx: &Connection) -> ControlResult<SecurityImage> {
    let mut users_of = links(tx, "SELECT role, user FROM user_role ORDER BY role, user")?;
    let mut policies_of =
        links(tx, "SELECT role, policy FROM role_policy ORDER BY role, level, policy")?;
    let mut rules_of = links(tx, "SELECT role, rule FROM role_rule ORDER BY role, level, rule")?;
    let mut roles_of_policy =
        links(tx, "SELECT policy, role FROM role_policy ORDER BY policy, role")?;
    let mut roles_of_rule = links(tx, "SELECT rule, role FROM role_rule ORDER BY rule, role")?;
    let roles = users::roles(tx)?
        .into_iter()
        .map(|role| RoleRow {
            policies: policies_of.remove(&role.id).unwrap_or_default(),
            rules: rules_of.remove(&role.id).unwrap_or_default(),
            users: users_of.remove(&role.id).unwrap_or_default(),
            id: role.id,
            name: role.name,
        })
        .collect();
    let policies = tx
        .prepare_cached("SELECT id, name, actions, resources, allow FROM policy ORDER BY id")?
        .query_and_then([], |row| {
            let policy = users::policy(row)?;
            let roles = roles_of_policy.remove(&policy.id).unwrap_or_default();
            Ok(PolicyRow { policy, roles })
        })?
        .collect::<ControlResult<_>>()?;
    let rules = tx
        .prepare_cached("SELECT id, name, body FROM rule ORDER BY id")?
        .query_and_then([], |row| {
            let id = row.get(0)?;
            let roles = roles_of_rule.remove(&id).unwrap_or_default();
            Ok(RuleRow { id, name: row.get(1)?, body: row.get(2)?, roles })
        })?
        .collect::<ControlResult<_>>()?;
    Ok(SecurityImage { users: users::all(tx)?, roles, policies, rules })
}

fn user(tx: &Connection, id: u32) -> ControlResult<Option<UserRow>> {
    let name: Option<String> = tx
        .prepare_cached("SELECT name FROM user WHERE id = ?1")?
        .query_map([id], |row| row.get(0))?
        .next()
        .transpose()?;
    name.map_or(Ok(None), |name| users::one(tx, &name))
}

/// Applies a change and its revocations. Returns the id of the created object, or 0.
fn apply_write(tx: &Connection, write: &SecurityWrite) -> ControlResult<u32> {
    let id = change(tx, &write.change)?;
    for revocation in &write.revoked {
        users::revoke_tokens(tx, revocation)?;
    }
    Ok(id)
}

/// Applies one change. Returns the id of the created object, or 0.
fn change(tx: &Connection, change: &SecurityChange) -> ControlResult<u32> {
    match change {
        SecurityChange::SetPassword { user, hash } => {
            let sql = "UPDATE user SET password_hash = ?2 WHERE id = ?1";
            require_changed(rows::run(tx, sql, params![user, hash])?, "user", *user)
        }
        SecurityChange::SetRunAs { user, allow } => {
            let sql = "UPDATE user SET allow_run_as = ?2 WHERE id = ?1";
            require_changed(rows::run(tx, sql, params![user, allow])?, "user", *user)
        }
        SecurityChange::CreateRole { name } => {
            require_unused(tx, "SELECT id FROM role WHERE name = ?1", "role", name, 0)?;
            rows::run(tx, "INSERT INTO role (name) VALUES (?1)", [name])?;
            last_inserted_id(tx)
        }
        SecurityChange::RenameRole { id, name } => {
            require_unused(tx, "SELECT id FROM role WHERE name = ?1", "role", name, *id)?;
            let sql = "UPDATE role SET name = ?2 WHERE id = ?1";
            require_changed(rows::run(tx, sql, params![id, name])?, "role", *id)
        }
        SecurityChange::CreatePolicy(policy) => set_policy(tx, policy, true),
        SecurityChange::ReplacePolicy(policy) => set_policy(tx, policy, false),
        SecurityChange::CreateRule { name, body } => {
            rule_free(tx, name, body, 0)?;
            rows::run(tx, "INSERT INTO rule (name, body) VALUES (?1, ?2)", [name, body])?;
            last_inserted_id(tx)
        }
        SecurityChange::ReplaceRule { id, name, body } => {
            rule_free(tx, name, body, *id)?;
            let sql = "UPDATE rule SET name = ?2, body = ?3 WHERE id = ?1";
            require_changed(rows::run(tx, sql, params![id, name, body])?, "rule", *id)
        }
        SecurityChange::DeleteUser(id) => {
            rows::run(tx, "DELETE FROM user_role WHERE user = ?1", [id])?;
            require_changed(rows::run(tx, "DELETE FROM user WHERE id = ?1", [id])?, "user", *id)
        }
        SecurityChange::DeleteRole(id) => {
            rows::run(tx, "DELETE FROM user_role WHERE role = ?1", [id])?;
            rows::run(tx, "DELETE FROM role_policy WHERE role = ?1", [id])?;
            rows::run(tx, "DELETE FROM role_rule WHERE role = ?1", [id])?;
            require_changed(rows::run(tx, "DELETE FROM role WHERE id = ?1", [id])?, "role", *id)
        }
        SecurityChange::DeletePolicy(id) => {
            rows::run(tx, "DELETE FROM role_policy WHERE policy = ?1", [id])?;
            require_changed(rows::run(tx, "DELETE FROM policy WHERE id = ?1", [id])?, "policy", *id)
        }
        SecurityChange::DeleteRule(id) => {
            rows::run(tx, "DELETE FROM role_rule WHERE rule = ?1", [id])?;
            require_changed(rows::run(tx, "DELETE FROM rule WHERE id = ?1", [id])?, "rule", *id)
        }
        SecurityChange::Link { kind, owner, member, position } => {
            link(tx, &statements(*kind), *owner, *member, *position)
        }
        SecurityChange::Unlink { kind, owner, member } => {
            let links = statements(*kind);
            let gone = tx.prepare_cached(links.delete)?.execute([owner, member])?;
            require_changed(gone, "link", *member)
        }
    }
}

/// Returns 0, or `NotFound` if a statement changed no row.
fn require_changed(rows: usize, what: &'static str, id: u32) -> ControlResult<u32> {
    if rows == 0 {
        return Err(ControlError::NotFound { what, name: id.to_string() });
    }
    Ok(0)
}

/// Returns the id of the row inserted last.
fn last_inserted_id(tx: &Connection) -> ControlResult<u32> {
    u32::try_from(tx.last_insert_rowid())
        .map_err(|_| ControlError::Limit { what: "ids", max: u64::from(u32::MAX) })
}

/// Returns `Exists` if another row than `own` has the value. `sql` selects the ids of all rows that
/// have it.
fn require_unused(
    tx: &Connection,
    sql: &str,
    what: &'static str,
    value: &str,
    own: u32,
) -> ControlResult<()> {
    let mut statement = tx.prepare_cached(sql)?;
    let mut holders = statement.query_map([value], |row| row.get::<_, u32>(0))?;
    match holders.find(|id| !matches!(id, Ok(id) if *id == own)) {
        Some(holder) => {
            holder?;
            Err(ControlError::Exists { what, name: value.to_owned() })
        }
        None => Ok(()),
    }
}

fn rule_free(tx: &Connection, name: &str, body: &str, own: u32) -> ControlResult<()> {
    require_unused(tx, "SELECT id FROM rule WHERE name = ?1", "rule", name, own)?;
    require_unused(tx, "SELECT id FROM rule WHERE body = ?1", "rule body", body, own)
}

/// Creates a policy if `new`, otherwise replaces it. Its name and its content must be unique.
fn set_policy(tx: &Connection, policy: &Policy, new: bool) -> ControlResult<u32> {
    let own = if new { 0 } else { policy.id };
    require_unused(tx, "SELECT id FROM policy WHERE name = ?1", "policy", &policy.name, own)?;
    // A list of strings always serialises.
    let actions = serde_json::to_string(&policy.actions).unwrap_or_default();
    let resources = serde_json::to_string(&policy.resources).unwrap_or_default();
    let same: i64 = tx
        .prepare_cached(
            "SELECT count(*) FROM policy
             WHERE actions = ?1 AND resources = ?2 AND allow = ?3 AND id <> ?4",
        )?
        .query_row(params![actions, resources, policy.allow, own], |row| row.get(0))?;
    if same > 0 {
        let name = policy.name.clone();
        return Err(ControlError::Exists { what: "policy body", name });
    }
    if new {
        rows::run(
            tx,
            "INSERT INTO policy (name, actions, resources, allow) VALUES (?1, ?2, ?3, ?4)",
            params![policy.name, actions, resources, policy.allow],
        )?;
        return last_inserted_id(tx);
    }
    let sql = "UPDATE policy SET name = ?2, actions = ?3, resources = ?4, allow = ?5 WHERE id = ?1";
    let set = params![policy.id, policy.name, actions, resources, policy.allow];
    require_changed(rows::run(tx, sql, set)?, "policy", policy.id)
}

/// The statements of one kind of link.
struct Statements {
    /// Names of an owner and of a member in errors.
    what: [&'static str; 2],
    owner: &'static str,
    member: &'static str,
    list: &'static str,
    insert: &'static str,
    /// Sets the position of a member in the owner's list.
    level: &'static str,
    delete: &'static str,
}

fn statements(kind: LinkKind) -> Statements {
    match kind {
        LinkKind::UserRole => Statements {
            what: ["user", "role"],
            owner: "SELECT 1 FROM user WHERE id = ?1",
            member: "SELECT 1 FROM role WHERE id = ?1",
            list: "SELECT role FROM user_role WHERE user = ?1 ORDER BY level, role",
            insert: "INSERT INTO user_role VALUES (?1, ?2, 0)",
            level: "UPDATE user_role SET level = ?3 WHERE user = ?1 AND role = ?2",
            delete: "DELETE FROM user_role WHERE user = ?1 AND role = ?2",
        },
        LinkKind::RolePolicy => Statements {
            what: ["role", "policy"],
            owner: "SELECT 1 FROM role WHERE id = ?1",
            member: "SELECT 1 FROM policy WHERE id = ?1",
            list: "SELECT policy FROM role_policy WHERE role = ?1 ORDER BY level, policy",
            insert: "INSERT INTO role_policy VALUES (?1, ?2, 0)",
            level: "UPDATE role_policy SET level = ?3 WHERE role = ?1 AND policy = ?2",
            delete: "DELETE FROM role_policy WHERE role = ?1 AND policy = ?2",
        },
        LinkKind::RoleRule => Statements {
            what: ["role", "rule"],
            owner: "SELECT 1 FROM role WHERE id = ?1",
            member: "SELECT 1 FROM rule WHERE id = ?1",
            list: "SELECT rule FROM role_rule WHERE role = ?1 ORDER BY level, rule",
            insert: "INSERT INTO role_rule VALUES (?1, ?2, 0)",
            level: "UPDATE role_rule SET level = ?3 WHERE role = ?1 AND rule = ?2",
            delete: "DELETE FROM role_rule WHERE role = ?1 AND rule = ?2",
        },
    }
}

/// Inserts a link at a position of the owner's list and renumbers the list. Returns 0.
fn link(
    tx: &Connection,
    links: &Statements,
    owner: u32,
    member: u32,
    position: Option<u64>,
) -> ControlResult<u32> {
    for (sql, id, what) in [links.owner, links.member]
        .into_iter()
        .zip([owner, member])
        .zip(links.what)
        .map(|((sql, id), what)| (sql, id, what))
    {
        if !tx.prepare_cached(sql)?.exists([id])? {
            return Err(ControlError::NotFound { what, name: id.to_string() });
        }
    }
    let mut order: Vec<u32> = tx
        .prepare_cached(links.list)?
        .query_map([owner], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    if order.contains(&member) {
        return Err(ControlError::Exists { what: "link", name: member.to_string() });
    }
    let place = position.and_then(|at| usize::try_from(at).ok()).unwrap_or(order.len());
    order.insert(place.min(order.len()), member);
    tx.prepare_cached(links.insert)?.execute([owner, member])?;
    for (level, id) in order.iter().enumerate() {
        tx.prepare_cached(links.level)?.execute(params![owner, id, level as i64])?;
    }
    Ok(0)
}
