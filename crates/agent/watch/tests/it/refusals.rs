//! A kernel that refuses notifications: the state of every root says why, and what helps. A seccomp
//! filter has the kernel answer as one without the right, or as an older one.

use std::fs;

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO,
};
use watch::{FileSystemState, Level, Options, Watcher};

use crate::common::{folder, scan};

/// Has the kernel refuse `fanotify_init` to this thread, and to those that it starts.
fn refuse_groups(error: libc::c_int) {
    let step = |code: u32, skipped: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: skipped,
        k,
    };
    let mut steps = [
        // The number of the call is the first field of `struct seccomp_data`.
        step(BPF_LD | BPF_W | BPF_ABS, 0, 0),
        step(BPF_JMP | BPF_JEQ | BPF_K, 1, libc::SYS_fanotify_init as u32),
        step(BPF_RET | BPF_K, 0, SECCOMP_RET_ERRNO | error as u32),
        step(BPF_RET | BPF_K, 0, SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    #[expect(unsafe_code, reason = "no safe binding exists for a seccomp filter")]
    // SAFETY: the filter outlives the calls, and its length is that of the array.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    assert!(done, "{}", std::io::Error::last_os_error());
}

/// Returns the states of a directory and of a single file as roots, if groups are refused.
fn states(error: libc::c_int) -> [FileSystemState; 2] {
    let top = folder();
    let file = top.path().join("file");
    fs::write(&file, b"x").unwrap();
    fs::create_dir(top.path().join("tree")).unwrap();
    let roots = vec![top.path().join("tree"), file];
    std::thread::scope(|scope| {
        let watched = scope.spawn(|| {
            refuse_groups(error);
            let watcher = Watcher::start(Options { roots, ..Options::default() }).unwrap();
            scan(&mut watcher.handles(), &top.path().join("tree"));
            watcher.states()
        });
        let states = watched.join().unwrap();
        let only = |mut state: watch::WatchState| {
            assert!(!state.is_realtime());
            state.file_systems.pop().unwrap()
        };
        let [tree, file] = states.try_into().unwrap();
        [only(tree), only(file)]
    })
}

#[test]
fn refused_right_is_not_explained_with_the_kernels_age() {
    for state in states(libc::EPERM) {
        assert_eq!(state.level, Level::ScanOnly);
        assert_eq!(
            state.reason,
            "notifications are not permitted: Operation not permitted (os error 1)"
        );
        assert_eq!(state.remedy, "give CAP_SYS_ADMIN or allow fanotify_init");
    }
}

#[test]
fn kernel_without_notified_renames_is_named_as_the_reason() {
    for state in states(libc::EINVAL) {
        assert_eq!(state.level, Level::ScanOnly);
        assert!(
            state.reason.starts_with("the kernel does not report a rename"),
            "{}",
            state.reason
        );
        assert!(state.remedy.contains("5.15.154 or 5.10.220"), "{}", state.remedy);
    }
}
