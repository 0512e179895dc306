//! Writers of changes in events: the only one at the top, several and doubtful ones in a list.

use model::document::NoNames;
use model::{
    Actor, ActorUser, Attribution, Candidate, Change, ChangeKind, Detection, EventBody, Executable,
    Fields, ItemKey, Kind, Observation, ProcessInfo, ProgramBody, timestamp,
};

fn executable(path: &str) -> Executable {
    Executable { path: path.into(), sha256: Some("ab".into()), deleted: false }
}

fn process(pid: u32, path: &str) -> ProcessInfo {
    ProcessInfo {
        pid,
        entity_id: format!("e{pid}"),
        start: timestamp::micros(1),
        executable: Some(executable(path)),
        command_line: format!("{path} x"),
        working_directory: "/root".into(),
        ..ProcessInfo::default()
    }
}

fn user(id: u32, name: &str) -> ActorUser {
    ActorUser { id, name: name.into() }
}

fn exact() -> Actor {
    Actor {
        attribution: Attribution::Exact,
        process: Some(process(7, "/usr/bin/vim")),
        ancestors: vec![process(6, "/usr/bin/bash"), process(5, "/usr/sbin/sshd")],
        real_user: Some(user(0, "root")),
        effective_user: Some(user(0, "root")),
        login_user: Some(user(1000, "ann")),
        session: Some(3),
        tty: "pts/1".into(),
        container_id: "c0ffee".into(),
        ..Actor::default()
    }
}

fn seen(actors: Vec<Actor>) -> Detection {
    Detection {
        first_us: 5_000_000,
        last_us: 6_000_000,
        notices: 3,
        actors,
        ..Detection::default()
    }
}

fn event(seen: Option<Detection>) -> EventBody {
    let change = Change {
        key: ItemKey::of_path(b"/a"),
        kind: ChangeKind::Created,
        before: None,
        after: Some(Observation::empty(Kind::File)),
        fields: Fields::default(),
        found_at_us: 9_000_000,
        from: None,
        seen: seen.map(std::sync::Arc::new),
        cause: None,
    };
    let event = EventBody::of_change(&change, &NoNames);
    assert_eq!(serde_json::from_slice::<EventBody>(&event.to_json()).unwrap(), event);
    event
}

#[test]
fn exact_writer_is_at_the_top_of_the_event() {
    let event = event(Some(seen(vec![exact()])));
    assert_eq!(event.time_us(), 5_000_000, "the time of the first notification");
    let json: serde_json::Value = serde_json::from_slice(&event.to_json()).unwrap();
    assert_eq!(
        json["process"],
        serde_json::json!({
            "pid": 7, "entity_id": "e7", "start": "1970-01-01T00:00:00.000001Z",
            "executable": "/usr/bin/vim", "name": "vim", "hash": {"sha256": "ab"},
            "command_line": "/usr/bin/vim x", "working_directory": "/root",
            "real_user": {"id": "0", "name": "root"},
            "parent": {
                "pid": 6, "entity_id": "e6", "start": "1970-01-01T00:00:00.000001Z",
                "executable": "/usr/bin/bash", "name": "bash", "hash": {"sha256": "ab"},
                "command_line": "/usr/bin/bash x", "working_directory": "/root",
                "parent": {
                    "pid": 5, "entity_id": "e5", "start": "1970-01-01T00:00:00.000001Z",
                    "executable": "/usr/sbin/sshd", "name": "sshd", "hash": {"sha256": "ab"},
                    "command_line": "/usr/sbin/sshd x", "working_directory": "/root",
                },
            },
        })
    );
    let users = serde_json::json!({
        "id": "1000", "name": "ann", "effective": {"id": "0", "name": "root"},
    });
    assert_eq!(json["user"], users);
    assert_eq!(json["container"], serde_json::json!({"id": "c0ffee"}));
    assert_eq!(
        json["holdfast"]["seen"],
        serde_json::json!({
            "first": "1970-01-01T00:00:05.000000Z", "last": "1970-01-01T00:00:06.000000Z",
            "notifications": 3, "found_by": "realtime", "attribution": "exact", "session": 3,
            "tty": "pts/1",
        })
    );
}

#[test]
fn ambiguous_writer_lists_its_candidates() {
    let mut actor = exact();
    actor.attribution = Attribution::Ambiguous;
    let candidate = |path: &str, command_line: &str| Candidate {
        executable: executable(path),
        command_line: command_line.into(),
        ..Candidate::default()
    };
    actor.executables = vec![candidate("/bin/sh", "sh -c true"), candidate("/bin/true", "true")];
    actor.earlier = vec![candidate("/bin/env", "env sh")];
    actor.process.as_mut().unwrap().executable = None;
    actor.effective_user = None;
    let event = event(Some(seen(vec![actor.clone()])));
    let process = event.process.unwrap();
    assert_eq!((process.pid, process.executable.as_str(), process.name.as_str()), (7, "", ""));
    let programs = |list: &[ProgramBody]| {
        list.iter().map(|one| [one.name.clone(), one.command_line.clone()]).collect::<Vec<_>>()
    };
    assert_eq!(programs(&process.candidates), [["sh", "sh -c true"], ["true", "true"]]);
    assert_eq!(programs(&process.earlier), [["env", "env sh"]]);
    assert_eq!(event.user.unwrap().effective, None);
    let seen = event.holdfast.seen.unwrap();
    assert_eq!(seen.attribution, Some(Attribution::Ambiguous));
    assert_eq!(seen.actors, [actor]);
}

#[test]
fn uncertain_and_several_writers_are_only_listed() {
    let uncertain = Actor { attribution: Attribution::Uncertain, ..exact() };
    let several = vec![exact(), Actor { process: Some(process(8, "/bin/ed")), ..exact() }];
    for (actors, more) in [(vec![uncertain], 0), (several, 0), (vec![exact()], 2)] {
        let seen = Detection { more_actors: more, ..seen(actors.clone()) };
        let event = event(Some(seen));
        assert_eq!((event.process, event.user, event.container), (None, None, None));
        let seen = event.holdfast.seen.unwrap();
        assert_eq!((seen.actors, seen.more), (actors, more));
    }
}

#[test]
fn user_without_a_login_is_the_real_user() {
    let actor = Actor { login_user: None, real_user: Some(user(33, "www")), ..exact() };
    assert_eq!(event(Some(seen(vec![actor]))).user.unwrap().name, "www");
    let unknown = Actor { reason: "other pid namespace".into(), ..Actor::default() };
    let event = event(Some(seen(vec![unknown])));
    assert_eq!((event.process, event.user), (None, None));
    assert_eq!(event.holdfast.seen.unwrap().attribution, Some(Attribution::Unknown));
}

#[test]
fn change_of_a_scan_keeps_its_bytes() {
    let expected = r#"{"@timestamp":"1970-01-01T00:00:09.000000Z","event":{"kind":"event","#;
    let json = String::from_utf8(event(None).to_json()).unwrap();
    assert!(json.starts_with(expected), "{json}");
    for field in ["process", "user\"", "container", "seen"] {
        assert!(!json.contains(field), "{json}");
    }
    let unnoticed = event(Some(Detection::default()));
    assert_eq!(unnoticed.time_us(), 9_000_000);
    let json: serde_json::Value = serde_json::from_slice(&unnoticed.to_json()).unwrap();
    assert_eq!(json["holdfast"]["seen"], serde_json::json!({"found_by": "scan"}));
}
