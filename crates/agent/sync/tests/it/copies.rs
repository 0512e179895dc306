//! An identity that is copied to a second machine is refused and does not affect the first machine.
//! A restart, a reboot, and a restored or lost database on the same machine continue to work.

use std::fs;
use std::time::Duration;

use crate::common::{Agent, Server, copy, files, machine, put_back};
use link::ControlAction;
use sync::{Machine, SyncError};

/// Longer than three heartbeats.
const SILENCE: Duration = Duration::from_secs(31);

async fn original(server: &Server) -> Agent {
    let mut agent = server.agent("web").await;
    agent.base("/etc", 60);
    agent.write("/etc/f7", 77);
    agent.cycle().await;
    agent
}

/// Waits until the server has reported this number of copies.
async fn told_of_copies(server: &Server, count: usize) {
    let deadline = std::time::Instant::now() + Duration::from_mins(10);
    while server.coverage_bodies("identity_cloned").len() != count {
        assert!(
            std::time::Instant::now() < deadline,
            "{:?}",
            server.coverage_bodies("identity_cloned")
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Sends heartbeats until one is answered, as the running agent does: a request may use a
/// connection that was just cut.
async fn speaks(agent: &Agent) {
    let deadline = std::time::Instant::now() + Duration::from_mins(10);
    while let Err(error) = agent.syncer.heartbeat(ControlAction::Notify, &[]).await {
        assert!(error.is_transient() && std::time::Instant::now() < deadline, "{error}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn assert_copied(error: &SyncError) {
    assert!(error.is_copied(), "{error}");
    assert!(error.to_string().contains("enrol this machine again"), "{error}");
}

/// Gives the copy another disk, so that it would report a delete of every file and one new file.
fn other_disk(copy: &mut Agent, original: &Agent) {
    copy.disk = original.disk.clone();
    let paths: Vec<String> = copy.disk.keys().cloned().collect();
    for path in paths {
        copy.remove(&path);
    }
    copy.write("/srv/copy", 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn cloned_identity_on_other_machine_is_refused() {
    let server = Server::start().await;
    let mut first = original(&server).await;
    let mut second = first.copy_on(&machine(2));
    other_disk(&mut second, &first);
    assert_copied(&second.failing_cycle().await);
    assert_copied(&second.syncer.check(&files()).await.unwrap_err());
    assert_copied(&second.syncer.heartbeat(ControlAction::Notify, &[]).await.unwrap_err());
    assert_eq!(server.stored_checksums(&first), first.expected());
    // It is refused again after a long silence of the first one and after a restart of the copy.
    server.clock.advance(SILENCE * 100);
    let second = second.restart();
    assert_copied(&second.failing_cycle().await);
    told_of_copies(&server, 1).await;
    let told = &server.coverage_bodies("identity_cloned")[0];
    assert!(told.contains("01aa") && told.contains("02aa"), "{told}");
    // The first one continues.
    first.write("/etc/f8", 88);
    first.cycle().await;
    first.beat().await;
    assert_eq!(first.syncer.check_due(), None);
    assert_eq!(server.stored_checksums(&first), first.expected());
}

#[tokio::test(flavor = "multi_thread")]
async fn cloned_identity_is_refused_after_server_restart() {
    let mut server = Server::start().await;
    let first = original(&server).await;
    let mut second = first.copy_on(&machine(2));
    other_disk(&mut second, &first);
    server.restart(|_| {}).await;
    assert_copied(&second.failing_cycle().await);
    assert_eq!(server.stored_checksums(&first), first.expected());
    first.beat().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clone_with_same_machine_id_is_refused_once_original_connects() {
    let server = Server::start().await;
    let first = original(&server).await;
    let twin = Machine { boot: "02b9".into(), ..machine(1) };
    let mut second = first.copy_on(&twin);
    other_disk(&mut second, &first);
    let wait = second.failing_cycle().await;
    assert!(matches!(&wait, SyncError::Busy { status: 503, .. }), "{wait}");
    assert!(wait.retry_after().unwrap() > Duration::from_secs(20), "{wait:?}");
    server.cut_connections();
    speaks(&first).await;
    server.clock.advance(SILENCE);
    assert_copied(&second.failing_cycle().await);
    assert_eq!(server.stored_checksums(&first), first.expected());
    told_of_copies(&server, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clone_on_the_same_boot_is_refused_and_its_writes_repaired() {
    let server = Server::start().await;
    let first = original(&server).await;
    let mut second = first.copy_on(&machine(1));
    other_disk(&mut second, &first);
    second.beat().await;
    second.cycle().await;
    assert_ne!(server.stored_checksums(&first), first.expected());
    server.cut_connections();
    speaks(&first).await;
    let refused = second.syncer.heartbeat(ControlAction::Notify, &[]).await;
    assert_copied(&refused.unwrap_err());
    first.repair().await;
    assert_eq!(server.stored_checksums(&first), first.expected());
    told_of_copies(&server, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_and_reboot_are_not_taken_for_clones() {
    let server = Server::start().await;
    let mut agent = original(&server).await;
    for boot in ["01b1", "01b1", "01b2", "01b3"] {
        let reboot = agent.machine.boot != boot;
        agent.machine.boot = boot.into();
        let mut next = agent.restart();
        next.write("/etc/f1", 1_000);
        if reboot {
            // The first instance sent no shutdown, as after a power cut.
            assert!(matches!(next.failing_cycle().await, SyncError::Busy { .. }));
            server.clock.advance(SILENCE);
        }
        next.cycle().await;
        assert_eq!(server.stored_checksums(&next), next.expected());
        agent = next;
    }
    agent.syncer.heartbeat(ControlAction::Shutdown, &[]).await.unwrap();
    agent.machine.boot = "01b4".into();
    let agent = agent.restart();
    agent.cycle().await;
    agent.beat().await;
    assert!(server.coverage_bodies("identity_cloned").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_or_lost_database_on_one_machine_matches_the_disk() {
    let server = Server::start().await;
    let agent = original(&server).await;
    let mut earlier = None;
    let mut agent = agent.restart_after(|folder| earlier = Some(copy(folder)));
    agent.write("/etc/later", 1);
    agent.cycle().await;
    let disk = agent.disk.clone();
    let mut agent = agent.restart_after(|folder| put_back(earlier.unwrap().path(), folder));
    agent.disk = disk;
    agent.write("/etc/later", 1);
    agent.beat().await;
    agent.repair().await;
    assert_eq!(server.stored_checksums(&agent), agent.expected());
    let mut agent = agent.restart_after(|folder| {
        for name in ["agent.db", "agent.db-wal", "agent.db-shm"] {
            let _ = fs::remove_file(folder.join(name));
        }
    });
    agent.disk.clear();
    agent.base("/etc", 50);
    agent.beat().await;
    agent.repair().await;
    assert_eq!(server.stored_checksums(&agent), agent.expected());
    assert!(server.coverage_bodies("identity_cloned").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn re_enrolled_clone_has_its_own_documents() {
    let server = Server::start().await;
    let first = original(&server).await;
    let mut second = first.copy_on(&machine(2));
    other_disk(&mut second, &first);
    assert_copied(&second.failing_cycle().await);
    let enrolment = server.enrolment(&server.token(1), "web-2", second.folder.path());
    second.id = sync::enroll(&enrolment).await.unwrap().id;
    let second = second.restart();
    second.beat().await;
    second.repair().await;
    assert_eq!(server.stored_checksums(&second), second.expected());
    assert_eq!(server.stored_checksums(&first), first.expected());
}
