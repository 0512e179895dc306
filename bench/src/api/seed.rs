//! A fleet that exists before the server starts, written directly into a new `registry.db`.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use control::{ControlStore, InfoRow, LivenessRow, NewAgent, StatusCode, WriteContext};
use model::{AgentId, AgentOs, AgentStatus, Incarnation};

const GROUPS: u32 = 20;
const PLATFORMS: [(&str, &str, &str); 6] = [
    ("Debian GNU/Linux", "debian", "12"),
    ("Ubuntu", "ubuntu", "24.04"),
    ("Rocky Linux", "rocky", "9.4"),
    ("Alpine Linux", "alpine", "3.20"),
    ("Arch Linux", "arch", ""),
    ("SUSE Linux", "sles", "15.5"),
];
/// Agents written in one transaction.
pub const BATCH: u32 = 10_000;

/// The share of a fleet that is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// Eight of ten active, one disconnected, one never connected; a few pending.
    Mixed,
    /// All active.
    Active,
    /// All disconnected.
    Silent,
}

fn status(mix: Mix, n: u32) -> AgentStatus {
    match (mix, n % 10) {
        (Mix::Silent, _) | (Mix::Mixed, 1) => AgentStatus::Disconnected,
        (Mix::Active, _) => AgentStatus::Active,
        (Mix::Mixed, 0) => AgentStatus::NeverConnected,
        (Mix::Mixed, 2) if n % 100 == 2 => AgentStatus::Pending,
        (Mix::Mixed, _) => AgentStatus::Active,
    }
}

/// Creates the folder with this number of agents; their numbers are 1 to `agents`.
pub fn seed(folder: &Path, agents: u32, mix: Mix) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    let file = folder.join("registry.db");
    let store = ControlStore::open(&file).with_context(|| file.display().to_string())?;
    let now_s = std::time::UNIX_EPOCH.elapsed()?.as_secs() as i64;
    for group in 0..GROUPS {
        store.create_group(&WriteContext::server(), &format!("group-{group:02}"), now_s)?;
    }
    for start in (1..=agents).step_by(BATCH as usize) {
        let end = agents.min(start + BATCH - 1);
        let new: Vec<NewAgent> = (start..=end).map(|n| agent(n, now_s)).collect();
        store.add_agents(&WriteContext::server(), &new)?;
        let rows: Vec<LivenessRow> =
            (start..=end).filter_map(|n| liveness(n, mix, now_s)).collect();
        store.save_liveness(&rows)?;
    }
    Ok(store.checkpoint()?)
}

fn agent(n: u32, now_s: i64) -> NewAgent {
    NewAgent {
        id: Some(AgentId(n)),
        name: format!("agent-{n:06}"),
        register_ip: "any".into(),
        groups: vec!["default".into(), format!("group-{:02}", n % GROUPS)],
        incarnation: Incarnation(u64::from(n)),
        client_key: None,
        ephemeral_s: None,
        now_s: now_s - 86_400,
    }
}

fn liveness(n: u32, mix: Mix, now_s: i64) -> Option<LivenessRow> {
    let status = status(mix, n);
    if status == AgentStatus::NeverConnected {
        return None;
    }
    let silent = status == AgentStatus::Disconnected;
    let (name, platform, version) = PLATFORMS[n as usize % PLATFORMS.len()];
    Some(LivenessRow {
        id: AgentId(n),
        incarnation: Incarnation(u64::from(n)),
        status,
        status_code: if silent { StatusCode::NoKeepalive } else { StatusCode::Ok },
        keepalive_at_s: Some(now_s - if silent { 7_200 } else { 5 }),
        disconnected_at_s: silent.then_some(now_s - 6_300),
        info: Some(InfoRow {
            version: Some(format!("Holdfast v0.{}.0", n % 4)),
            hostname: Some(format!("host-{n:06}")),
            ip: Some(format!("10.{}.{}.{}", n >> 16 & 255, n >> 8 & 255, n & 255)),
            os: Some(AgentOs {
                name: name.into(),
                platform: platform.into(),
                family: "linux".into(),
                version: version.into(),
                arch: "x86_64".into(),
                uname: format!("Linux |host-{n:06} |6.1.0-18-amd64 |x86_64"),
                codename: String::new(),
            }),
        }),
    })
}
