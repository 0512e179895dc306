//! Roles, policies and rules that exist from the start. Their ids are reserved (up to
//! [`super::limits::RESERVED_ID_MAX`]) and users cannot change them.

use rusqlite::{Connection, params};

use super::ControlResult;
use super::limits::RESERVED_ID_MAX;

type DefaultPolicy = (u32, &'static str, &'static [&'static str], &'static [&'static str]);

const AGENTS: &[&str] = &["agent:id:*", "agent:group:*"];
const GROUPS: &[&str] = &["group:id:*"];
const NODES: &[&str] = &["node:id:*"];
const ANY: &[&str] = &["*:*:*"];

const POLICIES: &[DefaultPolicy] = &[
    (1, "agents_all_resourceless", &["agent:create", "group:create"], ANY),
    (
        2,
        "agents_all_groups",
        &["group:read", "group:delete", "group:update_config", "group:modify_assignments"],
        GROUPS,
    ),
    (
        3,
        "agents_all_agents",
        &["agent:read", "agent:delete", "agent:modify_group", "agent:reconnect", "agent:restart"],
        AGENTS,
    ),
    (4, "agents_read_agents", &["agent:read"], AGENTS),
    (5, "agents_read_groups", &["group:read"], GROUPS),
    (6, "agents_commands_agents", &["agent:restart", "agent:reconnect"], AGENTS),
    (
        7,
        "security_all_resourceless",
        &[
            "security:create",
            "security:create_user",
            "security:read_config",
            "security:update_config",
            "security:revoke",
            "security:edit_run_as",
        ],
        ANY,
    ),
    (
        8,
        "security_all_security",
        &["security:read", "security:update", "security:delete"],
        &["role:id:*", "policy:id:*", "user:id:*", "rule:id:*"],
    ),
    (
        9,
        "users_all_resourceless",
        &["security:create_user", "security:revoke", "security:edit_run_as"],
        ANY,
    ),
    (
        10,
        "users_all_users",
        &["security:read", "security:update", "security:delete"],
        &["user:id:*"],
    ),
    (11, "users_modify_run_as_flag_resourceless", &["security:edit_run_as"], ANY),
    (12, "rules_read_rules", &["rules:read"], &["rule:file:*"]),
    (13, "rules_all_resourceless", &["rules:update"], ANY),
    (14, "rules_all_rules", &["rules:read", "rules:delete"], &["rule:file:*"]),
    (15, "cluster_read_resourceless", &["cluster:status", "manager:read"], ANY),
    (16, "cluster_read_nodes", &["cluster:read", "cluster:read_api_config"], NODES),
    (
        17,
        "cluster_all_resourceless",
        &["cluster:status", "manager:read", "manager:read_api_config", "manager:update_config"],
        ANY,
    ),
    (
        18,
        "cluster_all_nodes",
        &["cluster:read", "cluster:read_api_config", "cluster:update_config"],
        NODES,
    ),
    (19, "syscheck_read_syscheck", &["syscheck:read"], AGENTS),
    (20, "syscheck_all_syscheck", &["syscheck:read", "syscheck:run", "syscheck:clear"], AGENTS),
    (21, "history_read_agents", &["change:read", "state:read", "coverage:read"], AGENTS),
    (22, "commands_read_resourceless", &["command:read"], ANY),
    (23, "commands_all_resourceless", &["command:read", "command:cancel"], ANY),
    (24, "audit_read_resourceless", &["audit:read"], ANY),
    (25, "series_read_resourceless", &["series:read"], ANY),
    (26, "series_all_resourceless", &["series:read", "series:write", "series:delete"], ANY),
    (
        27,
        "enrolment_all_resourceless",
        &["enrolment:create", "enrolment:read", "enrolment:revoke"],
        ANY,
    ),
    (
        28,
        "security_read_security",
        &["security:read"],
        &["role:id:*", "policy:id:*", "user:id:*", "rule:id:*"],
    ),
    (29, "security_read_resourceless", &["security:read_config"], ANY),
];

/// Roles with their policies in order.
const ROLES: &[(u32, &str, &[u32])] = &[
    (1, "administrator", &[1, 2, 3, 7, 8, 13, 14, 17, 18, 20, 21, 23, 24, 26, 27]),
    (2, "readonly", &[4, 5, 12, 15, 16, 19, 21, 22, 25]),
    (3, "users_admin", &[9, 10, 11]),
    (4, "agents_readonly", &[4, 5, 21, 22]),
    (5, "agents_admin", &[1, 2, 3, 21, 23, 27]),
    (6, "cluster_readonly", &[15, 16]),
    (7, "cluster_admin", &[17, 18]),
];

/// Rules that give a role to a login with an authorization context, with their roles.
const RULES: &[(u32, &str, &str, u32)] = &[
    (1, "elastic_admin", r#"{"FIND":{"username":"elastic"}}"#, 1),
    (2, "opensearch_admin", r#"{"FIND":{"user_name":"admin"}}"#, 1),
];

/// Replaces the built-in policies and roles in the database if an earlier program wrote other ones,
/// in the transaction that is open.
pub(super) fn refresh(conn: &Connection) -> ControlResult<()> {
    let own =
        (list(POLICIES, policy), list(ROLES, |(id, _, policies)| (*id, list(policies, |p| *p))));
    if (kept_policies(conn)?, kept_roles(conn)?) == own {
        return Ok(());
    }
    for (id, name, actions, resources) in own.0 {
        conn.execute(
            "INSERT INTO policy VALUES (?1, ?2, ?3, ?4, 1)
             ON CONFLICT (id) DO UPDATE SET name = ?2, actions = ?3, resources = ?4, allow = 1",
            params![id, name, actions, resources],
        )?;
    }
    conn.execute("DELETE FROM role_policy WHERE role <= ?1", [RESERVED_ID_MAX])?;
    link(conn)
}

/// A built-in policy as its row stores it.
type DefaultPolicyRow = (u32, String, String, String);

fn list<T, U>(of: &[T], with: impl Fn(&T) -> U) -> Vec<U> {
    of.iter().map(with).collect()
}

fn policy((id, name, actions, resources): &DefaultPolicy) -> DefaultPolicyRow {
    let json = |texts: &[&str]| serde_json::to_string(texts).unwrap_or_default();
    (*id, (*name).to_owned(), json(actions), json(resources))
}

fn kept_policies(conn: &Connection) -> ControlResult<Vec<DefaultPolicyRow>> {
    let mut statement = conn.prepare(
        "SELECT id, name, actions, resources FROM policy WHERE id <= ?1 AND allow ORDER BY id",
    )?;
    let row = |r: &rusqlite::Row<'_>| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?));
    let rows = statement.query_map([RESERVED_ID_MAX], row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns the stored roles with their policies in order.
fn kept_roles(conn: &Connection) -> ControlResult<Vec<(u32, Vec<u32>)>> {
    let mut statement =
        conn.prepare("SELECT policy FROM role_policy WHERE role = ?1 ORDER BY level")?;
    let mut roles = Vec::new();
    for (id, _, _) in ROLES {
        let policies = statement.query_map([id], |r| r.get(0))?.collect::<Result<_, _>>()?;
        roles.push((*id, policies));
    }
    Ok(roles)
}

/// Links the roles to their policies.
fn link(tx: &Connection) -> ControlResult<()> {
    for (id, _, policies) in ROLES {
        for (level, policy) in policies.iter().enumerate() {
            tx.execute(
                "INSERT INTO role_policy VALUES (?1, ?2, ?3)",
                params![id, policy, level as i64],
            )?;
        }
    }
    Ok(())
}

/// Writes the built-in objects. Ids of objects that users add start above the reserved ones.
pub(super) fn insert(tx: &Connection) -> ControlResult<()> {
    for (id, name, actions, resources) in list(POLICIES, policy) {
        tx.execute(
            "INSERT INTO policy VALUES (?1, ?2, ?3, ?4, 1)",
            params![id, name, actions, resources],
        )?;
    }
    for (id, name, _) in ROLES {
        tx.execute("INSERT INTO role VALUES (?1, ?2)", params![id, name])?;
    }
    link(tx)?;
    for (id, name, body, role) in RULES {
        tx.execute("INSERT INTO rule VALUES (?1, ?2, ?3)", params![id, name, body])?;
        tx.execute("INSERT INTO role_rule VALUES (?1, ?2, 0)", params![role, id])?;
    }
    for table in ["policy", "role", "rule"] {
        tx.execute(
            "UPDATE sqlite_sequence SET seq = ?2 WHERE name = ?1",
            params![table, RESERVED_ID_MAX],
        )?;
    }
    tx.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('user', ?1)", [RESERVED_ID_MAX])?;
    Ok(())
}
