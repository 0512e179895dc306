//! After agent.db was lost, changes made in the meantime are reported once, even if the comparison
//! is interrupted repeatedly or scans report changes before it.

use std::fs;
use std::path::Path;

use crate::common::{Agent, Server, files, packages};
use env::clock::Clock as _;
use model::{EventBody, PackageBody, PackageDocument};
use queue::DocumentStep;
use sync::{LostReport, Watched};

/// Number of files that are changed, created and deleted while the database is missing, out of 100.
const CHANGED: u64 = 7;

/// Path or key, size or version before and after.
type EventRow = (String, Option<String>, Option<String>);

fn watched(agent: &Agent) -> Watched {
    let roots = vec![b"/lost/tree".to_vec()];
    Watched { roots, seen_us: agent.clock.now_us(), ..Watched::default() }
}

fn forget(folder: &Path) {
    for name in ["agent.db", "agent.db-wal", "agent.db-shm"] {
        let _ = fs::remove_file(folder.join(name));
    }
}

/// Reports some files, loses the database, changes files, and scans again.
async fn lost(server: &Server) -> (Agent, Vec<EventRow>) {
    let mut agent = server.agent("web").await;
    agent.base("/lost/tree", 100);
    agent.cycle().await;
    let mut agent = agent.restart_after(forget);
    agent.disk.clear();
    agent.base("/lost/tree", 100 - CHANGED);
    let mut told = Vec::new();
    for n in 0..CHANGED {
        agent.found(&format!("/lost/tree/f{n}"), Some(1_000 + n), false);
        agent.found(&format!("/lost/tree/new{n}"), Some(n), false);
        let text = |size: u64| Some(size.to_string());
        told.push((format!("/lost/tree/f{n}"), text(n), text(1_000 + n)));
        told.push((format!("/lost/tree/new{n}"), None, text(n)));
        let gone = 100 - CHANGED + n;
        told.push((format!("/lost/tree/f{gone}"), text(gone), None));
    }
    told.sort();
    (agent, told)
}

/// Returns the changes that were reported to the server, sorted.
fn history(server: &Server, agent: &Agent) -> Vec<EventRow> {
    let told = server.history(agent).into_iter().filter_map(|event| {
        let event: EventBody = serde_json::from_slice(&event.body).unwrap();
        let deleted = event.event.action == "deleted";
        let path = event.path().to_owned();
        let (now, before) = match (event.file, event.package) {
            (Some(now), _) => {
                let size = |size: Option<u64>| size.unwrap().to_string();
                (size(now.size), event.holdfast.previous.map(|file| size(file.size)))
            }
            (None, Some(now)) => (now.version, event.holdfast.previous_package.map(|p| p.version)),
            (None, None) => return None,
        };
        Some(if deleted { (path, Some(now), None) } else { (path, before, Some(now)) })
    });
    let mut told: Vec<_> = told.collect();
    told.sort();
    told
}

async fn compare(agent: &Agent) -> LostReport {
    agent.syncer.report_lost_changes(&files(), watched(agent)).await.unwrap()
}

fn counts(report: LostReport) -> (u64, u64, u64) {
    (report.created, report.modified, report.deleted)
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_comparison_reports_each_change_once() {
    let server = Server::start().await;
    let (mut agent, expected) = lost(&server).await;
    let (mut cuts, mut after) = (0, 600);
    loop {
        // The first cut is in the handshake, later ones are further and further into the answers.
        server.cut_connections();
        server.proxy.cut_answers_after(after);
        let done = agent.syncer.report_lost_changes(&files(), watched(&agent)).await;
        let whole = server.proxy.take_back();
        match done {
            Ok(_) if whole => break,
            // The cut came after the last answer.
            Ok(_) => {}
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
        cuts += 1;
        after += 900;
        if cuts % 3 == 0 {
            // The process ends before it can store an acknowledgement.
            agent = agent.restart();
        }
    }
    assert!(cuts >= 5, "{cuts}");
    assert_eq!(counts(compare(&agent).await), (0, 0, 0));
    agent.cycle().await;
    assert_eq!(history(&server, &agent), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn scan_changes_before_the_comparison_are_reported_once() {
    let mut server = Server::start().await;
    let (mut agent, mut expected) = lost(&server).await;
    let tree = |name: &str| format!("/lost/tree/{name}");
    let text = |size: u64| Some(size.to_string());
    let seen = watched(&agent);
    server.stop().await;
    assert!(agent.syncer.report_lost_changes(&files(), seen.clone()).await.is_err());

    // A changed file changes twice more, an unchanged file changes and is reverted, a new file is
    // deleted, a deleted file is created again, and another file is created and deleted.
    let mut steps = vec![("f0", text(1_000), Some(2_000)), ("f0", text(2_000), Some(3_000))];
    steps.extend([("f50", text(50), Some(51)), ("f50", text(51), Some(50))]);
    steps.extend([("new0", text(0), None), ("f99", None, Some(5))]);
    steps.extend([("short", None, Some(1)), ("short", text(1), None)]);
    for (name, before, now) in steps {
        agent.found(&tree(name), now, true);
        expected.push((tree(name), before, now.and_then(text)));
    }
    expected.sort();
    server.resume(|_| {});
    let report = agent.syncer.report_lost_changes(&files(), seen.clone()).await.unwrap();
    assert_eq!(counts(report), (CHANGED, CHANGED, CHANGED));
    // The process ended before it could store the result. The same comparison again reports
    // nothing.
    let mut agent = agent.restart();
    let report = agent.syncer.report_lost_changes(&files(), seen).await.unwrap();
    assert_eq!(counts(report), (0, 0, 0));
    agent.beat().await;
    agent.repair().await;
    assert_eq!(history(&server, &agent), expected);
    assert_eq!(server.stored_checksums(&agent), agent.expected());

    // In the order of time, each change begins with the state after the previous one.
    let mut of_one: Vec<_> = server.history(&agent);
    of_one.retain(|event| event.path == tree("f0"));
    of_one.sort_by_key(|event| event.found_at_us);
    let sizes: Vec<_> = of_one
        .iter()
        .map(|e| serde_json::from_slice::<EventBody>(&e.body).unwrap().file.unwrap().size)
        .collect();
    assert_eq!(sizes, [Some(1_000), Some(2_000), Some(3_000)]);
    // All its events were sent, so the next change is a single event.
    agent.found(&tree("f1"), Some(9), true);
    assert_eq!(agent.cycle().await.events, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn comparison_with_an_empty_server_creates_no_events() {
    let server = Server::start().await;
    let agent = server.agent("web").await;
    agent.cycle().await;
    let mut agent = agent.restart_after(forget);
    agent.base("/lost/tree", 20);
    let report = compare(&agent).await;
    assert_eq!((report.documents, counts(report)), (20, (0, 0, 0)));
    assert_eq!(agent.events(), 0);
}

fn package(name: &str, version: &str) -> (Vec<u8>, Vec<u8>) {
    let body = PackageBody {
        name: name.into(),
        version: version.into(),
        architecture: "amd64".into(),
        ..PackageBody::default()
    };
    (body.key().into_bytes(), PackageDocument::new(body).to_json())
}

fn install(agent: &Agent, all: &[(&str, &str)]) {
    for (name, version) in all {
        let (key, document) = package(name, version);
        let step = DocumentStep { key: &key, document: Some(&document), event: None };
        agent.queue.apply_documents(&packages(), &[step], &[]).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn package_changes_during_database_loss_are_reported() {
    let server = Server::start().await;
    let agent = server.agent("web").await;
    install(&agent, &[("bash", "1"), ("dpkg", "1"), ("half", "1"), ("old", "1")]);
    agent.syncer.cycle(&packages()).await.unwrap();
    let agent = agent.restart_after(forget);
    // One package is being changed: its final state is unknown.
    install(&agent, &[("bash", "2"), ("dpkg", "1"), ("new", "1")]);
    let moving = ["half:amd64".to_owned()].into();
    let seen = Watched { moving, seen_us: agent.clock.now_us(), ..Watched::default() };
    let report = agent.syncer.report_lost_changes(&packages(), seen.clone()).await.unwrap();
    assert_eq!(counts(report), (1, 1, 1));
    let report = agent.syncer.report_lost_changes(&packages(), seen).await.unwrap();
    assert_eq!(counts(report), (0, 0, 0));
    agent.syncer.cycle(&packages()).await.unwrap();
    let text = |text: &str| Some(text.to_owned());
    let expected = [
        ("bash:amd64".to_owned(), text("1"), text("2")),
        ("new:amd64".to_owned(), None, text("1")),
        ("old:amd64".to_owned(), text("1"), None),
    ];
    assert_eq!(history(&server, &agent), expected);
}
