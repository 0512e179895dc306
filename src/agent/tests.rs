//! A part of the agent that dies ends the agent by its name: nothing goes on unwatched.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use detect::Rules;
use env::clock::{Clock, SystemClock};
use sync::{EnrollOptions, IdentityFolder};

use super::scan::Order;
use super::{Agent, AgentSettings, Begin, Console, Ended};
use crate::config::{
    AgentsConfig, ApiConfig, InventoryConfig, MetricsConfig, QueueConfig, ScanConfig, ServerConfig,
    SyncConfig,
};
use crate::server::Server;

/// The clock of the system, until the scanning thread finds it broken.
struct BreakingClock {
    real: SystemClock,
    broken: AtomicBool,
}

impl BreakingClock {
    fn look(&self) {
        let scanning = thread::current().name() == Some("scan");
        assert!(!scanning || !self.broken.load(Ordering::SeqCst), "the clock broke");
    }
}

impl Clock for BreakingClock {
    fn now_us(&self) -> u64 {
        self.look();
        self.real.now_us()
    }

    fn monotonic(&self) -> Duration {
        self.look();
        self.real.monotonic()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_thread_that_dies_ends_the_agent_by_name() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    let (anywhere, tree) = ("127.0.0.1:0".parse().unwrap(), folder.path().join("tree"));
    std::fs::create_dir(&tree).unwrap();
    let config = ServerConfig {
        data: folder.path().join("server"),
        api: ApiConfig { listen: anywhere, plain_http: true, ..ApiConfig::default() },
        agents: AgentsConfig { listen: anywhere, ..AgentsConfig::default() },
        ..ServerConfig::default()
    };
    let (server, started) = Server::start(&config).await.unwrap();
    let identity = IdentityFolder::new(folder.path().join("agent"));
    let options = EnrollOptions {
        server_url: format!("https://{}", started.agents.unwrap()),
        token: server.registry.create_enrolment_token(&[], 1, 600).unwrap(),
        name: "breaking".into(),
        groups: Vec::new(),
        folder: identity.clone(),
    };
    sync::enroll(&options).await.unwrap();
    let settings = AgentSettings {
        folder: identity.path().to_owned(),
        rules: Rules::of_paths([tree]),
        scan: ScanConfig::default(),
        inventory: InventoryConfig::default(),
        metrics: MetricsConfig::default(),
        queue: QueueConfig::default(),
        sync: SyncConfig::default(),
    };
    let clock =
        Arc::new(BreakingClock { real: SystemClock::new(), broken: AtomicBool::new(false) });
    let mut agent =
        Agent::start_at(&settings, Console::new(), clock.clone(), Begin::Start).unwrap();
    clock.broken.store(true, Ordering::SeqCst);
    // It may be in its first scan or wait for an order: either way it looks at the clock.
    let _ = agent.shared.orders.try_send(Order::Scan(1));
    let ended = agent.ended().await.unwrap();
    assert_eq!(ended, Ended::Broken("scan thread"));
    let error = ended.error().unwrap().to_string();
    assert!(error.contains("scan thread") && error.contains("start the agent again"), "{error}");
    // What can still be closed is.
    agent.stop().await.unwrap();
    server.stop().await.unwrap();
}
