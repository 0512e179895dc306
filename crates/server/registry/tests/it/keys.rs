//! Agents imported from a `client.keys`, agents that replace others, and their keys.

use std::io;
use std::path::Path;
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::Duration;

use crate::common::{self, der, fixture, info, named, options};
use env::clock::ManualClock;
use env::random::{Random, SystemRandom};
use model::{AgentId, AgentStatus, Permitted, WatchReport};
use registry::limits::AGENT_NUMBER_MAX;
use registry::{
    AgentEnrolment, CommandKind, CommandOutcome, ControlStore, DisplacedAgents, EnrollError,
    ForceRules, InsertAgent, Inserted, LastScan, Life, OutcomeState, Reader, Registry, WatchQuery,
    WriteContext,
};
use tempfile::TempDir;

#[test]
fn requested_client_key_is_stable_and_writes_nothing() {
    let world = fixture();
    world
        .registry
        .add_agents(&WriteContext::server(), &[(None, named("one")), (None, named("two"))])
        .unwrap();
    let key = |id| world.registry.client_key(&Reader::server(), AgentId(id)).unwrap();
    let rows = || {
        let db = rusqlite::Connection::open(world.folder.path().join("registry.db")).unwrap();
        let sql = "SELECT count(*) FROM agent WHERE client_key IS NOT NULL";
        db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let before = rows();
    assert_eq!((key(1), key(1).len()), (key(1), 64));
    assert_ne!(key(1), key(2));
    assert_eq!(rows(), before);
    assert!(world.registry.client_key(&Reader::server(), AgentId(9)).is_err());
}

#[test]
fn import_keeps_ids_names_addresses_and_keys_or_changes_nothing() {
    let world = fixture();
    let (a, b) = ("a".repeat(64), "b".repeat(64));
    let text = format!("007 web 192.0.2.7 {a}\n012 db any {b}\n\n009 !gone any {a}\n# note\n");
    let report = world.registry.import_client_keys(&WriteContext::server(), &text).unwrap();
    assert_eq!((report.added, report.passed_over), (2, 3));
    let web = world.registry.agent(AgentId(7)).unwrap();
    assert_eq!((web.name.as_str(), web.register_ip.as_str()), ("web", "192.0.2.7"));
    assert_eq!(world.registry.client_key(&Reader::server(), AgentId(12)).unwrap(), b);
    let next =
        world.registry.add_agents(&WriteContext::server(), &[(None, named("next"))]).unwrap();
    assert_eq!(next, [AgentId(13)], "numbers go on behind the highest");

    for (line, why) in [
        (format!("020 new any {}", "c".repeat(63)), "short key"),
        ("021 new".to_owned(), "two words"),
        (format!("000 new any {a}"), "the server's number"),
        (format!("022 web any {a}"), "a name that is taken"),
    ] {
        let text = format!("030 fine any {a}\n{line}\n");
        assert!(
            world.registry.import_client_keys(&WriteContext::server(), &text).is_err(),
            "{why}"
        );
        assert!(world.registry.agent(AgentId(30)).is_none(), "{why}: nothing was taken over");
    }
}

#[test]
fn import_names_the_line_of_a_name_that_is_in_use() {
    let world = fixture();
    let registry = &world.registry;
    registry.add_agents(&WriteContext::server(), &[(None, named("web"))]).unwrap();
    let server = registry.agent(AgentId::SERVER).unwrap().name;
    let import = |lines: &[(u32, &str)]| {
        let line = |(id, name): &(u32, &str)| format!("{id:03} {name} any {}\n", "k".repeat(64));
        let text: String = lines.iter().map(line).collect();
        registry.import_client_keys(&WriteContext::server(), &text)
    };
    for name in ["Web", "000", &server, "x"] {
        // The numbers do not have the order of the lines.
        let error = import(&[(30, "db"), (20, name), (10, "app")]).unwrap_err();
        assert!(error.to_string().starts_with("line 2: "), "{name}: {error}");
    }
    let error = import(&[(30, "db"), (1, "app")]).unwrap_err();
    assert!(error.to_string().starts_with("line 2: "), "{error}");
    let error = import(&[(30, "db"), (20, "app"), (10, "DB")]).unwrap_err().to_string();
    assert!(error.starts_with("line 3: ") && error.contains("line 1"), "{error}");
    assert_eq!(registry.status_summary().unwrap().total, 1);
}

/// Earlier versions accepted names that differ only in case.
#[test]
fn names_that_differ_in_case_since_before_keep_working() {
    let world = fixture();
    let agents = [(None, named("web")), (None, named("other")), (None, named("db"))];
    world.registry.add_agents(&WriteContext::server(), &agents).unwrap();
    world.registry.flush().unwrap();
    let db = rusqlite::Connection::open(world.folder.path().join("registry.db")).unwrap();
    db.execute("UPDATE agent SET name = 'WEB' WHERE name = 'other'", []).unwrap();
    drop(db);
    let world = world.reopen();
    world.after(7_200);
    // A new key for one of them leaves the other in its place.
    let force = Some(ForceRules::default());
    let same = |id, name| InsertAgent {
        id: Some(AgentId(id)),
        request: named(name),
        force,
        ..InsertAgent::default()
    };
    for (id, name) in [(1, "web"), (2, "WEB")] {
        let new = same(id, name);
        let inserted =
            world.registry.insert_agent(&WriteContext::server(), &new, &mut |_| Ok(())).unwrap();
        assert_eq!((inserted.id, inserted.removed), (AgentId(id), vec![]));
    }
    assert_eq!(world.registry.agent(AgentId(1)).unwrap().name, "web");
    assert_eq!(world.registry.agent(AgentId(2)).unwrap().name, "WEB");
}

#[test]
fn insertion_replaces_only_an_agent_that_the_rules_allow() {
    let world = fixture();
    let old =
        world.registry.add_agents(&WriteContext::server(), &[(None, named("web"))]).unwrap()[0];
    let rules = ForceRules { enabled: true, disconnected_s: Some(60), registered_s: 60 };
    let new = InsertAgent { request: named("web"), force: Some(rules), ..InsertAgent::default() };
    let mut record = |_: DisplacedAgents<'_>| Ok(());
    let refused =
        world.registry.insert_agent(&WriteContext::server(), &new, &mut record).unwrap_err();
    assert!(matches!(refused, EnrollError::DuplicateName { .. }), "registered just now: {refused}");
    world.after(61);
    let Inserted { id, key, removed } =
        world.registry.insert_agent(&WriteContext::server(), &new, &mut record).unwrap();
    assert_eq!((removed[0].agent, key.len()), (old, 64));
    assert!(world.registry.agent(old).is_none() && world.registry.agent(id).is_some());
    let off = InsertAgent { force: None, ..new };
    world.after(600);
    assert!(world.registry.insert_agent(&WriteContext::server(), &off, &mut record).is_err());
}

#[test]
fn rejected_insert_removes_no_agent() {
    let world = fixture();
    let name =
        world.registry.add_agents(&WriteContext::server(), &[(None, named("web"))]).unwrap()[0];
    world.after(61);
    let at = AgentEnrolment { ip: "192.0.2.7".into(), ..named("db") };
    let young = world.registry.add_agents(&WriteContext::server(), &[(None, at)]).unwrap()[0];
    let force = Some(ForceRules { enabled: true, disconnected_s: Some(60), registered_s: 60 });
    let request = AgentEnrolment { ip: "192.0.2.7".into(), ..named("web") };
    let both = InsertAgent { request, force, ..InsertAgent::default() };
    let mut told = Vec::new();
    let mut record = |displaced: DisplacedAgents<'_>| {
        told.extend(displaced.gone.iter().map(|life| life.agent));
        Ok(())
    };
    let refused =
        world.registry.insert_agent(&WriteContext::server(), &both, &mut record).unwrap_err();
    assert!(matches!(refused, EnrollError::DuplicateIp { id, .. } if id == young), "{refused}");
    // An unused number below the next.
    let low =
        InsertAgent { id: Some(young), request: named("web"), force, ..InsertAgent::default() };
    assert!(
        world.registry.insert_agent(&WriteContext::server(), &low, &mut record).is_err(),
        "the number is another's"
    );
    let unrecorded = InsertAgent { request: named("web"), force, ..InsertAgent::default() };
    let full = |_: DisplacedAgents<'_>| Err("the disk is full".to_owned());
    let refused = world
        .registry
        .insert_agent(&WriteContext::server(), &unrecorded, &mut { full })
        .unwrap_err();
    assert!(refused.to_string().contains("the disk is full"), "{refused}");
    assert!(world.registry.agent(name).is_some() && told.is_empty(), "nobody had to go");
}

#[test]
fn insertion_may_reuse_the_number_of_the_replaced_agent() {
    let world = fixture();
    let old =
        world.registry.add_agents(&WriteContext::server(), &[(None, named("web"))]).unwrap()[0];
    let life = |registry: &Registry| {
        let incarnation = registry.agent(old).unwrap().incarnation;
        Life { agent: old, incarnation }
    };
    let former = life(&world.registry);
    world.after(61);
    let force = Some(ForceRules { enabled: true, disconnected_s: Some(60), registered_s: 60 });
    let new =
        InsertAgent { id: Some(old), request: named("next"), force, ..InsertAgent::default() };
    let mut told = Vec::new();
    let mut record = |displaced: DisplacedAgents<'_>| {
        told.extend_from_slice(displaced.gone);
        Ok(())
    };
    let Inserted { id, removed, .. } =
        world.registry.insert_agent(&WriteContext::server(), &new, &mut record).unwrap();
    assert_eq!((id, removed, told), (old, vec![former], vec![former]));
    let now = world.registry.agent(old).unwrap();
    assert_eq!(now.name, "next");
    assert_ne!(now.incarnation, former.incarnation);
    // The removal of a life that has ended removes no agent.
    assert_eq!(world.registry.remove_agents(&WriteContext::server(), &[former]).unwrap(), []);
    assert_eq!(
        world.registry.remove_agents(&WriteContext::server(), &[life(&world.registry)]).unwrap(),
        [old]
    );
}

#[test]
fn agent_number_above_the_maximum_is_refused() {
    let world = fixture();
    for id in [AGENT_NUMBER_MAX + 1, u32::MAX - 1, u32::MAX] {
        let new =
            InsertAgent { id: Some(AgentId(id)), request: named("far"), ..InsertAgent::default() };
        assert!(
            world.registry.insert_agent(&WriteContext::server(), &new, &mut |_| Ok(())).is_err(),
            "{id}"
        );
        let line = format!("{id} far any {}", "k".repeat(64));
        assert!(world.registry.import_client_keys(&WriteContext::server(), &line).is_err(), "{id}");
    }
    let new = InsertAgent {
        id: Some(AgentId(AGENT_NUMBER_MAX)),
        request: named("last"),
        ..InsertAgent::default()
    };
    world.registry.insert_agent(&WriteContext::server(), &new, &mut |_| Ok(())).unwrap();
    let next =
        world.registry.add_agents(&WriteContext::server(), &[(None, named("next"))]).unwrap();
    assert_eq!(next, [AgentId(AGENT_NUMBER_MAX + 1)], "drawn ones go on");
}

#[test]
fn running_scan_keeps_the_previous_end_time_until_it_ends() {
    let world = fixture();
    let id =
        world.registry.add_agents(&WriteContext::server(), &[(None, named("web"))]).unwrap()[0];
    let scan = |start, end| LastScan { started_at_s: start, ended_at_s: end };
    assert_eq!(world.registry.last_scan(&Reader::server(), id).unwrap(), scan(None, None));
    world.registry.scanned(id, scan(Some(10), Some(20)));
    world.registry.scanned(id, scan(Some(30), None));
    assert_eq!(world.registry.last_scan(&Reader::server(), id).unwrap(), scan(Some(30), Some(20)));
}

#[test]
fn removal_callback_is_called_for_every_kind_of_agent_removal() {
    let fixture = fixture();
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&told);
    fixture.registry.when_removed(move |id| list.lock().unwrap().push(id));
    let ids = fixture
        .registry
        .add_agents(
            &WriteContext::server(),
            &["one", "two", "three"].map(|name| (None, named(name))),
        )
        .unwrap();
    fixture.registry.remove_agent(&WriteContext::server(), ids[0]).unwrap();
    fixture.registry.remove_agent(&WriteContext::server(), ids[0]).unwrap();
    let lives = fixture.registry.revoke_agents(&WriteContext::server(), &ids).unwrap();
    assert_eq!(told.lock().unwrap()[..], ids[..1], "revoked is not removed");
    fixture.registry.remove_agents(&WriteContext::server(), &lives[..1]).unwrap();
    let force = ForceRules { enabled: true, disconnected_s: None, registered_s: 0 };
    let new = InsertAgent { id: None, request: named("three"), key: None, force: Some(force) };
    fixture.registry.insert_agent(&WriteContext::server(), &new, &mut |_| Ok(())).unwrap();
    assert_eq!(told.lock().unwrap()[..], ids[..], "replaced is removed");
}

#[test]
fn reports_do_not_carry_over_to_a_reused_agent_id() {
    let fixture = fixture();
    let ids =
        fixture.registry.add_agents(&WriteContext::server(), &[(None, named("one"))]).unwrap();
    let scan = LastScan { started_at_s: Some(7), ended_at_s: Some(8) };
    fixture.registry.scanned(ids[0], scan);
    fixture.registry.watched(ids[0], WatchReport::default());
    let force = ForceRules { enabled: true, disconnected_s: None, registered_s: 0 };
    let (id, request) = (Some(ids[0]), named("two"));
    let new = InsertAgent { id, request, key: None, force: Some(force) };
    fixture.registry.insert_agent(&WriteContext::server(), &new, &mut |_| Ok(())).unwrap();
    assert_eq!(fixture.registry.last_scan(&Reader::server(), ids[0]).unwrap(), LastScan::default());
    let all = WatchQuery { permitted: Permitted::All, state: None, offset: 0, limit: 9 };
    assert_eq!(fixture.registry.watch_reports(&Reader::server(), &all).unwrap().total, 0);
}

/// Rules that allow replacing any agent at once, however recently seen or registered.
const AT_ONCE: ForceRules = ForceRules { enabled: true, disconnected_s: None, registered_s: 0 };

#[test]
fn agent_reinserted_with_its_id_and_name_keeps_its_identity() {
    let fixture = fixture();
    fixture.registry.create_group(&WriteContext::server(), "web").unwrap();
    let enrolled = fixture.enroll("web-1");
    let id = enrolled.agent;
    fixture.registry.set_agent_groups(&WriteContext::server(), id, &["web".into()]).unwrap();
    fixture.registry.keepalive(id, &info("debian", "v1"));
    let was = fixture.registry.agent(id).unwrap();
    let order = fixture
        .registry
        .create_command(&WriteContext::server(), CommandKind::Rescan, &[id], "admin")
        .unwrap();
    fixture.after(61);
    let key = Some("k".repeat(64));
    let new = InsertAgent { id: Some(id), request: named("web-1"), key, force: Some(AT_ONCE) };
    let mut told = Vec::new();
    let mut record = |displaced: DisplacedAgents<'_>| {
        told.push((displaced.gone.to_vec(), displaced.rekeyed));
        Ok(())
    };
    let Inserted { id: same, key, removed } =
        fixture.registry.insert_agent(&WriteContext::server(), &new, &mut record).unwrap();
    assert_eq!((same, removed, told), (id, vec![], vec![(vec![], Some(id))]));
    let now = fixture.registry.agent(id).unwrap();
    assert_eq!((now.incarnation, &now.groups), (was.incarnation, &was.groups));
    assert_eq!((now.status, now.keepalive_at_s), (AgentStatus::NeverConnected, None));
    assert_eq!(now.added_at_s, was.added_at_s + 61);
    assert_eq!(fixture.registry.client_key(&Reader::server(), id).unwrap(), key);
    let der = der(&enrolled.certificate_pem);
    assert!(fixture.registry.identify(&der).is_err(), "what it had before is not taken any more");
    assert_eq!(fixture.registry.pending_commands(id)[0].id, order);
    fixture.registry.flush().unwrap();
    let stored = fixture.reopen();
    assert_eq!(stored.registry.agent(id).unwrap(), now, "as it is in memory");
    let counted = stored.registry.status_summary().unwrap();
    assert_eq!((counted.never_connected, counted.total), (1, 1));
}

#[test]
fn other_writes_do_not_wait_for_the_journal_of_an_insert() {
    let fixture = fixture();
    fixture.registry.add_agents(&WriteContext::server(), &[(None, named("web"))]).unwrap();
    let request = named("web");
    let new = InsertAgent { request, force: Some(AT_ONCE), ..InsertAgent::default() };
    let mut record = |_: DisplacedAgents<'_>| {
        let (done, waiting) = mpsc::channel();
        let registry = fixture.registry.clone();
        std::thread::spawn(move || {
            registry.create_group(&WriteContext::server(), "meanwhile").unwrap();
            registry.add_agents(&WriteContext::server(), &[(None, named("other"))]).unwrap();
            done.send(()).unwrap();
        });
        waiting.recv_timeout(Duration::from_mins(10)).map_err(|e| e.to_string())
    };
    fixture.registry.insert_agent(&WriteContext::server(), &new, &mut record).unwrap();
}

#[test]
fn id_of_agent_removed_during_the_journal_wait_is_reused() {
    let fixture = fixture();
    let old =
        fixture.registry.add_agents(&WriteContext::server(), &[(None, named("web"))]).unwrap()[0];
    let new =
        InsertAgent { id: Some(old), request: named("next"), key: None, force: Some(AT_ONCE) };
    // The agent connected and was found to be removed.
    let mut record = |_: DisplacedAgents<'_>| {
        fixture
            .registry
            .remove_agent(&WriteContext::server(), old)
            .map(drop)
            .map_err(|e| e.to_string())
    };
    let id = fixture.registry.insert_agent(&WriteContext::server(), &new, &mut record).unwrap().id;
    assert_eq!((id, fixture.registry.agent(old).unwrap().name.as_str()), (old, "next"));
}

#[test]
fn agent_added_during_the_journal_wait_is_not_replaced() {
    let fixture = fixture();
    let old =
        fixture.registry.add_agents(&WriteContext::server(), &[(None, named("web"))]).unwrap()[0];
    let request = named("web");
    let new = InsertAgent { request, force: Some(AT_ONCE), ..InsertAgent::default() };
    let mut another = None;
    let mut record = |displaced: DisplacedAgents<'_>| {
        fixture.registry.remove_agents(&WriteContext::server(), displaced.gone).unwrap();
        another = Some(
            fixture.registry.add_agents(&WriteContext::server(), &[(None, named("web"))]).unwrap()
                [0],
        );
        Ok(())
    };
    let refused =
        fixture.registry.insert_agent(&WriteContext::server(), &new, &mut record).unwrap_err();
    assert!(refused.to_string().contains("already registered"), "{refused}");
    let another = another.unwrap();
    assert_ne!(another, old);
    assert!(fixture.registry.agent(another).is_some(), "nobody asked whether it may go");
}

#[test]
fn command_outcomes_do_not_carry_over_to_a_reused_agent_id() {
    let fixture = fixture();
    let names = ["one", "two", "three"].map(|name| (None, named(name)));
    let ids = fixture.registry.add_agents(&WriteContext::server(), &names).unwrap();
    let order = fixture
        .registry
        .create_command(&WriteContext::server(), CommandKind::Restart, &ids, "admin")
        .unwrap();
    for id in &ids[..2] {
        fixture.registry.pending_commands(*id);
        let said =
            CommandOutcome { state: OutcomeState::Acknowledged, detail: "of its own".into() };
        assert!(fixture.registry.command_outcome(*id, order, &said));
    }
    let told = || -> Vec<_> {
        let rows = fixture.registry.outcomes(&Reader::server(), order, None, None, 10).unwrap();
        rows.into_iter().map(|row| (row.agent, row.state)).collect()
    };
    assert_eq!(told().len(), 3);
    let lives = fixture.registry.revoke_agents(&WriteContext::server(), &ids[..1]).unwrap();
    let gone = fixture.registry.remove_agents(&WriteContext::server(), &lives).unwrap();
    fixture.registry.free_numbers(&WriteContext::server(), &gone).unwrap();
    assert_eq!(told().len(), 3, "nobody else has the number yet");
    for (id, name) in [(ids[0], "given again"), (ids[1], "taken over")] {
        let request = named(&name.replace(' ', "-"));
        let new = InsertAgent { id: Some(id), request, key: None, force: Some(AT_ONCE) };
        fixture.registry.insert_agent(&WriteContext::server(), &new, &mut |_| Ok(())).unwrap();
    }
    assert_eq!(told(), [(ids[2], OutcomeState::Pending)]);
    let counts = fixture.registry.command(&Reader::server(), order).unwrap().unwrap().counts;
    assert_eq!((counts.acknowledged, counts.pending, counts.total), (2, 1, 3), "what came of it");
}

/// Makes both callers finish their checks before one of them writes.
struct InStep(Barrier);

impl Random for InStep {
    fn fill_bytes(&self, into: &mut [u8]) -> io::Result<()> {
        self.0.wait();
        SystemRandom.fill_bytes(into)
    }
}

#[test]
fn concurrent_first_starts_share_one_client_key_secret() {
    let folder = TempDir::new().unwrap();
    let store = || ControlStore::open(&folder.path().join("registry.db")).unwrap();
    let agent = control::NewAgent {
        id: None,
        name: "web".into(),
        register_ip: "any".into(),
        groups: Vec::new(),
        incarnation: model::Incarnation(1),
        client_key: None,
        ephemeral_s: None,
        now_s: 1,
    };
    store().add_agents(&WriteContext::server(), &[agent]).unwrap();
    let step: Arc<dyn Random> = Arc::new(InStep(Barrier::new(2)));
    let start = |own: &Path, store: ControlStore| {
        std::fs::create_dir(own).unwrap();
        let clock = Arc::new(ManualClock::at(common::START_US));
        Registry::open(Arc::new(store), own, clock, Arc::clone(&step), options()).unwrap()
    };
    let (first, second) = std::thread::scope(|scope| {
        let [first, second] = ["first", "second"].map(|name| {
            let (own, store, start) = (folder.path().join(name), store(), &start);
            scope.spawn(move || start(&own, store))
        });
        (first.join().unwrap(), second.join().unwrap())
    });
    let key = |registry: &Registry| registry.client_key(&Reader::server(), AgentId(1)).unwrap();
    assert_eq!(key(&first), key(&second));
}
