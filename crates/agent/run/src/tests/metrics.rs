//! A queue of metrics that cannot be used affects only metrics: files are still scanned and the
//! agent continues to run.

use rusqlite::{Connection, OpenFlags};

use super::*;
use crate::METRICS_FILE;
use telemetry::REOPEN_AFTER;

/// Returns the settings of an agent that samples its host ten times a second. Its server is
/// stopped.
async fn looking(folder: &Path) -> AgentSettings {
    let (server, mut settings) = house(folder).await;
    settings.metrics =
        MetricsConfig { interval: Duration::from_millis(100), ..MetricsConfig::default() };
    server.stop().await;
    settings
}

/// Returns the number of samples in the queue.
fn looks(settings: &AgentSettings) -> u64 {
    // While the database is recreated it may not exist.
    let Ok(db) = database(settings) else { return 0 };
    db.query_row("SELECT count(*) FROM event", [], |row| row.get::<_, i64>(0)).unwrap_or(0) as u64
}

/// Opens a separate connection to the current database.
fn database(settings: &AgentSettings) -> rusqlite::Result<Connection> {
    let path = settings.folder.join(METRICS_FILE);
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    db.busy_timeout(Duration::from_mins(1))?;
    Ok(db)
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_queue_open_failure_is_reported_and_retried() {
    let folder = tempfile::tempdir().unwrap();
    let settings = looking(folder.path()).await;
    std::fs::write(folder.path().join("tree/file"), "watched").unwrap();
    let path = settings.folder.join(METRICS_FILE);
    std::fs::create_dir(&path).unwrap();
    let clock = Arc::new(HangingClock::default());
    let mut agent = start(&settings, clock.clone());
    until("files are watched", || agent.shared.scanned.load(Ordering::SeqCst)).await;
    let events = agent.shared.queue.lease_events(99, usize::MAX).unwrap();
    let told = |event: &queue::QueuedEvent| {
        let body = String::from_utf8_lossy(&event.body).into_owned();
        body.contains("metrics of this host are not kept")
    };
    assert_eq!(events.items.iter().filter(|event| told(event)).count(), 1);
    std::fs::remove_dir(&path).unwrap();
    clock.advance(REOPEN_AFTER);
    until("looks are kept", || path.is_file() && looks(&settings) > 1).await;
    assert!(agent.ended.try_recv().is_err(), "it goes on");
    agent.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_metrics_queue_is_recreated_live_and_rate_limited() {
    let folder = tempfile::tempdir().unwrap();
    let settings = looking(folder.path()).await;
    let clock = Arc::new(HangingClock::default());
    let mut agent = start(&settings, clock.clone());
    until("looks are kept", || looks(&settings) > 2).await;
    let damage = || {
        let db = database(&settings).unwrap();
        assert!(db.execute("UPDATE event SET body = 1.5", []).unwrap() > 0);
    };
    let set_aside = || {
        let names = std::fs::read_dir(&settings.folder).unwrap().map(|e| e.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap());
        names
            .filter(|name| name.starts_with("metrics.db.corrupt-") && !name.ends_with("-wal"))
            .count()
    };
    damage();
    until("it is set aside", || set_aside() == 1).await;
    until("looks are kept again", || looks(&settings) > 2).await;
    damage();
    until("it is met again", || {
        let kept = agent.metrics.as_ref().unwrap();
        kept.is_off()
    })
    .await;
    assert_eq!(set_aside(), 1, "not so soon again");
    clock.advance(REOPEN_AFTER);
    until("it is set aside again", || set_aside() == 2).await;
    assert!(agent.ended.try_recv().is_err(), "it goes on");
    agent.stop().await.unwrap();
}
