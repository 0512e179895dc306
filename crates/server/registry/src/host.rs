//! The server's own host: its description, for agent 000, and the names and addresses under which
//! others reach it, for its certificate.

use std::fs;
use std::net::IpAddr;

use control::limits::SERVER_KEEPALIVE_S;
use model::{AgentId, AgentOs, AgentRecord, AgentStatus, Incarnation};
use nix::net::if_::InterfaceFlags;

const UNKNOWN: &str = "unknown";
/// Most addresses in a certificate, so that it fits into a handshake of few packets.
const ADDRESSES_MAX: usize = 32;
/// Beginnings of the names of interfaces between a host and its containers or virtual machines.
const BRIDGES: [&str; 9] =
    ["br-", "cali", "cni", "docker", "flannel", "lxc", "podman", "veth", "virbr"];

fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|t| !t.is_empty())
}

/// Returns the host's name.
pub(crate) fn name() -> String {
    line("/proc/sys/kernel/hostname").unwrap_or_else(|| "localhost".into())
}

/// Returns the names and addresses under which this host is reached: itself, its name with its
/// domain, and the addresses of interfaces that are up.
pub(crate) fn names() -> Vec<String> {
    let mut names = ["localhost", "127.0.0.1", "::1"].map(String::from).to_vec();
    names.extend([reached_name(), name()]);
    let found = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let mut addresses: Vec<IpAddr> = found
        .filter_map(|found| {
            let address = found.address?;
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            let address = v4.or_else(|| Some(IpAddr::V6(address.as_sockaddr_in6()?.ip())))?;
            let up = found.flags.contains(InterfaceFlags::IFF_UP);
            (up && is_reached(&found.interface_name, address)).then_some(address)
        })
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    names.extend(addresses.iter().take(ADDRESSES_MAX).map(IpAddr::to_string));
    names
}

/// Returns the host's name, with its domain if hosts(5) has it.
pub fn reached_name() -> String {
    let (own, hosts) = (name(), fs::read_to_string("/etc/hosts").unwrap_or_default());
    full_name(&hosts, &own).unwrap_or(own)
}

/// Returns the name with its domain of hosts(5), without asking a name server: the first name of
/// the line that has this one as an alias.
fn full_name(hosts: &str, name: &str) -> Option<String> {
    hosts.lines().find_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        let mut names = line.split_whitespace().skip(1);
        let first = names.next().filter(|first| first.contains('.'))?;
        names.any(|alias| alias == name).then(|| first.to_owned())
    })
}

/// Returns true if other hosts may reach this one under an interface's address.
fn is_reached(interface: &str, address: IpAddr) -> bool {
    let local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let bridge = BRIDGES.iter().any(|begin| interface.starts_with(begin));
    !(local || bridge || address.is_loopback() || address.is_unspecified())
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
        codename: release(&text, "VERSION_CODENAME").unwrap_or_default(),
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
    fn full_name_is_that_of_an_alias_in_the_hosts_file() {
        let hosts = "127.0.0.1 localhost\n127.0.1.1\tweb1.example.org web1 # own\n";
        assert_eq!(full_name(hosts, "web1").as_deref(), Some("web1.example.org"));
        assert_eq!(full_name(hosts, "own"), None);
        assert_eq!(full_name(hosts, "localhost"), None);
    }

    #[test]
    fn addresses_between_host_and_containers_are_left_out() {
        let is = |interface: &str, address: &str| is_reached(interface, address.parse().unwrap());
        assert!(is("eth0", "192.0.2.1") && is("enp1s0", "2001:db8::1") && is("br0", "10.0.0.1"));
        assert!(!is("docker0", "172.17.0.1") && !is("br-1f2e3d", "172.18.0.1"));
        assert!(!is("eth0", "169.254.1.1") && !is("eth0", "fe80::1") && !is("lo", "127.0.0.1"));
        assert!(names().len() >= 4);
    }

    #[test]
    fn os_release_values_parse_with_and_without_quotes() {
        let text = "NAME=\"Debian GNU/Linux\"\nID=debian\nVERSION_ID='12'\n";
        assert_eq!(release(text, "NAME").as_deref(), Some("Debian GNU/Linux"));
        assert_eq!(release(text, "ID").as_deref(), Some("debian"));
        assert_eq!(release(text, "VERSION_ID").as_deref(), Some("12"));
        assert_eq!(release(text, "BUILD_ID"), None);
    }
}
