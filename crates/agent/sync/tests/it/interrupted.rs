//! Enrolments that fail on the agent's disk or lose their answer, and are repeated.

use std::sync::Arc;

use crate::common::Server;
use env::files::{Failure, Fault, SimDisk};
use model::AgentId;
use registry::{AgentQuery, IdentityError, Reader, WriteContext};
use sync::{EnrollOptions, Identity, IdentityFolder, SyncError, enroll};

/// Path of the agent's folder on a simulated disk.
const FOLDER: &str = "agent";

fn folder(disk: &SimDisk) -> IdentityFolder {
    IdentityFolder::on(Arc::new(disk.clone()), FOLDER)
}

/// Does what `holdfast enroll` does: an agent that is enrolled already is not enrolled again.
async fn command(
    server: &Server,
    disk: &SimDisk,
    (token, name): (&str, &str),
) -> Result<Identity, SyncError> {
    let folder = folder(disk);
    if let Some(identity) = folder.enrolled()? {
        return Ok(identity);
    }
    let options = EnrollOptions { folder, ..server.enrolment(token, name, FOLDER.as_ref()) };
    enroll(&options).await
}

/// Returns the numbers of the agents with this name.
fn agents_named(server: &Server, name: &str) -> Vec<AgentId> {
    let query = AgentQuery { name: vec![name.into()], ..AgentQuery::default() };
    server.registry().agent_ids(&Reader::server(), &query).unwrap()
}

/// Fails the `call`-th change of the agent's disk. Returns the error and the disk as the next
/// attempt finds it, or `None` if the enrolment needs fewer calls.
async fn failing_enrolment(
    server: &Server,
    fault: Fault,
    what: (&str, &str),
) -> Option<(SyncError, SimDisk)> {
    let disk = SimDisk::new(fault.call);
    disk.fail(&[fault]);
    let error = command(server, &disk, what).await.err()?;
    let disk = if disk.is_off() { disk.crash(fault.call) } else { disk };
    Some((error, disk))
}

/// The enrolment needs about this many changes of the disk, so that a test that injects nothing
/// fails.
const CALLS_MIN: u64 = 20;

/// Repeats an enrolment after a failure of the agent's disk. Returns false if it needs fewer calls
/// than the one that was to fail.
async fn repeated_after(server: &Server, fault: Fault) -> bool {
    // The second use shows how many were counted; a token with one use is used up.
    let uses = 1 + fault.call % 2;
    let (token, name) = (server.token(uses as u32), format!("{:?}-{}", fault.failure, fault.call));
    let Some((error, disk)) = failing_enrolment(server, fault, (&token, &name)).await else {
        return false;
    };
    assert!(matches!(error, SyncError::File { .. }), "{name}: {error}");
    let again = command(server, &disk, (&token, &name)).await;
    let identity = again.unwrap_or_else(|again| panic!("{name}: {error}, then {again}"));
    assert_eq!(folder(&disk).enrolled().unwrap(), Some(identity.clone()), "{name}");
    assert_eq!(agents_named(server, &name), [identity.id]);
    let shown = folder(&disk).certificate().expect("key and certificate belong together");
    let registry = server.registry();
    assert_eq!(registry.identify(&shown).unwrap().agent, identity.id);
    let left = registry.enrolment_tokens(&Reader::server()).unwrap();
    let uses_left: Vec<u32> = left.iter().map(|row| row.uses_left).collect();
    assert_eq!(uses_left, vec![1; usize::from(uses == 2)], "{name}");
    for row in left {
        registry.revoke_enrolment_token(&WriteContext::server(), &row.digest).unwrap();
    }
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn enrolment_that_fails_at_any_disk_call_can_be_repeated() {
    for failure in [Failure::Io, Failure::Full, Failure::PowerCut] {
        let server = Server::start().await;
        let mut call = 1;
        while repeated_after(&server, Fault { call, failure }).await {
            call += 1;
        }
        assert!(call > CALLS_MIN, "{failure:?}: only {call} calls");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn enrolment_whose_answer_is_lost_can_be_repeated() {
    let server = Server::start().await;
    let (token, disk) = (server.token(1), SimDisk::new(1));
    let mut bytes = 0;
    while agents_named(&server, "web").is_empty() {
        // Bytes of the handshake pass, until the cut is in the answer.
        bytes += 200;
        assert!(bytes < 20_000, "no answer was cut");
        server.proxy.cut_answers_after(bytes);
        let error = command(&server, &disk, (&token, "web")).await.unwrap_err();
        assert!(error.is_transient(), "{bytes}: {error}");
    }
    let identity = command(&server, &disk, (&token, "web")).await.unwrap();
    assert_eq!(agents_named(&server, "web"), [identity.id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_machine_cannot_take_over_a_failed_enrolment() {
    let server = Server::start().await;
    let token = server.token(2);
    let fault = Fault { call: CALLS_MIN, failure: Failure::Io };
    let (_, disk) = failing_enrolment(&server, fault, (&token, "web")).await.unwrap();
    let refused = command(&server, &SimDisk::new(2), (&token, "web")).await.unwrap_err();
    assert!(matches!(refused, SyncError::Refused { status: 409, .. }), "{refused}");
    let first = folder(&disk).certificate();
    command(&server, &disk, (&token, "web")).await.unwrap();
    if let Some(first) = first {
        let refused = server.registry().identify(&first).unwrap_err();
        assert_eq!(refused, IdentityError::Superseded, "the lost certificate cannot be used");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn key_of_an_enrolment_is_removed_when_the_agent_starts() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    enroll(&server.enrolment(&server.token(1), "web", folder.path())).await.unwrap();
    let key = folder.path().join("key.enrol.pem");
    assert!(!key.exists());
    // A power cut brought it back.
    std::fs::copy(folder.path().join("key.pem"), &key).unwrap();
    assert!(IdentityFolder::new(folder.path()).certificate().is_some());
    assert!(!key.exists());
}
