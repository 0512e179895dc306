use link::{Context, Mode, Operation, Payload, Session, SessionValue, Start, SyncOption, encode};

use super::*;
use SkipReason::{Id, Index, Json, TooLarge};

const FILES: &str = "wazuh-states-fim-files";

fn start(mode: Mode) -> Start {
    Start {
        module: "fim".into(),
        mode,
        agentid: "007".into(),
        agentname: "web".into(),
        cluster_name: "holdfast".into(),
        ..Start::default()
    }
}

fn of(session: &Session) -> Result<Plan, Refusal> {
    plan(&encode(session), &Limits::default(), AgentId(7), "holdfast")
}

fn delta(values: Vec<SessionValue>) -> Session {
    let payload = Payload::Sync { values, contexts: Vec::new() };
    Session { start: start(Mode::ModuleDelta), payload }
}

fn value(index: &str, id: &str, data: &[u8]) -> SessionValue {
    let (index, id, data) = (index.into(), id.into(), data.into());
    SessionValue { operation: Operation::Upsert, id, index, version: 3, data }
}

fn event() -> Vec<u8> {
    let mut body = EventBody { timestamp: model::timestamp::micros(1), ..EventBody::default() };
    body.event.action = "created".into();
    body.to_json()
}

fn status(session: &Session) -> u16 {
    of(session).map_or_else(|r| r.status.as_u16(), |_| 200)
}

#[test]
fn session_mode_accepts_only_its_documented_payloads() {
    let payloads = [
        Payload::None,
        Payload::Sync { values: vec![value(FILES, "a", b"{}")], contexts: Vec::new() },
        Payload::Cleans(vec![FILES.into()]),
        Payload::Checksum { index: FILES.into(), checksum: "aa".into() },
    ];
    for mode in Mode::ALL {
        for (n, payload) in payloads.iter().enumerate() {
            let allowed = match mode {
                Mode::ModuleDelta => n == 1 || n == 2,
                Mode::ModuleCheck => n == 3,
                _ => n == 0,
            };
            let session = Session { start: start(*mode), payload: payload.clone() };
            assert_eq!(status(&session), if allowed { 200 } else { 400 }, "{mode:?} {n}");
        }
    }
}

#[test]
fn session_errors_are_checked_in_the_documented_order() {
    let good = delta(vec![value(FILES, "a", b"{}")]);
    let with = |edit: fn(&mut Start)| {
        let mut session = good.clone();
        edit(&mut session.start);
        of(&session).map_or_else(|r| (r.status.as_u16(), r.error), |_| (200, ""))
    };
    assert_eq!(with(|_| {}), (200, ""));
    assert_eq!(with(|s| s.agentid = "7".into()), (200, ""), "equal as numbers");
    assert_eq!(with(|s| s.module.clear()), (400, "invalid_message"));
    assert_eq!(with(|s| s.agentid = "seven".into()), (400, "invalid_message"));
    assert_eq!(with(|s| s.agentid.clear()), (400, "invalid_message"));
    assert_eq!(with(|s| s.agentid = "008".into()), (403, "identity_mismatch"));
    assert_eq!(with(|s| s.cluster_name.clear()), (400, "invalid_message"));
    assert_eq!(with(|s| s.cluster_name = "x".into()), (403, "cluster_mismatch"));
    assert_eq!(
        with(|s| {
            s.agentid = "008".into();
            s.mode = Mode::ModuleCheck;
        }),
        (403, "identity_mismatch"),
        "identity comes before the matrix"
    );
    assert_eq!(
        with(|s| {
            s.agentid = "008".into();
            s.module.clear();
        }),
        (400, "invalid_message"),
        "the module comes before identity"
    );
}

#[test]
fn empty_payloads_are_refused() {
    assert_eq!(status(&delta(Vec::new())), 400);
    let contexts = vec![Context { id: "x".into(), ..Context::default() }];
    let payload = Payload::Sync { values: Vec::new(), contexts };
    assert_eq!(status(&Session { start: start(Mode::ModuleDelta), payload }), 400);
    let cleans = Payload::Cleans(Vec::new());
    assert_eq!(status(&Session { start: start(Mode::ModuleDelta), payload: cleans }), 400);
    for (index, checksum) in [(FILES, ""), ("holdfast-events", "aa"), ("other", "aa")] {
        let payload = Payload::Checksum { index: index.into(), checksum: checksum.into() };
        let session = Session { start: start(Mode::ModuleCheck), payload };
        assert_eq!(status(&session), 400, "{index} {checksum}");
    }
}

#[test]
fn invalid_values_are_skipped_and_other_indexes_are_kept() {
    let mut delete_event = value("holdfast-events", "e-1", b"{}");
    delete_event.operation = Operation::Delete;
    let mut delete = value(FILES, "gone", b"not json, not read");
    delete.operation = Operation::Delete;
    let big = format!("{{\"a\":\"{}\"}}", "x".repeat(DOCUMENT_BYTES_MAX));
    let session = delta(vec![
        value("wazuh-states-vulnerabilities", "a", b"{}"),
        value(FILES, "", b"{}"),
        value(FILES, "good", b"{\"a\":1}"),
        value(FILES, "b", b"[]"),
        value(FILES, &"x".repeat(DOCUMENT_ID_BYTES_MAX + 1), b"{}"),
        value(FILES, "big", big.as_bytes()),
        delete,
        delete_event,
        value("holdfast-events", "e-2", b"{}"),
        value("holdfast-events", "e-3", &event()),
    ]);
    let Task::Commit(writes) = of(&session).unwrap().task else { panic!("no commit") };
    let skipped: Vec<_> = writes.skipped.iter().map(|s| (s.index, s.reason)).collect();
    assert_eq!(
        skipped,
        [(0, Index), (1, Id), (3, Json), (4, Id), (5, TooLarge), (7, Index), (8, Json)]
    );
    assert_eq!(writes.places, [2, 6, 9]);
    assert_eq!(
        writes.list,
        [
            Write::Upsert {
                dataset: Dataset::fim_files(),
                id: "good".into(),
                version: 3,
                body: b"{\"a\":1}".to_vec()
            },
            Write::Delete { dataset: Dataset::fim_files(), id: "gone".into(), version: 3 },
            Write::Event { id: "e-3".into(), body: event() },
        ]
    );
    let stale = Skipped { index: 1, id: "gone".into(), reason: SkipReason::Stale, version: 9 };
    let mapped: Vec<_> = PlannedWrites::at_values(&writes.places, vec![stale]).collect();
    assert_eq!((mapped[0].index, mapped[0].version), (6, 9));
}

#[test]
fn clean_skips_events_and_accepts_the_vulnerability_index() {
    let items = vec!["wazuh-states-vulnerabilities".into(), "holdfast-events".into(), FILES.into()];
    let session = Session { start: start(Mode::ModuleDelta), payload: Payload::Cleans(items) };
    let Task::Commit(writes) = of(&session).unwrap().task else { panic!("no commit") };
    assert_eq!(writes.list, [Write::Clean { dataset: Dataset::fim_files() }]);
    assert_eq!((writes.places[0], writes.skipped[0].index), (2, 1));
}

#[test]
fn requested_scan_sets_the_scan_flag() {
    let mut session = delta(vec![value(FILES, "a", b"{}")]);
    assert!(!of(&session).unwrap().scan);
    session.start.option = SyncOption::VdFirst;
    assert!(of(&session).unwrap().scan);
}

#[test]
fn oversized_session_is_distinguished_from_a_malformed_one() {
    let bytes = encode(&delta(vec![value(FILES, "a", b"{}"), value(FILES, "b", b"{}")]));
    let limits = Limits { values_max: 1, ..Limits::default() };
    let refusal = plan(&bytes, &limits, AgentId(7), "holdfast").unwrap_err();
    assert_eq!(refusal.status.as_u16(), 413);
    let refusal = plan(b"garbage!", &Limits::default(), AgentId(7), "holdfast").unwrap_err();
    assert_eq!(refusal.status.as_u16(), 400);
}
