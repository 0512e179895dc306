//! Files of the package managers themselves: databases, caches and logs.

use std::path::Path;

/// Files and folders below the system's root.
const OWN: &[&str] = &[
    "run/unattended-upgrades",
    "var/cache/PackageKit",
    "var/cache/apt",
    "var/lib/PackageKit",
    "var/lib/apt",
    "var/lib/aptitude",
    "var/lib/dpkg",
    "var/lib/unattended-upgrades",
    "var/log/apt",
    "var/log/aptitude",
    "var/log/dpkg.log",
    "var/log/unattended-upgrades",
];

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

/// Returns true for a file of a package manager. `root` is the system's root.
pub(crate) fn is_of_tool(path: &[u8], root: &Path) -> bool {
    below(path, root).is_some_and(|path| is_at_or_below(path, OWN))
}
