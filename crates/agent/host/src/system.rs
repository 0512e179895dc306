//! This machine: host name, operating system, kernel.

use std::fs;

use model::AgentOs;

/// Returns the host name, or `localhost` if there is none.
pub fn hostname() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "localhost".into() } else { name }
}

/// Returns the operating system, from `/etc/os-release` (freedesktop's os-release(5)) and uname(2).
pub fn os() -> AgentOs {
    let release = fs::read_to_string("/etc/os-release")
        .or_else(|_| fs::read_to_string("/usr/lib/os-release"))
        .unwrap_or_default();
    let u = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    AgentOs {
        name: field(&release, "NAME").unwrap_or_else(|| text(u.sysname())),
        platform: field(&release, "ID").unwrap_or_else(|| "linux".into()),
        family: "linux".into(),
        version: field(&release, "VERSION_ID").unwrap_or_default(),
        arch: text(u.machine()),
        uname: [u.sysname(), u.nodename(), u.release(), u.version(), u.machine()]
            .map(text)
            .join(" |"),
        codename: field(&release, "VERSION_CODENAME").unwrap_or_default(),
    }
}

/// Returns the value of a key of os-release(5), without quotes.
fn field(release: &str, key: &str) -> Option<String> {
    release.lines().find_map(|line| {
        let value = line.strip_prefix(key)?.strip_prefix('=')?;
        Some(value.trim().trim_matches(['"', '\'']).to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn os_release_values_are_unquoted() {
        let text = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME=\"Debian GNU/Linux\"\nID=debian\n";
        assert_eq!(field(text, "NAME").as_deref(), Some("Debian GNU/Linux"));
        assert_eq!(field(text, "ID").as_deref(), Some("debian"));
        assert_eq!(field(text, "VERSION_ID"), None);
    }

    #[test]
    fn host_has_name_and_architecture() {
        assert!(!hostname().is_empty());
        assert!(!os().arch.is_empty());
    }
}
