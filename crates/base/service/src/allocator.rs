//! Returns freed memory to the operating system.
//!
//! glibc raises its thresholds with the largest block that was freed and keeps free pages between
//! blocks in use: after a burst of large requests an idle server held 900 MB instead of 150.

use std::time::Duration;

/// Size from which a block has a mapping of its own, and free bytes at the end of an arena above
/// which they are returned.
const THRESHOLD_BYTES: i32 = 1024 * 1024;
/// Interval at which free pages between blocks are returned.
const TRIM_EVERY: Duration = Duration::from_secs(10);

/// Fixes glibc's thresholds and returns free pages at intervals, as long as the runtime lives.
#[expect(unsafe_code, reason = "calls into the C library")]
pub fn return_freed_memory(runtime: &tokio::runtime::Runtime) {
    // SAFETY: mallopt only sets parameters of the allocator and may be called at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, THRESHOLD_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, THRESHOLD_BYTES);
    }
    runtime.spawn(async {
        loop {
            tokio::time::sleep(TRIM_EVERY).await;
            // SAFETY: malloc_trim only releases free pages and may be called by any thread. It
            // locks one arena after the other, each for some milliseconds.
            let _ = tokio::task::spawn_blocking(|| unsafe { libc::malloc_trim(0) }).await;
        }
    });
}
