//! The description of the server's own host, for agent 000.

use std::fs;

use control::limits::SERVER_KEEPALIVE_S;
use model::{AgentId, AgentOs, AgentRecord, AgentStatus, Incarnation};

const UNKNOWN: &str = "unknown";

fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|t| !t.is_empty())
}

/// Returns the host's name.
pub(crate) fn name() -> String {
    line("/proc/sys/kernel/hostname").unwrap_or_else(|| "localhost".into())
}

/// Returns a value of `os-release` (the format is that of shell assignments).
fn release(text: &str, key: &str) -> Option<String> {
    text.lines()
        .filter_map(|l| l.split_once('='))
        .find(|(k, _)| *k == key)
        .map(|(_, v)| v.trim_matches(['"', '\'']).to_owned())
}

fn os() -> AgentOs {
    let text = ["/etc/os-release", "/usr/lib/os-release"]
        .into_iter()
        .find_map(|p| fs::read_to_string(p).ok())
        .unwrap_or_default();
    let kernel = |file: &str| line(&format!("/proc/sys/kernel/{file}")).unwrap_or_default();
    let arch = std::env::consts::ARCH.to_owned();
    AgentOs {
        name: release(&text, "NAME").unwrap_or_else(|| UNKNOWN.into()),
        platform: release(&text, "ID").unwrap_or_else(|| std::env::consts::OS.into()),
        family: std::env::consts::OS.into(),
        version: release(&text, "VERSION_ID").unwrap_or_default(),
        uname: format!(
            "{} {} {} {} {arch}",
            kernel("ostype"),
            name(),
            kernel("osrelease"),
            kernel("version")
        ),
        arch,
    }
}

/// Returns the record of agent 000.
pub(crate) fn record(now_s: i64) -> AgentRecord {
    AgentRecord {
        id: AgentId::SERVER,
        incarnation: Incarnation(0),
        name: name(),
        register_ip: "127.0.0.1".into(),
        ip: Some("127.0.0.1".into()),
        version: Some(format!("Holdfast v{}", env!("CARGO_PKG_VERSION"))),
        hostname: Some(name()),
        os: Some(os()),
        groups: Vec::new(),
        status: AgentStatus::Active,
        added_at_s: now_s,
        keepalive_at_s: Some(SERVER_KEEPALIVE_S),
        disconnected_at_s: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn os_release_values_parse_with_and_without_quotes() {
        let text = "NAME=\"Debian GNU/Linux\"\nID=debian\nVERSION_ID='12'\n";
        assert_eq!(release(text, "NAME").as_deref(), Some("Debian GNU/Linux"));
        assert_eq!(release(text, "ID").as_deref(), Some("debian"));
        assert_eq!(release(text, "VERSION_ID").as_deref(), Some("12"));
        assert_eq!(release(text, "BUILD_ID"), None);
    }
}
