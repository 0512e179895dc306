//! File systems that the kernel makes up.

use std::os::fd::BorrowedFd;

/// File systems whose files are not on any disk and not worth watching below a root:
/// proc, sysfs, cgroup, cgroup2, debugfs, tracefs, securityfs, devpts, bpf, pstore, mqueue,
/// configfs, `binfmt_misc`, selinuxfs, `rpc_pipefs`, nsfs, efivarfs, fusectl, hugetlbfs, autofs.
/// Numbers: linux/magic.h and the file systems' own sources.
const PSEUDO: [u64; 20] = [
    0x9fa0,
    0x6265_6572,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x1cd1,
    0xcafe_4a11,
    0x6165_676c,
    0x1980_0202,
    0x6265_6570,
    0x4249_4e4d,
    0xf97c_ff8c,
    0x6759_6969,
    0x6e73_6673,
    0xde5e_81e4,
    0x6573_5543,
    0x9584_58f6,
    0x0187,
];

/// Returns true if the kernel makes up what lies there.
pub(crate) fn is_pseudo(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|s| PSEUDO.contains(&(s.f_type as u64)))
}
