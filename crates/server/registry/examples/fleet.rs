//! Creates a fleet and prints the cost of its common queries:
//! `cargo run --release -p holdfast-registry --example fleet [AGENTS]` (default 50,000).
//!
//! CPU time is that of the calling thread, from `/proc/thread-self/schedstat`.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a program for people"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use env::clock::{ManualClock, SystemClock};
use env::random::SystemRandom;
use model::{AgentId, AgentOs, AgentStatus};
use registry::{
    AgentColumn, AgentEnrolment, AgentInfo, AgentQuery, CommandKind, CommandOutcome, ControlStore,
    OutcomeState, Reader, Registry, RegistryOptions, Sort, WriteContext,
};

const PLATFORMS: [&str; 6] = ["debian", "ubuntu", "rocky", "alpine", "arch", "suse"];
const GROUPS: u32 = 20;
const REPEATS: u32 = 200;

fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn line(what: &str, repeats: u32, mut work: impl FnMut()) {
    let (wall, used) = (Instant::now(), cpu());
    (0..repeats).for_each(|_| work());
    let per = |total: Duration| total.as_secs_f64() * 1e3 / f64::from(repeats);
    let (used, wall) = (per(cpu().saturating_sub(used)), per(wall.elapsed()));
    println!("{what:<44} {used:>9.3} ms CPU {wall:>9.3} ms wall");
}

fn info(n: u32) -> AgentInfo {
    AgentInfo {
        version: Some(format!("Holdfast v0.{}.0", n % 5)),
        hostname: Some(format!("host-{n}")),
        ip: Some(format!("10.{}.{}.{}", n >> 16, n >> 8 & 255, n & 255)),
        os: Some(AgentOs {
            platform: PLATFORMS[n as usize % PLATFORMS.len()].into(),
            version: "12".into(),
            ..AgentOs::default()
        }),
    }
}

fn create_agents(registry: &Registry, clock: &ManualClock, agents: u32) -> Vec<AgentId> {
    for group in 0..GROUPS {
        registry.create_group(&WriteContext::server(), &format!("group-{group}")).unwrap();
    }
    let requests: Vec<_> = (0..agents)
        .map(|n| {
            let groups = vec![format!("group-{}", n % GROUPS), "default".into()];
            let name = format!("agent-{n:06}");
            (None, AgentEnrolment { name, groups, ..AgentEnrolment::default() })
        })
        .collect();
    let ids = registry.add_agents(&WriteContext::server(), &requests).unwrap();
    // A tenth is disconnected, a tenth has never connected, some are pending, and the rest is
    // active.
    for id in ids.iter().filter(|id| id.0 % 10 == 1) {
        registry.keepalive(*id, &info(id.0));
    }
    registry.flush().unwrap();
    clock.advance(Duration::from_secs(1_000));
    registry.tick().unwrap();
    for id in &ids {
        match id.0 % 10 {
            0 | 1 => {}
            2 if id.0 % 100 == 2 => _ = registry.startup(*id, &info(id.0)),
            _ => _ = registry.keepalive(*id, &info(id.0)),
        }
    }
    registry.flush().unwrap();
    ids
}

fn questions(registry: &Registry) {
    let all = AgentQuery::default;
    let list = |what: &str, query: AgentQuery| {
        line(what, REPEATS, || drop(registry.agents(&Reader::server(), &query).unwrap()));
    };
    line("summary/status", REPEATS, || _ = registry.status_summary().unwrap());
    line("summary", REPEATS, || drop(registry.summary(&Reader::server()).unwrap()));
    list("agents limit=500", all());
    list("agents limit=1", AgentQuery { limit: 1, ..all() });
    list("agents limit=500 offset=40000", AgentQuery { offset: 40_000, ..all() });
    let status = vec![AgentStatus::Active];
    list("agents status=active limit=500", AgentQuery { status, ..all() });
    list("agents group=group-7 limit=500", AgentQuery { group: vec!["group-7".into()], ..all() });
    let os_platform = vec!["debian".into()];
    list("agents os.platform=debian limit=500", AgentQuery { os_platform, ..all() });
    let sort = vec![Sort { column: AgentColumn::Version, descending: true }];
    list("agents sort=-version limit=500", AgentQuery { sort, ..all() });
    let search = Some("agent-0419".into());
    list("agents search=agent-0419 limit=500", AgentQuery { search, ..all() });
    line("all agent ids", REPEATS, || drop(registry.agent_ids(&Reader::server(), &all()).unwrap()));
}

fn heartbeats(registry: &Registry, clock: &ManualClock, ids: &[AgentId]) {
    let nothing = AgentInfo::default();
    line("keepalives of all agents, in memory", 5, || {
        for id in ids {
            registry.keepalive(*id, &nothing);
        }
    });
    line("flush of them", 1, || _ = registry.flush().unwrap());
    clock.advance(Duration::from_secs(1));
    line("tick without news", REPEATS, || _ = registry.tick().unwrap());
    let mut id = 0;
    line("restart of all agents, to durable", 5, || {
        id = registry
            .create_command(&WriteContext::server(), CommandKind::Restart, ids, "admin")
            .unwrap();
    });
    line("hand-out of it to all agents", 1, || {
        for agent in ids {
            registry.pending_commands(*agent);
        }
    });
    let done = CommandOutcome { state: OutcomeState::Acknowledged, detail: String::new() };
    line("their outcomes, written and counted", 1, || {
        for agent in ids {
            registry.command_outcome(*agent, id, &done);
        }
        let counts = registry.command(&Reader::server(), id).unwrap().unwrap().counts;
        assert_eq!(counts.acknowledged, ids.len() as u64);
    });
}

fn main() {
    let agents = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(50_000);
    let folder = tempfile::TempDir::new().unwrap();
    let clock = ManualClock::at(env::clock::Clock::now_us(&SystemClock::new()));
    let open = || {
        let store = ControlStore::open(&folder.path().join("registry.db")).unwrap();
        let (store, clock) = (Arc::new(store), Arc::new(clock.clone()));
        let options = RegistryOptions::default();
        Registry::open(store, folder.path(), clock, Arc::new(SystemRandom), options).unwrap()
    };
    let registry = open();
    let mut ids = Vec::new();
    line(&format!("{agents} agents made, with groups and words"), 1, || {
        ids = create_agents(&registry, &clock, agents);
    });
    println!("{:?}", registry.status_summary().unwrap());
    questions(&registry);
    heartbeats(&registry, &clock, &ids);
    drop(registry);
    line("open", 1, || drop(open()));
    let bytes = std::fs::metadata(folder.path().join("registry.db")).unwrap().len();
    println!("registry.db {:.1} MB", bytes as f64 / 1e6);
}
