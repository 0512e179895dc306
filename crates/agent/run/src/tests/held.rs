//! A database that may be older than both disk and server, because a copy was restored. Its pending
//! items are not sent before a scan has ended, or ten minutes have passed.

use model::document::NoNames;
use model::{ItemKey, Kind, Observation, Op, Sink as _};
use queue::{Queue, QueueOptions};

use super::*;
use crate::reporter::HELD_FOR;

/// Size of the file when the copy was made, bytes.
const BEFORE: usize = 3;
/// Size of the file according to a pending change in the copy, bytes.
const PENDING: usize = 2;
/// Present size of the file, bytes.
const NOW: usize = 6;

/// Prepares an agent whose database is an older copy with a pending change that is out of date.
/// Returns the file, whose present state was reported.
async fn put_back(folder: &Path, settings: &AgentSettings) -> std::path::PathBuf {
    let file = std::fs::canonicalize(folder).unwrap().join("tree/file");
    let told = async |bytes: usize| {
        std::fs::write(&file, "x".repeat(bytes)).unwrap();
        let agent = Agent::start(settings, Console::new()).unwrap();
        until("it is reported", || stored_bytes(folder, &file) == Some(bytes)).await;
        agent.stop().await.unwrap();
    };
    let database = settings.folder.join("agent.db");
    told(BEFORE).await;
    let older = std::fs::read(&database).unwrap();
    told(NOW).await;
    std::fs::write(&database, older).unwrap();
    let clock = Arc::new(SystemClock::new());
    let random = Arc::new(env::random::SystemRandom);
    let (queue, report) = Queue::open(&database, QueueOptions::default(), clock, random).unwrap();
    assert!(!report.needs_check());
    let mut observation = Observation::empty(Kind::File);
    observation.size = PENDING as u64;
    let key = ItemKey::of_path(file.as_os_str().as_encoded_bytes());
    let mut sink = queue.sink(&model::Dataset::fim_files(), Arc::new(NoNames)).unwrap();
    sink.apply(&mut vec![Op::Put { key, observation, change: None }]).unwrap();
    queue.close().unwrap();
    file
}

/// Starts the agent with a scan that hangs, and checks that nothing is sent.
async fn start_with_hanging_scan(
    folder: &Path,
    settings: &AgentSettings,
    file: &Path,
    clock: &Arc<HangingClock>,
) -> Agent {
    clock.hang();
    let agent = start(settings, clock.clone());
    until("the server is asked", || agent.shared.syncer.check_due().is_some()).await;
    for _ in 0..50 {
        agent.shared.report.notify_one();
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(stored_bytes(folder, file), Some(NOW));
    }
    agent
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_database_sends_nothing_until_a_scan_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (server, mut settings) = house(folder.path()).await;
    settings.sync.heartbeat = Duration::from_millis(100);
    let file = put_back(folder.path(), &settings).await;
    let clock = Arc::new(HangingClock::default());
    let agent = start_with_hanging_scan(folder.path(), &settings, &file, &clock).await;
    clock.go_on();
    until("everything is reported", || {
        assert_eq!(stored_bytes(folder.path(), &file), Some(NOW), "the server went back");
        let status = agent.shared.queue.status().unwrap();
        let pending: u64 = status.datasets.iter().map(|dataset| dataset.pending).sum();
        agent.shared.syncer.check_due().is_none() && pending == 0
    })
    .await;
    agent.stop().await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_scan_delays_reports_by_ten_minutes_at_most() {
    let folder = tempfile::tempdir().unwrap();
    let (server, mut settings) = house(folder.path()).await;
    settings.sync.heartbeat = Duration::from_millis(100);
    let file = put_back(folder.path(), &settings).await;
    let clock = Arc::new(HangingClock::default());
    let agent = start_with_hanging_scan(folder.path(), &settings, &file, &clock).await;
    clock.advance(HELD_FOR);
    agent.shared.report.notify_one();
    until("it is reported all the same", || stored_bytes(folder.path(), &file) == Some(PENDING))
        .await;
    // After the scan continues, the server equals the disk in the end.
    clock.go_on();
    until("the content of the disk is reported", || {
        stored_bytes(folder.path(), &file) == Some(NOW)
    })
    .await;
    agent.stop().await.unwrap();
    server.stop().await;
}
