//! Databases of every version open; those of a later version and of other programs are refused. The
//! fixture of a released version is never rewritten.

use std::path::{Path, PathBuf};

use control::Reader;
use control::{
    AgentQuery, AuditEntry, AuditOutcome, CommandKind, ControlError, ControlStore, InfoRow,
    LivenessRow, NewAgent, NewCertificate, NewCommand, NewEnrolmentToken, OutcomeFilter,
    OutcomeRow, OutcomeState, Permitted, Revocation, RevocationTarget, StatusCode, WriteContext,
};
use model::{AgentId, AgentOs, AgentStatus, Incarnation};
use rusqlite::Connection;
use tempfile::TempDir;

const NOW_S: i64 = 1_795_287_122;

fn fixture(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/registry-v{version}.db"))
}

fn agent(name: &str, groups: &[&str]) -> NewAgent {
    NewAgent {
        id: None,
        name: name.into(),
        register_ip: "any".into(),
        groups: groups.iter().map(|g| (*g).to_owned()).collect(),
        incarnation: Incarnation(u64::MAX - 1),
        client_key: None,
        ephemeral_s: None,
        now_s: NOW_S,
    }
}

/// Writes something of every kind.
fn fill_registry(store: &ControlStore) {
    let by = &WriteContext::server();
    store.create_group(by, "web", NOW_S).unwrap();
    let token = NewEnrolmentToken {
        digest: [7; 32],
        groups: vec!["web".into()],
        uses: 2,
        expires_at_s: NOW_S + 60,
        ephemeral_s: None,
        now_s: NOW_S,
    };
    store.add_enrolment_token(by, &token).unwrap();
    let mut sign = |id: AgentId| {
        Ok(NewCertificate {
            fingerprint: [id.0 as u8; 32],
            key_digest: [id.0 as u8; 32],
            not_before_s: NOW_S,
            not_after_s: NOW_S + 1_000,
            pem: String::new(),
        })
    };
    store.enroll(&[7; 32], &agent("alpha", &[]), &mut sign).unwrap();
    store.add_agents(by, &[agent("bravo", &[]), agent("charlie", &["web", "default"])]).unwrap();
    let os = AgentOs { platform: "debian".into(), version: "12".into(), ..AgentOs::default() };
    let info = InfoRow {
        version: Some("Holdfast v0.1.0".into()),
        hostname: Some("alpha".into()),
        ip: Some("192.0.2.1".into()),
        os: Some(os),
    };
    store
        .save_liveness(&[LivenessRow {
            id: AgentId(1),
            incarnation: Incarnation(u64::MAX - 1),
            status: AgentStatus::Disconnected,
            status_code: StatusCode::Shutdown,
            keepalive_at_s: Some(NOW_S),
            disconnected_at_s: Some(NOW_S + 1),
            info: Some(info),
        }])
        .unwrap();
    store.create_user(by, "admin", "$argon2id$not-a-real-hash", true, &[1]).unwrap();
    store.create_user(by, "reader", "$argon2id$not-a-real-hash", false, &[2, 1]).unwrap();
    let target = RevocationTarget::User(100);
    let revoked = Revocation { target, issued_until_s: NOW_S, expires_at_s: NOW_S + 900 };
    store.revoke_tokens(by, &revoked).unwrap();
    let command = NewCommand {
        kind: CommandKind::Rescan,
        agents: vec![AgentId(1), AgentId(2)],
        user: "admin".into(),
        now_s: NOW_S,
        expires_at_s: NOW_S + 60,
    };
    let id = store.create_command(by, &command).unwrap();
    let outcome = OutcomeRow {
        command: id,
        agent: AgentId(1),
        state: OutcomeState::Acknowledged,
        detail: "done".into(),
        at_s: NOW_S,
    };
    store.save_outcomes(&[outcome]).unwrap();
    let entry = AuditEntry {
        id: 0,
        at_us: NOW_S as u64 * 1_000_000,
        user: "admin".into(),
        action: "group:create".into(),
        detail: "web".into(),
        outcome: AuditOutcome::Partly,
    };
    store.audit(&entry).unwrap();
}

fn check(store: &ControlStore) {
    let image = store.load().unwrap();
    assert_eq!(image.agents.len(), 3);
    let alpha = &image.agents[0];
    assert_eq!(alpha.status_code, StatusCode::Shutdown);
    assert_eq!(alpha.record.incarnation, Incarnation(u64::MAX - 1));
    assert_eq!(alpha.record.groups, ["web"]);
    assert_eq!(alpha.record.os.as_ref().unwrap().version, "12");
    assert_eq!(image.agents[2].record.groups, ["web", "default"]);
    assert_eq!(image.certificates[0].fingerprint, [1; 32]);
    assert_eq!(image.outstanding.len(), 1);
    assert_eq!(image.outstanding[0].agents, [AgentId(2)]);
    assert_eq!(image.revocations[0].target, RevocationTarget::User(100));
    let summary = store.summary(&Reader::server()).unwrap();
    assert_eq!((summary.status.total, summary.status.disconnected), (3, 1));
    assert_eq!(summary.os, [("debian".to_owned(), 1)]);
    let system = [String::new(), "debian".to_owned(), "12".to_owned()];
    assert_eq!(
        store.overview(&Reader::server()).unwrap().systems,
        [(system, 1)],
        "counted by the step"
    );
    assert_eq!(summary.groups, [("default".to_owned(), 2), ("web".to_owned(), 2)]);
    assert_eq!(store.agents(&Reader::server(), &AgentQuery::default(), NOW_S).unwrap().total, 3);
    assert_eq!(store.enrolment_tokens(&Reader::server(), NOW_S).unwrap()[0].uses_left, 1);
    let roles: Vec<_> = store
        .user(&Reader::server(), "reader")
        .unwrap()
        .unwrap()
        .roles
        .into_iter()
        .map(|r| r.name)
        .collect();
    assert_eq!(roles, ["readonly", "administrator"]);
    let page = OutcomeFilter { limit: 10, ..OutcomeFilter::default() };
    let (command, outcomes) =
        store.command(&Reader::server(), 1, &Permitted::All, page).unwrap().unwrap();
    let counts = command.counts;
    assert_eq!((counts.pending, counts.acknowledged, counts.total), (1, 1, 2));
    let states: Vec<_> = outcomes.iter().map(|o| (o.agent.0, o.state)).collect();
    assert_eq!(states, [(1, OutcomeState::Acknowledged), (2, OutcomeState::Pending)]);
    let none = Permitted::Only(vec![AgentId(2)].into());
    let (command, outcomes) = store.command(&Reader::server(), 1, &none, page).unwrap().unwrap();
    assert_eq!((command.counts.pending, command.counts.total, outcomes.len()), (1, 1, 1));
    assert_eq!(store.audit_log(&Reader::server(), None, 10).unwrap()[0].detail, "web");
    let next = store.add_agents(&WriteContext::server(), &[agent("delta", &[])]).unwrap();
    assert_eq!(next[0].record.id, AgentId(4));
}

#[test]
fn registry_version_1_fixture_opens_with_all_rows() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("registry.db");
    std::fs::copy(fixture(1), &path).unwrap();
    check(&ControlStore::open(&path).unwrap());
}

#[test]
fn new_registry_has_the_schema_of_a_migrated_one() {
    let folder = TempDir::new().unwrap();
    let store = ControlStore::open(&folder.path().join("registry.db")).unwrap();
    fill_registry(&store);
    check(&store);
    let tables = |path: &Path| {
        let conn = Connection::open(path).unwrap();
        let mut statement =
            conn.prepare("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name").unwrap();
        let rows = statement
            .query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))
            .unwrap()
            .collect::<Result<Vec<(String, String, Option<String>)>, _>>();
        rows.unwrap()
    };
    let old = folder.path().join("old.db");
    std::fs::copy(fixture(1), &old).unwrap();
    drop(ControlStore::open(&old).unwrap());
    assert_eq!(tables(store.path()), tables(&old), "a step leads elsewhere than to a new database");
}

#[test]
fn custom_policies_keep_their_meaning_after_actions_are_split() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("registry.db");
    std::fs::copy(fixture(1), &path).unwrap();
    let own = "INSERT INTO policy VALUES (100, 'hidden', ?1, '[\"agent:group:secret\"]', 0)";
    Connection::open(&path).unwrap().execute(own, [r#"["syscheck:read"]"#]).unwrap();
    drop(ControlStore::open(&path).unwrap());
    let actions: String = Connection::open(&path)
        .unwrap()
        .query_row("SELECT actions FROM policy WHERE id = 100", [], |r| r.get(0))
        .unwrap();
    assert_eq!(actions, r#"["syscheck:read","change:read","state:read","coverage:read"]"#);
}

#[test]
fn migrated_custom_roles_keep_command_permissions() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("registry.db");
    std::fs::copy(fixture(1), &path).unwrap();
    let before = Connection::open(&path).unwrap();
    before
        .execute_batch(
            r#"INSERT INTO policy VALUES (100, 'sees', '["agent:read"]', '["agent:group:web"]', 1),
                   (101, 'orders', '["agent:restart"]', '["agent:group:web"]', 1),
                   (102, 'hides', '["agent:read"]', '["agent:group:secret"]', 0);
               INSERT INTO role VALUES (200, 'sees'), (201, 'orders'), (202, 'hides');
               INSERT INTO role_policy VALUES (200, 102, 0), (200, 100, 1), (201, 101, 0),
                   (202, 102, 0);"#,
        )
        .unwrap();
    drop(before);
    let store = ControlStore::open(&path).unwrap();
    let of = |role: u32| -> Vec<u32> {
        store.policies(&Reader::server(), &[role]).unwrap().iter().map(|policy| policy.id).collect()
    };
    assert_eq!((of(200), of(201), of(202)), (vec![102, 100, 22], vec![101, 23], vec![102]));
}

#[test]
fn registry_of_later_version_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("registry.db");
    drop(ControlStore::open(&path).unwrap());
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let opened = ControlStore::open(&path).err().unwrap();
    assert!(matches!(opened, ControlError::Newer { found: 99, .. }), "{opened}");
}

#[test]
fn foreign_registry_file_is_refused_and_unchanged() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("other.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    assert!(matches!(ControlStore::open(&path), Err(ControlError::Corrupt(_))));
    let names: Vec<String> = {
        let conn = Connection::open(&path).unwrap();
        let mut statement = conn.prepare("SELECT name FROM sqlite_schema").unwrap();
        statement.query_map([], |r| r.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    assert_eq!(names, ["t"]);
    let path = folder.path().join("text");
    std::fs::write(&path, "not a database, but long enough to be read as one".repeat(100)).unwrap();
    assert!(ControlStore::open(&path).is_err());
}

#[test]
fn liveness_write_lowers_durability_for_its_transaction_only() {
    let folder = TempDir::new().unwrap();
    let store = ControlStore::open(&folder.path().join("registry.db")).unwrap();
    let level = || store.durability().unwrap();
    assert_eq!(level(), ("wal".to_owned(), 2));
    store.save_liveness(&[]).unwrap();
    assert_eq!(level(), ("wal".to_owned(), 1));
    store.set_setting("a", "b").unwrap();
    assert_eq!(level(), ("wal".to_owned(), 2), "each transaction sets its own");
}

#[test]
fn audit_log_is_bounded_and_long_details_are_cut() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("registry.db");
    let store = ControlStore::open(&path).unwrap();
    let entry = |detail: &str| AuditEntry {
        id: 0,
        at_us: 1,
        user: "admin".into(),
        action: "x".into(),
        detail: detail.into(),
        outcome: AuditOutcome::Done,
    };
    store.audit(&entry(&"ü".repeat(5_000))).unwrap();
    assert_eq!(store.audit_log(&Reader::server(), None, 1).unwrap()[0].detail.len(), 4_096);
    // The table holds one refused row more than is kept; the next row triggers the deletion.
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch(
        "WITH RECURSIVE n(i) AS (VALUES (2) UNION ALL SELECT i + 1 FROM n WHERE i <= 100001)
         INSERT INTO audit SELECT i, 1, 'u', 'a', '', 'refused' FROM n;
         UPDATE sqlite_sequence SET seq = 109999 WHERE name = 'audit'",
    )
    .unwrap();
    store.audit(&entry("last")).unwrap();
    let left = |outcome: &str| -> (i64, i64) {
        let sql = "SELECT count(*), min(id) FROM audit WHERE outcome = ?1";
        conn.query_row(sql, [outcome], |r| Ok((r.get(0)?, r.get(1)?))).unwrap()
    };
    assert_eq!((left("done"), left("refused")), ((2, 1), (100_000, 3)));
}
