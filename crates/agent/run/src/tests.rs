//! Failures that an agent survives, with a real server: a thread that panics, a configuration that
//! does not work, and a reload while outcomes are pending.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use detect::Rules;
use env::clock::{Clock, SystemClock};
use registry::{TokenTerms, WriteContext};
use sync::{EnrollOptions, IdentityFolder};
use telemetry::MetricsConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

mod held;
mod metrics;
mod refused;
mod server;

use super::{Agent, AgentSettings, Console, EndReason};
use crate::config::{InventoryConfig, QueueConfig, RealtimeConfig, ScanConfig, SyncConfig};
use crate::shared::{Begin, Leftovers, ScanCommand};
use crate::start::Start;
use server::Server;

/// Longest wait for an expected event on a busy machine.
const PATIENCE: Duration = Duration::from_mins(5);

/// The system's clock, which panics in the scanning thread on request.
struct BreakingClock {
    real: SystemClock,
    broken: AtomicBool,
}

impl BreakingClock {
    fn fail_if_broken(&self) {
        let scanning = thread::current().name() == Some("scan");
        assert!(!scanning || !self.broken.load(Ordering::SeqCst), "the clock broke");
    }
}

impl Clock for BreakingClock {
    fn now_us(&self) -> u64 {
        self.fail_if_broken();
        self.real.now_us()
    }

    fn monotonic(&self) -> Duration {
        self.fail_if_broken();
        self.real.monotonic()
    }
}

/// The system's clock. Its monotonic time can be advanced, and it blocks the scanning thread on
/// request.
struct HangingClock {
    real: SystemClock,
    ahead_us: AtomicU64,
    hangs: Mutex<bool>,
    changed: Condvar,
}

impl Default for HangingClock {
    fn default() -> Self {
        Self {
            real: SystemClock::new(),
            ahead_us: AtomicU64::new(0),
            hangs: Mutex::new(false),
            changed: Condvar::new(),
        }
    }
}

impl HangingClock {
    fn hang(&self) {
        *self.hangs.lock().unwrap() = true;
    }

    fn go_on(&self) {
        *self.hangs.lock().unwrap() = false;
        self.changed.notify_all();
    }

    fn advance(&self, by: Duration) {
        self.ahead_us.fetch_add(by.as_micros() as u64, Ordering::SeqCst);
    }

    fn wait_while_hanging(&self) {
        if thread::current().name() == Some("scan") {
            let hangs = self.hangs.lock().unwrap();
            drop(self.changed.wait_while(hangs, |hangs| *hangs).unwrap());
        }
    }
}

impl Clock for HangingClock {
    fn now_us(&self) -> u64 {
        self.wait_while_hanging();
        self.real.now_us()
    }

    fn monotonic(&self) -> Duration {
        self.wait_while_hanging();
        self.real.monotonic() + Duration::from_micros(self.ahead_us.load(Ordering::SeqCst))
    }
}

fn start(settings: &AgentSettings, clock: Arc<dyn Clock>) -> Agent {
    let left = Leftovers::default();
    Start { own: settings, console: Console::new(), clock, begin: Begin::Start, left }
        .run()
        .unwrap()
}

/// Waits until the condition holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect(what);
}

/// Returns the size of a file according to the test server, bytes.
fn stored_bytes(folder: &Path, file: &Path) -> Option<usize> {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let db = rusqlite::Connection::open_with_flags(folder.join("server/state.db"), flags).unwrap();
    let size = "SELECT size FROM document WHERE path = ?1";
    let found = db.query_row(size, [file.to_str().unwrap()], |row| row.get::<_, i64>(0));
    found.ok().map(|bytes| bytes as usize)
}

/// Returns a server and the settings of an agent that is enrolled with it.
async fn house(folder: &Path) -> (Server, AgentSettings) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tree = folder.join("tree");
    std::fs::create_dir(&tree).unwrap();
    let server = Server::start(&folder.join("server"), "127.0.0.1:0".parse().unwrap());
    let identity = IdentityFolder::new(folder.join("agent"));
    let options = EnrollOptions {
        server_url: format!("https://{}", server.address()),
        token: server
            .registry
            .create_enrolment_token(&WriteContext::server(), &TokenTerms::new(1, 600))
            .unwrap(),
        name: "breaking".into(),
        groups: Vec::new(),
        folder: identity.clone(),
    };
    sync::enroll(&options).await.unwrap();
    let settings = AgentSettings {
        folder: identity.path().to_owned(),
        excluded: Vec::new(),
        rules: Rules::of_paths([tree]),
        scan: ScanConfig::default(),
        realtime: RealtimeConfig::default(),
        inventory: InventoryConfig::default(),
        metrics: MetricsConfig { enabled: false, ..MetricsConfig::default() },
        queue: QueueConfig::default(),
        sync: SyncConfig::default(),
    };
    (server, settings)
}

#[tokio::test(flavor = "multi_thread")]
async fn panicked_scan_thread_ends_agent_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let (server, settings) = house(folder.path()).await;
    let clock =
        Arc::new(BreakingClock { real: SystemClock::new(), broken: AtomicBool::new(false) });
    let start = Start {
        own: &settings,
        console: Console::new(),
        clock: clock.clone(),
        begin: Begin::Start,
        left: Leftovers::default(),
    };
    let mut agent = start.run().unwrap();
    clock.broken.store(true, Ordering::SeqCst);
    // The thread reads the clock both in its first scan and after a command.
    agent.shared.rescans.lock().push(1);
    let _ = agent.shared.scan_commands.try_send(ScanCommand::Wake);
    let ended = agent.ended().await.unwrap();
    assert_eq!(ended, EndReason::Broken("scan thread"));
    let error = ended.error().unwrap().to_string();
    assert!(error.contains("scan thread") && error.contains("start the agent again"), "{error}");
    // Everything that can still be closed is closed.
    agent.stop().await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_config_falls_back_to_the_previous_and_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (server, settings) = house(folder.path()).await;
    // A running server would answer that nothing is configured.
    server.stop().await;
    let told = |agent: &Agent| agent.shared.syncer.config();
    let good = "[scan]\nthreads = 2\n";
    super::group::store(&settings.folder, good).unwrap();
    let agent = Agent::start(&settings, Console::new()).unwrap();
    assert_eq!(told(&agent).sum, ::settings::sum(good));
    let mut agent = agent;
    for bad in ["torn [[wat", "[scan]\nthreads = 200\n"] {
        super::group::store(&settings.folder, bad).unwrap();
        agent = agent.reload(&settings).await.unwrap();
        let told = told(&agent);
        assert_eq!((told.sum, told.refused), (::settings::sum(good), ::settings::sum(bad)));
        assert!(!told.detail.is_empty());
    }
    agent.stop().await.unwrap();
    // A start falls back in the same way, and uses no group configuration if the last one fails as
    // well.
    let agent = Agent::start(&settings, Console::new()).unwrap();
    assert_eq!(told(&agent).sum, ::settings::sum(good));
    agent.stop().await.unwrap();
    super::group::note_running(&settings.folder, "also torn [");
    let agent = Agent::start(&settings, Console::new()).unwrap();
    assert_eq!(told(&agent).sum, "");
    assert!(!told(&agent).refused.is_empty());
    agent.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_keeps_pending_restart_and_unreported_outcomes() {
    let folder = tempfile::tempdir().unwrap();
    let (server, settings) = house(folder.path()).await;
    server.stop().await;
    let agent = Agent::start(&settings, Console::new()).unwrap();
    let outcome =
        link::json::ControlOutcome { id: 7, outcome: "done".into(), detail: "3 files".into() };
    agent.shared.outcomes.lock().push(outcome.clone());
    agent.shared.ended.try_send(EndReason::Restart).unwrap();
    let mut agent = agent.reload(&settings).await.unwrap();
    assert_eq!(agent.ended().await, Some(EndReason::Restart));
    let left = agent.close(false).await.unwrap();
    assert_eq!(left.outcomes, [outcome]);
    // So does a rescan that was accepted and not carried out.
    let agent = Agent::start(&settings, Console::new()).unwrap();
    agent.shared.rescans.lock().extend([9, 10]);
    let agent = agent.reload(&settings).await.unwrap();
    let answered = || agent.shared.outcomes.lock().iter().any(|outcome| outcome.id == 10);
    let all = async {
        while !answered() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(10), all).await.unwrap();
    assert!(agent.shared.rescans.lock().is_empty());
    agent.stop().await.unwrap();
    // A restart command whose outcome is not reported yet survives a reload as well.
    let agent = Agent::start(&settings, Console::new()).unwrap();
    agent.shared.restarting.store(8, Ordering::SeqCst);
    let mut agent = agent.reload(&settings).await.unwrap();
    assert_eq!(agent.ended().await, Some(EndReason::Restart));
    agent.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_command_is_reported_again_after_a_lost_response() {
    let folder = tempfile::tempdir().unwrap();
    let (server, mut settings) = house(folder.path()).await;
    settings.sync.heartbeat = Duration::from_millis(200);
    let url = IdentityFolder::new(&settings.folder).load().unwrap().unwrap().server_url;
    server.stop().await;
    let mut agent = Agent::start(&settings, Console::new()).unwrap();
    // The outcome was sent, but the server's answer never arrived.
    agent.shared.restarting.store(7, Ordering::SeqCst);
    let outcome =
        link::json::ControlOutcome { id: 7, outcome: "done".into(), detail: "restarting".into() };
    agent.shared.outcomes.lock().push(outcome);
    let listen = url.trim_start_matches("https://").parse().unwrap();
    let server = Server::start(&folder.path().join("server"), listen);
    assert_eq!(agent.ended().await, Some(EndReason::Restart));
    agent.stop().await.unwrap();
    server.stop().await;
}

/// A connection that forwards everything until it is set to drop all packets.
#[derive(Clone, Default)]
struct Link {
    swallows: Arc<AtomicBool>,
    swallowed: Arc<AtomicBool>,
}

impl Link {
    /// Forwards connections to that address; returns the URL at which the connection begins.
    async fn lead_to(&self, to: String) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let line = self.clone();
        tokio::spawn(async move {
            while let Ok((agent, _)) = listener.accept().await {
                let server = TcpStream::connect(&to).await.unwrap();
                tokio::spawn(line.clone().carry(agent, server));
            }
        });
        url
    }

    async fn carry(self, mut agent: TcpStream, mut server: TcpStream) {
        let (from_agent, mut to_agent) = agent.split();
        let (mut from_server, to_server) = server.split();
        tokio::select! {
            _ = tokio::io::copy(&mut from_server, &mut to_agent) => {}
            _ = self.requests(from_agent, to_server) => {}
        }
    }

    async fn requests(&self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> io::Result<()> {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let n @ 1.. = from.read(&mut buffer).await? else { return Ok(()) };
            if self.swallows.load(Ordering::SeqCst) {
                self.swallowed.store(true, Ordering::SeqCst);
                return std::future::pending().await;
            }
            to.write_all(&buffer[..n]).await?;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_keeps_outcomes_when_heartbeat_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let (server, mut settings) = house(folder.path()).await;
    settings.sync.heartbeat = Duration::from_millis(100);
    let identity = IdentityFolder::new(&settings.folder);
    let url = identity.load().unwrap().unwrap().server_url;
    let to = url.trim_start_matches("https://").to_owned();
    let line = Link::default();
    identity.set_server_url(&line.lead_to(to).await).unwrap();
    let agent = Agent::start(&settings, Console::new()).unwrap();
    let outcome =
        link::json::ControlOutcome { id: 7, outcome: "done".into(), detail: "3 files".into() };
    while !agent.shared.scanned.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    line.swallows.store(true, Ordering::SeqCst);
    agent.shared.outcomes.lock().push(outcome.clone());
    agent.shared.beat.notify_one();
    while !line.swallowed.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Waiting for the answer would take twice as long.
    let closed = tokio::time::timeout(Duration::from_mins(1), agent.close(true)).await;
    assert_eq!(closed.unwrap().unwrap().outcomes, [outcome]);
    server.stop().await;
}
