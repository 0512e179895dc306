//! Returns freed memory to the operating system.
//!
//! By default glibc raises its thresholds with the largest block that was freed, up to 32 MiB, and
//! keeps free pages between blocks in use. A server that was idle again after a burst of large
//! requests held 900 MB instead of 150.

use std::time::Duration;

use tokio::runtime::Runtime;

/// Size from which a block has a mapping of its own, which is unmapped when it is freed, bytes.
const MMAP_THRESHOLD_BYTES: i32 = 1024 * 1024;
/// Free bytes at the end of an arena above which they are returned.
const TRIM_THRESHOLD_BYTES: i32 = 1024 * 1024;
/// Interval at which free pages between blocks are returned.
const TRIM_EVERY: Duration = Duration::from_secs(10);

/// Fixes the allocator's thresholds and returns free pages at intervals, as long as the runtime
/// lives. Does nothing with another C library than glibc.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "calls into the C library")]
pub(crate) fn return_freed_memory(runtime: &Runtime) {
    // SAFETY: mallopt only sets parameters of the allocator and may be called at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES);
    }
    runtime.spawn(async {
        loop {
            tokio::time::sleep(TRIM_EVERY).await;
            // It locks one arena after the other, each for some milliseconds.
            // SAFETY: malloc_trim only releases free pages and may be called by any thread.
            let _ = tokio::task::spawn_blocking(|| unsafe { libc::malloc_trim(0) }).await;
        }
    });
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn return_freed_memory(_: &Runtime) {}
