//! Files of the package managers themselves: databases, caches and logs.

use std::path::Path;

use crate::program::Helper;

/// Files and folders of dpkg below the system's root. The options of other package managers choose
/// the names of their files, so that theirs could be scripts and lists of packages.
const OWN_OF_DPKG: &[&str] = &["var/lib/dpkg", "var/log/dpkg.log"];
/// Those of other package managers.
const OWN: &[&str] = &[
    "run/unattended-upgrades",
    "run/unattended-upgrades.lock",
    "var/cache/PackageKit",
    "var/cache/apt",
    "var/lib/PackageKit",
    "var/lib/apt",
    "var/lib/aptitude",
    "var/lib/dpkg/lock",
    "var/lib/dpkg/lock-frontend",
    "var/lib/unattended-upgrades",
    "var/log/apt",
    "var/log/aptitude",
    "var/log/unattended-upgrades",
];

/// Folders in which programs work for a package manager.
const UNPACKED: &[&str] = &["var/lib/dpkg/tmp.ci"];
const FETCHED: &[&str] = &["var/cache/apt/archives/partial", "var/lib/apt/lists/partial"];

/// Returns the part of an absolute path below the system's root.
pub(crate) fn below<'a>(path: &'a [u8], root: &Path) -> Option<&'a [u8]> {
    let root = root.as_os_str().as_encoded_bytes();
    let root = root.strip_suffix(b"/").unwrap_or(root);
    path.strip_prefix(root)?.strip_prefix(b"/")
}

/// Returns true if a path below the root is one of these, or lies below one of them.
pub(crate) fn is_at_or_below(path: &[u8], tops: &[&str]) -> bool {
    tops.iter().any(|top| {
        let rest = path.strip_prefix(top.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    })
}

/// Returns true for a file of a package manager, which is dpkg perhaps. `root` is the system's root.
pub(crate) fn is_of_tool(path: &[u8], root: &Path, by_dpkg: bool) -> bool {
    below(path, root).is_some_and(|path| {
        is_at_or_below(path, OWN) || by_dpkg && is_at_or_below(path, OWN_OF_DPKG)
    })
}

/// Returns true for a file that a helper writes for its package manager.
pub(crate) fn is_of_helper(path: &[u8], root: &Path, helper: Helper) -> bool {
    let folders = match helper {
        Helper::Unpack => UNPACKED,
        Helper::Fetch => FETCHED,
    };
    below(path, root).is_some_and(|path| is_at_or_below(path, folders))
}
