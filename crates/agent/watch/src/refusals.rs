//! Words for what kernels and file systems refuse: the reason, and what helps. What a kernel accepts
//! counts, not its number: distributions add later functions to older kernels.

use std::io;

/// A refusal in words for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: String,
    /// Change that would help; empty if none is known.
    pub(crate) remedy: &'static str,
}

impl Refusal {
    /// Explains why the kernel gave no notification group (`fanotify_init`).
    pub(crate) fn of_group(error: &io::Error) -> Self {
        let (what, remedy) = match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                ("notifications are not permitted", "give CAP_SYS_ADMIN or allow fanotify_init")
            }
            Some(libc::EINVAL) => (
                "the kernel does not report a rename as one notification",
                "use a kernel that does: Linux 5.17 or later, 5.15.154 or 5.10.220",
            ),
            Some(libc::ENOSYS) => {
                ("the kernel has no fanotify", "use a kernel with CONFIG_FANOTIFY")
            }
            Some(libc::EMFILE) => (
                "there are too many notification groups or open files",
                "raise fs.fanotify.max_user_groups or the limit of open files",
            ),
            _ => ("the kernel refuses notifications", ""),
        };
        Self { reason: format!("{what}: {error}"), remedy }
    }
}

/// Returns what helps if a directory cannot have a mark (`fanotify_mark`, `name_to_handle_at`); empty if
/// nothing is known. `kind` is the name of its file system.
pub(crate) fn mark_remedy(kind: &str, error: &io::Error) -> &'static str {
    match (error.raw_os_error(), kind) {
        (Some(libc::EPERM), _) => "allow fanotify_mark and name_to_handle_at",
        (Some(libc::EACCES), _) => "let the agent read the directory",
        (Some(libc::ENOSPC), _) => "raise fs.fanotify.max_user_marks",
        (Some(libc::EOPNOTSUPP), "overlay") => {
            "use a kernel whose overlayfs accepts marks: about Linux 6.6 or later"
        }
        (Some(libc::ENODEV), "tmpfs") => {
            "use a kernel whose tmpfs accepts marks: about Linux 5.13 or later"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_group_has_a_remedy_by_its_error() {
        let table = [
            (libc::EPERM, "not permitted: Operation", "give CAP_SYS_ADMIN or allow fanotify_init"),
            (
                libc::EACCES,
                "not permitted: Permission",
                "give CAP_SYS_ADMIN or allow fanotify_init",
            ),
            (
                libc::EINVAL,
                "a rename as one notification: Invalid",
                "5.17 or later, 5.15.154 or 5.10.220",
            ),
            (libc::ENOSYS, "has no fanotify: Function", "CONFIG_FANOTIFY"),
            (libc::EMFILE, "too many notification groups", "fs.fanotify.max_user_groups"),
            (libc::ENOMEM, "the kernel refuses notifications: Cannot allocate", ""),
        ];
        for (error, reason, remedy) in table {
            let refusal = Refusal::of_group(&io::Error::from_raw_os_error(error));
            assert!(refusal.reason.contains(reason), "{error}: {refusal:?}");
            assert!(refusal.remedy.contains(remedy), "{error}: {refusal:?}");
            assert_eq!(refusal.remedy.is_empty(), remedy.is_empty(), "{error}: {refusal:?}");
            let version = error == libc::EINVAL;
            assert_eq!(refusal.remedy.contains("Linux"), version, "{error}: {refusal:?}");
        }
    }

    #[test]
    fn refused_mark_has_a_remedy_by_error_and_file_system() {
        let table = [
            (libc::EPERM, "ext4", "allow fanotify_mark and name_to_handle_at"),
            (libc::EACCES, "ext4", "let the agent read the directory"),
            (libc::ENOSPC, "ext4", "raise fs.fanotify.max_user_marks"),
            (libc::EOPNOTSUPP, "overlay", "about Linux 6.6"),
            (libc::EOPNOTSUPP, "proc", ""),
            (libc::ENODEV, "tmpfs", "about Linux 5.13"),
            (libc::ENODEV, "vfat", ""),
            (libc::EXDEV, "btrfs", ""),
        ];
        for (error, kind, wanted) in table {
            let remedy = mark_remedy(kind, &io::Error::from_raw_os_error(error));
            assert!(remedy.contains(wanted), "{error} {kind}: {remedy}");
            assert_eq!(remedy.is_empty(), wanted.is_empty(), "{error} {kind}: {remedy}");
        }
    }
}
