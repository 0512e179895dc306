//! A check stays due over restarts, and until a check is done that began after the reason was
//! raised.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Agent, SESSION_BYTES, Server, files, machine, sync_options};
use env::clock::{Clock, ManualClock};
use env::random::SystemRandom;
use model::document::NoNames;
use queue::{Queue, QueueOptions};
use sync::{IdentityFolder, SurplusPolicy, Syncer};

/// If a check cannot be done at present, its reason is not raised again by every heartbeat.
#[tokio::test(flavor = "multi_thread")]
async fn check_reason_is_raised_once_until_check_is_done() {
    let server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.base("/etc", 3);
    agent.cycle().await;
    agent.queue.meta_set("sync.store", b"another").unwrap();
    agent.beat().await;
    let reason = agent.syncer.check_due().unwrap();
    assert!(reason.contains("another one"), "{reason}");
    agent.syncer.set_check_due(Some("a check was put off"));
    agent.beat().await;
    assert_eq!(agent.syncer.check_due(), Some("a check was put off"));
    // Once a check is done, the reason may be raised again.
    agent.repair().await;
    agent.queue.meta_set("sync.store", b"a third").unwrap();
    agent.beat().await;
    assert_eq!(agent.syncer.check_due(), Some(reason));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_interrupted_between_datasets_stays_due() {
    let server = Server::start().await;
    let mut agent = server.agent("web").await;
    agent.base("/etc", 5);
    agent.cycle().await;
    agent.syncer.set_check_due(Some("the test asks for it"));
    let _begun = agent.syncer.begin_check();
    let first = agent.syncer.check_part(&files(), SurplusPolicy::Remove).await.unwrap();
    assert!(first.report.matched && first.store.is_some());
    // The agent is stopped before the next dataset.
    assert!(agent.restart().syncer.check_due().is_some());
}

/// A clock that calls a function once, when the queue begins a read.
struct Hooked {
    clock: ManualClock,
    hook: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Clock for Hooked {
    fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    fn monotonic(&self) -> Duration {
        let hook = self.hook.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
        }
        self.clock.monotonic()
    }
}

/// A reason raised just before a check ends is still known after a restart.
#[tokio::test(flavor = "multi_thread")]
async fn check_reason_raised_while_a_check_completes_is_kept() {
    let server = Server::start().await;
    let Agent { folder, id, clock, queue, syncer, .. } = server.agent("web").await;
    drop(syncer);
    queue.close().unwrap();
    let hooked = Arc::new(Hooked { clock: clock.clone(), hook: Mutex::default() });
    let path = folder.path().join("agent.db");
    let (queue, _) =
        Queue::open(&path, QueueOptions::default(), hooked.clone(), Arc::new(SystemRandom))
            .unwrap();
    let identity = IdentityFolder::new(folder.path());
    let options = sync_options(&machine(1), SESSION_BYTES);
    let syncer =
        Syncer::open(queue.clone(), identity, options, Arc::new(NoNames), hooked.clone()).unwrap();
    let syncer = Arc::new(syncer);
    syncer.set_check_due(Some("before"));
    let begun = syncer.begin_check();
    let raising = {
        let syncer = Arc::clone(&syncer);
        move || {
            let raise = move || syncer.set_check_due(Some("came up meanwhile"));
            std::thread::spawn(raise).join().unwrap();
        }
    };
    *hooked.hook.lock().unwrap() = Some(Box::new(raising));
    syncer.end_check(begun, "a store".into()).await.unwrap();
    assert!(hooked.hook.lock().unwrap().is_none(), "it came in between");
    assert_eq!(syncer.check_due(), Some("came up meanwhile"));
    drop(syncer);
    queue.close().unwrap();
    let agent = Agent::open(folder, id, clock, SESSION_BYTES);
    assert!(agent.syncer.check_due().is_some(), "a restart knows of it");
}
