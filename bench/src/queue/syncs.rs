//! Counts the flushes that this process requests. The database engine calls these two functions,
//! because the linker finds them before those of the C library.

use std::sync::atomic::{AtomicU64, Ordering};

static COUNT: AtomicU64 = AtomicU64::new(0);

/// Returns the number of flushes so far.
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

fn counted_sync(number: libc::c_long, fd: libc::c_int) -> libc::c_int {
    COUNT.fetch_add(1, Ordering::Relaxed);
    // SAFETY: a system call on a descriptor, which touches no memory of ours.
    unsafe { libc::syscall(number, fd) as libc::c_int }
}

/// fsync(2).
// SAFETY: same name, signature and behaviour as the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn fsync(fd: libc::c_int) -> libc::c_int {
    counted_sync(libc::SYS_fsync, fd)
}

/// fdatasync(2).
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn fdatasync(fd: libc::c_int) -> libc::c_int {
    counted_sync(libc::SYS_fdatasync, fd)
}
