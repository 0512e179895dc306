//! The container of a process, from the path of its control group.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Digits of an id of docker, podman, containerd and CRI-O.
const ID_DIGITS: usize = 64;

/// Returns the id of the innermost container in the text of `/proc/PID/cgroup`, or the name of a
/// systemd-nspawn machine.
pub(crate) fn id(cgroup: &str) -> Option<String> {
    // A line is `number:controllers:path`; in version 2 there is one, with the number 0.
    cgroup.lines().find_map(|line| of_path(line.splitn(3, ':').nth(2)?))
}

/// Returns a digest of the text of `/proc/PID/cgroup`. Different services have different digests.
pub(crate) fn digest(cgroup: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    cgroup.hash(&mut hasher);
    hasher.finish()
}

fn of_path(path: &str) -> Option<String> {
    let mut parts = path.split('/').rev();
    parts.find_map(|part| hexadecimal(part).or_else(|| machine(part)))
}

/// Returns the id in `ID`, `docker-ID.scope`, `libpod-ID.scope`, `cri-containerd-ID.scope`,
/// `crio-ID.scope` and `SLICE:cri-containerd:ID`.
fn hexadecimal(part: &str) -> Option<String> {
    // The monitor of a container is not in the container.
    if part.contains("conmon") {
        return None;
    }
    let name = part.strip_suffix(".scope").unwrap_or(part);
    let id = name.rsplit(['-', ':']).next()?;
    let digits = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    (id.len() == ID_DIGITS && id.chars().all(digits)).then(|| id.to_owned())
}

fn machine(part: &str) -> Option<String> {
    let service = part.strip_prefix("systemd-nspawn@").and_then(|p| p.strip_suffix(".service"));
    let scope = part.strip_prefix("machine-").and_then(|p| p.strip_suffix(".scope"));
    // libvirt registers virtual machines, whose processes are no part of a container.
    let scope = scope.filter(|name| !name.starts_with("qemu"));
    service.or(scope).map(|name| name.replace("\\x2d", "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_have_the_id_of_their_group() {
        let hex = "0123456789abcdef".repeat(4);
        let other = "f".repeat(64);
        let cases = [
            (format!("5:cpu:/docker/{hex}\n0::/ignored"), Some(&hex)),
            (format!("0::/system.slice/docker-{hex}.scope"), Some(&hex)),
            (format!("0::/docker/{other}/docker/{hex}"), Some(&hex)),
            (format!("0::/docker/{hex}/system.slice/ssh.service"), Some(&hex)),
            (format!("0::/machine.slice/libpod-{hex}.scope/container"), Some(&hex)),
            (format!("0::/machine.slice/libpod-conmon-{hex}.scope"), None),
            (
                format!("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{hex}.scope"),
                Some(&hex),
            ),
            (format!("3:pids:/kubepods/burstable/pod12/{hex}"), Some(&hex)),
            (format!("0::/system.slice/kubepods-pod1.slice:cri-containerd:{hex}"), Some(&hex)),
            (format!("0::/kubepods.slice/crio-{hex}.scope"), Some(&hex)),
            (format!("0::/kubepods.slice/crio-conmon-{hex}.scope"), None),
            ("0::/user.slice/user-0.slice/session-1.scope".to_owned(), None),
            (format!("0::/process/{}", &hex[..32]), None),
            (String::new(), None),
        ];
        for (text, expected) in cases {
            assert_eq!(id(&text).as_ref(), expected, "{text}");
        }
    }

    #[test]
    fn machines_of_nspawn_have_their_name() {
        let cases = [
            ("0::/machine.slice/systemd-nspawn@web.service/payload", Some("web")),
            ("0::/machine.slice/machine-web\\x2d2.scope", Some("web-2")),
            ("0::/machine.slice/machine-qemu\\x2d1\\x2dvm.scope", None),
        ];
        for (text, expected) in cases {
            assert_eq!(id(text).as_deref(), expected, "{text}");
        }
    }
}
