//! Changes that open a door: privileges of a program, and files that decide who may log in or what
//! runs. A tool that made one is no reason to leave it off the list of the unexplained.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use model::{Cause, CauseKind, Change, Kind, Observation};

use crate::account::Account;
use crate::{limits, own};

/// Bits of a mode that give a program the rights of its owner or group.
const SET_IDS: u32 = 0o6000;
/// Extended attribute with the capabilities of a program.
const CAPABILITIES: &[u8] = b"security.capability";
/// Files and folders below the system's root that decide who may log in or what runs.
const DOORS: &[&str] = &[
    "etc/anacrontab",
    "etc/apt/apt.conf",
    "etc/apt/apt.conf.d",
    "etc/at.allow",
    "etc/at.deny",
    "etc/cron.allow",
    "etc/cron.d",
    "etc/cron.daily",
    "etc/cron.deny",
    "etc/cron.hourly",
    "etc/cron.monthly",
    "etc/cron.weekly",
    "etc/cron.yearly",
    "etc/crontab",
    "etc/doas.conf",
    "etc/dpkg/dpkg.cfg",
    "etc/dpkg/dpkg.cfg.d",
    "etc/group",
    "etc/gshadow",
    "etc/init.d",
    "etc/ld.so.preload",
    "etc/nsswitch.conf",
    "etc/pam.conf",
    "etc/pam.d",
    "etc/passwd",
    "etc/polkit-1",
    "etc/rc.local",
    "etc/security",
    "etc/shadow",
    "etc/ssh",
    "etc/subgid",
    "etc/subuid",
    "etc/sudoers",
    "etc/sudoers.d",
    "etc/systemd",
    "etc/udev/rules.d",
    "lib/systemd/system",
    "lib/systemd/user",
    "usr/lib/pam.d",
    "usr/lib/systemd/system",
    "usr/lib/systemd/user",
    "usr/share/polkit-1",
    "var/spool/at",
    "var/spool/cron",
];
/// Beginnings of the names of files with keys for logins, in a folder `.ssh`.
const KEYS: &[u8] = b"authorized_keys";

/// Judges the causes of changes below one root.
#[derive(Debug)]
pub(crate) struct Doors {
    root: PathBuf,
    overrides: StatOverrides,
}

impl Doors {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), overrides: StatOverrides::new(root) }
    }

    /// Withdraws the cause of a change that opens a door, or demands attention for it.
    pub(crate) fn judge(&self, change: &Change, account: &Account, cause: Cause) -> Cause {
        if cause.kind == CauseKind::Unexplained {
            return cause;
        }
        let run = match account {
            Account::Packages(run) if !run.doubtful => Some(run),
            _ => None,
        };
        let is_dpkg = run.is_some_and(|run| run.is_dpkg);
        let script = run.filter(|run| run.by_dpkg).and_then(|run| run.script.as_deref());
        if let Some(privilege) = added_privilege(change) {
            let package = cause.package.as_ref().map(|package| package.name.as_str());
            let is_own = package.is_some() && script.and_then(package_of_script) == package;
            let mode = change.after.as_ref().map_or(0, |after| after.mode);
            let path = change.key.path();
            let root = self.root.as_os_str().as_encoded_bytes();
            let below = path.strip_prefix(root.strip_suffix(b"/").unwrap_or(root));
            let listed = below.is_some_and(|path| self.overrides.has(path, mode));
            // Files that dpkg writes besides the content of packages need no privilege.
            let is_delivered = is_dpkg && cause.kind == CauseKind::Package;
            if !is_delivered && !is_own && !listed {
                let was = cause.detail;
                return unexplained(format!("adds {privilege}, although {was}"));
            }
        }
        if is_dpkg || !is_door(&change.key.path(), &self.root) {
            return cause;
        }
        let by_management = matches!(account, Account::Management(_));
        let by_log = *account == Account::Unnoticed && cause.kind == CauseKind::Package;
        if by_management || by_log || script.is_some() {
            return Cause { attention: !by_log, ..cause };
        }
        unexplained(format!("decides who may log in or what runs, although {}", cause.detail))
    }
}

/// Returns the cause of a change that nothing explains, with the reason why a likely one does not hold.
pub(crate) fn unexplained(detail: String) -> Cause {
    Cause { detail, ..Cause::default() }
}

/// Returns the package of a script such as `coreutils.postinst` or `libc6:amd64.postinst`.
fn package_of_script(script: &str) -> Option<&str> {
    let (package, _) = script.rsplit_once('.')?;
    package.split(':').next()
}

/// Returns true if the path of a change is a door. `root` is the system's root.
pub(crate) fn is_door(path: &[u8], root: &Path) -> bool {
    let Some(below) = own::below(path, root) else { return false };
    // PAM's modules lie in a folder of the architecture.
    let is_module = || {
        let mut parts = below.rsplit(|byte| *byte == b'/');
        let name = parts.next().unwrap_or_default();
        parts.next() == Some(b"security") && name.starts_with(b"pam_")
    };
    let is_key = || {
        let mut parts = below.rsplit(|byte| *byte == b'/');
        let name = parts.next().unwrap_or_default();
        parts.next() == Some(b".ssh") && name.starts_with(KEYS)
    };
    own::is_at_or_below(below, DOORS) || is_module() || is_key()
}

/// Returns the privileges that a change adds to a program, in words; `None` if it adds none.
fn added_privilege(change: &Change) -> Option<&'static str> {
    let after = change.after.as_ref().filter(|after| after.kind == Kind::File)?;
    let before = change.before.as_ref().filter(|before| before.kind == Kind::File);
    let set = |o: &Observation| o.mode & SET_IDS;
    let added = set(after) & !before.map_or(0, set);
    // Another owner makes another program of it.
    let owned = |o: &Observation| (o.uid, o.gid);
    let has_other_owner = before.is_some_and(|before| owned(before) != owned(after));
    let capabilities =
        |o: &Observation| o.xattrs.iter().find(|xattr| *xattr.name == *CAPABILITIES).cloned();
    let gained = capabilities(after);
    if added & 0o4000 != 0 || (has_other_owner && set(after) & 0o4000 != 0) {
        Some("setuid")
    } else if added != 0 || (has_other_owner && set(after) != 0) {
        Some("setgid")
    } else if gained.is_some() && gained != before.and_then(capabilities) {
        Some("capabilities")
    } else {
        None
    }
}

/// Modes that the administrator has set with `dpkg-statoverride`.
#[derive(Debug)]
struct StatOverrides {
    file: PathBuf,
}

impl StatOverrides {
    fn new(root: &Path) -> Self {
        Self { file: root.join("var/lib/dpkg/statoverride") }
    }

    /// Returns true if the mode of a path is listed. Read each time, because it is needed rarely.
    fn has(&self, path: &[u8], mode: u32) -> bool {
        let small = fs::metadata(&self.file).is_ok_and(|m| m.len() <= limits::LIST_BYTES_MAX);
        let text = if small { fs::read(&self.file).unwrap_or_default() } else { Vec::new() };
        let listed: HashSet<(&[u8], u32)> = text.split(|b| *b == b'\n').filter_map(entry).collect();
        listed.contains(&(path, mode & 0o7777))
    }
}

/// Returns path and mode of a line `USER GROUP MODE PATH`.
fn entry(line: &[u8]) -> Option<(&[u8], u32)> {
    let mut parts = line.splitn(4, |byte| *byte == b' ').skip(2);
    let mode = std::str::from_utf8(parts.next()?).ok()?;
    Some((parts.next()?, u32::from_str_radix(mode, 8).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_are_found_below_the_root() {
        let door = |path: &str, root: &str| is_door(path.as_bytes(), Path::new(root));
        for path in [
            "/etc/sudoers.d/x",
            "/etc/passwd",
            "/root/.ssh/authorized_keys2",
            "/etc/apt/apt.conf.d/99x",
            "/usr/lib/x86_64-linux-gnu/security/pam_unix.so",
            "/usr/lib/systemd/system/a.service",
        ] {
            assert!(door(path, "/"), "{path}");
            assert!(door(&format!("/srv/root{path}"), "/srv/root"), "{path}");
        }
        for path in ["/etc/passwd-", "/etc/hosts", "/etc/cron.d2", "/usr/bin/sudo", "/root/.ssh/x"]
        {
            assert!(!door(path, "/"), "{path}");
        }
        assert!(!door("/etc/passwd", "/srv/root"));
    }

    #[test]
    fn listed_mode_of_the_administrator_is_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("var/lib/dpkg")).unwrap();
        let file = folder.path().join("var/lib/dpkg/statoverride");
        fs::write(file, "root root 4755 /usr/bin/a b\nno line\n").unwrap();
        let overrides = StatOverrides::new(folder.path());
        assert!(overrides.has(b"/usr/bin/a b", 0o4755));
        assert!(!overrides.has(b"/usr/bin/a b", 0o6755) && !overrides.has(b"/usr/bin/c", 0o4755));
        assert!(!StatOverrides::new(Path::new("/none")).has(b"/usr/bin/a b", 0o4755));
    }
}
