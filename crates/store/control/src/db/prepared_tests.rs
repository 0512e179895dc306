//! Statements are prepared once per connection, whatever their values.

use std::sync::{Arc, Mutex};

use model::{AgentId, AgentStatus, Incarnation};
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};

use crate::*;

/// The authorizer calls of SQLite while it prepares statements: one line for each table and column.
type Prepared = Arc<Mutex<Vec<String>>>;

fn watch(conn: &mut rusqlite::Connection, prepared: &Prepared) {
    let prepared = Arc::clone(prepared);
    let seen = move |context: AuthContext<'_>| {
        // Transaction and pragma statements are not statements over tables.
        if !matches!(context.action, AuthAction::Transaction { .. } | AuthAction::Pragma { .. }) {
            prepared.lock().unwrap().push(format!("{:?}", context.action));
        }
        Authorization::Allow
    };
    conn.authorizer(Some(seen)).unwrap();
}

fn agent(name: String, id: Option<AgentId>) -> NewAgent {
    NewAgent {
        id,
        name,
        register_ip: "any".into(),
        groups: vec!["default".into()],
        incarnation: Incarnation(1),
        client_key: None,
        ephemeral_s: None,
        now_s: 1,
    }
}

/// Runs all writes and reads of agents and groups; `n` differs each time.
fn fleet(store: &ControlStore, n: u32) {
    let (by, reader) = (&WriteContext::server(), &Reader::server());
    let group = format!("group-{n}");
    store.create_group(by, &group, 1).unwrap();
    let config = GroupConfig { body: vec![n as u8], sum: n.to_string(), at_s: 1 };
    store.set_group_config(by, &group, &config).unwrap();
    let digest = [n as u8; 32];
    let groups = vec![group.clone()];
    let token =
        NewEnrolmentToken { digest, groups, uses: 1, expires_at_s: 9, ephemeral_s: None, now_s: 1 };
    store.add_enrolment_token(by, &token).unwrap();
    let certificate = |id: AgentId| NewCertificate {
        fingerprint: [(n + 100 * id.0) as u8; 32],
        key_digest: [0; 32],
        not_before_s: 1,
        not_after_s: 9,
        pem: String::new(),
    };
    let mut sign = |id: AgentId| Ok(certificate(id));
    let enrolled = store.enroll(&digest, &agent(format!("e-{n}"), None), &mut sign).unwrap();
    let id = enrolled.row.record.id;
    store.unused_enrolment(&digest, &format!("e-{n}"), 1).unwrap().unwrap();
    let another = NewCertificate { fingerprint: [200 + n as u8; 32], ..certificate(id) };
    store.add_certificate(id, &another).unwrap();
    let image = store.load().unwrap();
    store.save_certificate_uses(&image.certificates).unwrap();
    store.revoke_certificates(by, &[id], 5).unwrap();
    store.enrolment_tokens(reader, 1).unwrap();
    store.revoke_enrolment_token(by, &digest).unwrap();
    let added = store.add_agents(by, &[agent(format!("a-{n}"), None)]).unwrap();
    let next = added[0].record.id;
    store.rivals(reader, "x", Some(next), Some("192.0.2.1")).unwrap();
    let instead = agent(format!("r-{n}"), Some(next));
    store.try_replace_agents(reader, &[next], &instead).unwrap();
    store.replace_agents(by, &[next], &[next], &instead).unwrap();
    store.replace_agents(by, &[next], &[next], &instead).unwrap();
    store.set_agent_groups(by, next, std::slice::from_ref(&group)).unwrap();
    store.set_groups_of(by, &[(next, vec!["default".into()])]).unwrap();
    let live = LivenessRow {
        id,
        incarnation: Incarnation(1),
        status: AgentStatus::Active,
        status_code: StatusCode::Ok,
        keepalive_at_s: Some(i64::from(n)),
        disconnected_at_s: None,
        info: Some(InfoRow { version: Some(n.to_string()), hostname: None, ip: None, os: None }),
    };
    store.save_liveness(&[live]).unwrap();
    let config = ConfigState { sum: Some(n.to_string()), synced: true };
    store.save_configs(&[ConfigRow { id, incarnation: Incarnation(1), config }]).unwrap();
    store.save_last_scans(&[(id, LastScan::default())]).unwrap();
    store.save_watch_reports(&[(id, WatchRow::default())]).unwrap();
    commands(store, n, id);
    let page = AgentQuery { limit: 1, name: vec![n.to_string()], ..AgentQuery::default() };
    store.agents(reader, &page, 1).unwrap();
    store.agent_ids(reader, &page, 1).unwrap();
    store.distinct(reader, &page, &[AgentColumn::Name], 1).unwrap();
    store.overview(reader).unwrap();
    store.status_summary(reader).unwrap();
    store.summary(reader).unwrap();
    store.client_key(reader, id).unwrap();
    store.last_scan(reader, id).unwrap();
    let watched = WatchQuery { permitted: Permitted::All, state: None, offset: 0, limit: 1 };
    store.watch_reports(reader, &watched).unwrap();
    store.group_config(reader, &group).unwrap();
    store.delete_group(by, &group).unwrap();
    store.remove_agent(by, id, 6).unwrap();
    store.remove_agents(by, &[next], 6).unwrap();
    store.free_numbers(by, &[next]).unwrap();
    store.add_agents(by, &[agent(format!("again-{n}"), Some(next))]).unwrap();
    store.forget_expired(7).unwrap();
}

fn commands(store: &ControlStore, n: u32, agent: AgentId) {
    let order = |agents: &[AgentId]| {
        let new = NewCommand {
            kind: CommandKind::Restart,
            agents: agents.to_vec(),
            user: format!("user-{n}"),
            now_s: 1,
            expires_at_s: 9,
        };
        store.create_command(&WriteContext::server(), &new).unwrap()
    };
    let id = order(&[agent]);
    let outcome = |state| OutcomeRow { command: id, agent, state, detail: String::new(), at_s: 2 };
    store.save_outcomes(&[outcome(OutcomeState::Sent)]).unwrap();
    store.save_outcomes(&[outcome(OutcomeState::Failed)]).unwrap();
    store
        .finish_command(&WriteContext::server(), order(&[agent]), OutcomeState::Expired, 3)
        .unwrap();
    assert!(store.trim_commands().unwrap());
    while store.trim_commands().unwrap() {}
    store.command(&Reader::server(), id, &Permitted::All, OutcomeFilter::default()).unwrap();
    store.commands(&Reader::server(), 3, &Permitted::All).unwrap();
}

/// Runs all writes and reads of users and permissions; `n` differs each time.
fn people(store: &ControlStore, n: u32) {
    let (by, reader) = (&WriteContext::server(), &Reader::server());
    let revoked = |id| Revocation {
        target: RevocationTarget::User(id),
        issued_until_s: i64::from(n),
        expires_at_s: 9,
    };
    let name = format!("user-{n}");
    let user = store.create_user(by, &name, "hash", false, &[1]).unwrap();
    store.set_password_hash(by, &name, &n.to_string(), &revoked(user)).unwrap();
    let change = |change| {
        let revoked = vec![revoked(user)];
        store.change_security(by, &SecurityWrite { change, revoked }).unwrap()
    };
    let role = change(SecurityChange::CreateRole { name: format!("role-{n}") });
    change(SecurityChange::RenameRole { id: role, name: format!("other-{n}") });
    let policy = |id, text: &str| Policy {
        id,
        name: format!("{text}-{n}"),
        actions: vec![format!("{text}:{n}")],
        resources: vec!["*:*:*".into()],
        allow: true,
    };
    let made = change(SecurityChange::CreatePolicy(policy(0, "one")));
    change(SecurityChange::ReplacePolicy(policy(made, "two")));
    let body = |text: &str| format!("{{\"FIND\":{{\"{text}\":{n}}}}}");
    let rule = change(SecurityChange::CreateRule { name: name.clone(), body: body("a") });
    change(SecurityChange::ReplaceRule { id: rule, name: name.clone(), body: body("b") });
    let links = [
        (LinkKind::UserRole, user, role),
        (LinkKind::RolePolicy, role, made),
        (LinkKind::RoleRule, role, rule),
    ];
    for (kind, owner, member) in links {
        change(SecurityChange::Link { kind, owner, member, position: None });
        change(SecurityChange::Unlink { kind, owner, member });
    }
    change(SecurityChange::SetPassword { user, hash: n.to_string() });
    change(SecurityChange::SetRunAs { user, allow: true });
    store.user(reader, &name).unwrap();
    store.users(reader).unwrap();
    store.user_by_id(reader, user).unwrap();
    store.roles(reader).unwrap();
    store.policies(reader, &[role]).unwrap();
    store.security(reader).unwrap();
    store.access(reader, user, &[role], &["mode"]).unwrap();
    change(SecurityChange::DeletePolicy(made));
    change(SecurityChange::DeleteRule(rule));
    change(SecurityChange::DeleteRole(role));
    change(SecurityChange::DeleteUser(user));
    store.create_user(by, &name, "hash", false, &[]).unwrap();
    assert!(store.delete_user(by, &name, &revoked(user)).unwrap());
    store.revoke_tokens(by, &revoked(user)).unwrap();
    store.revoke_and_set(by, &revoked(user), &[("mode", n.to_string())]).unwrap();
    store.revocations().unwrap();
    store.clear_revocations(by).unwrap();
    store.set_setting("a", &n.to_string()).unwrap();
    store.setting_or("b", &n.to_string()).unwrap();
    store.setting(reader, "a").unwrap();
    audit(store, name, n);
}

fn audit(store: &ControlStore, user: String, n: u32) {
    let entry = AuditEntry {
        id: 0,
        at_us: 1,
        user,
        action: "a".into(),
        detail: String::new(),
        outcome: AuditOutcome::Begun,
    };
    store.audit(&entry).unwrap();
    let context = WriteContext::audited(Reader::server(), entry);
    store.write_audit(&context).unwrap();
    store.end_audit(&context, AuditOutcome::Done).unwrap();
    store.audit_log(&Reader::server(), Some(u64::from(n)), 3).unwrap();
}

#[test]
fn a_statement_is_prepared_once_whatever_values_it_gets() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = ControlStore::open(&folder.path().join("registry.db")).unwrap();
    // The store is full of finished commands, so each further one causes one to be dropped.
    let finished = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
        INSERT INTO command (kind, user, created_at_s, expires_at_s) SELECT 'restart', 'x', 1, 9 FROM n";
    let kept = limits::COMMANDS_MAX as i64;
    store.watched(|conn| _ = conn.execute(finished, [kept]));
    let prepared = Prepared::default();
    store.watched(|conn| watch(conn, &prepared));
    for n in 1..=3 {
        fleet(&store, n);
        people(&store, n);
        let new = std::mem::take(&mut *prepared.lock().unwrap());
        assert_eq!(new.is_empty(), n > 1, "round {n}: {new:#?}");
    }
}
