//! Kernel notifications (fanotify with file handles) to a bounded list of names that are due for a
//! check. The names say where to look sooner than the next scan; only a comparison decides what
//! changed. The crate `dirty` has the part without system calls.
//!
//! ```no_run
//! use std::time::Duration;
//! use watch::{Options, Watcher, monotonic_ns};
//!
//! # fn main() -> std::io::Result<()> {
//! let options = Options { roots: vec!["/etc".into()], ..Options::default() };
//! let watcher = Watcher::start(options)?; // before the first scan
//! let handles = watcher.handles(); // a `model::DirectoryHandles` for the scanner
//! // ... the first scan of all roots runs with `handles` ...
//! watcher.end_first_scan();
//! while watcher.wait(Duration::from_secs(60)) {
//!     let incidents = watcher.incidents(); // gaps, closed by the check of the roots
//!     let due = watcher.due(monotonic_ns(), 2_000); // names
//!     let tree = watcher.due_tree(monotonic_ns());
//!     // ... check them; `watcher.recheck(entry)` if a result is not stable ...
//!     # let _ = (incidents, due, &handles);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! - [`Watcher::start`] takes [`Options`]: roots, exclusions, the canary's folder and limits. A loop
//!   with a channel of its own sets [`Options::wake`] and asks [`Watcher::next_due_ns`] in place of
//!   [`Watcher::wait`].
//! - [`Watcher::handles`] must be passed to every scan, also to targeted ones: the scan reports each
//!   directory that it enters, before it lists it. That is when the directory is marked and its
//!   handle becomes known.
//! - [`Watcher::states`] says how each root is watched and why not better, [`Watcher::counters`] how
//!   much happened.
//!
//! **Promise.** Each change below a root that is not [`Level::ScanOnly`] makes its name due at least
//! once after the change, or a directory or tree that contains it, or an [`Incident`] is reported
//! and the whole root is due. Not notified by the kernel, and left to the scan: writes through
//! `mmap` before the last close, writes to the block device, and writes through a hard link that was
//! made outside the roots since the file was last scanned.
//!
//! **Limits.** The dirty set, the index, the kernel's queue and the kept notifications of the first
//! scan are bounded, see [`Options`]. Nothing is stored on disk.
//!
//! **Locking.** `Shared::reading` is held while the reader thread drains the group, `Shared::state`
//! while anything else is read or changed; `reading` is taken first, and only the reader and tests
//! take it. The lock of the kernel's queue is in `intake.rs`. No system call is made under `state`, apart from the log line of an incident. The scan
//! learns a directory in the order handle, index, mark, listing: a change before the mark is in the
//! listing, and a change after it is notified under a known handle. A mark may be set on a group
//! that was replaced at the same time; then all roots are due again, and the next scan
//! repeats marks that are older than the group. Callers may use the watcher from several threads, and must not
//! call it from [`Options::wake`].

mod canary;
mod fanotify;
mod file_systems;
mod intake;
mod links;
mod marks;
mod mounts;
mod options;
mod reader;
mod refusals;
mod shared;
mod upkeep;
mod watcher;

pub use dirty::{OriginLookup, Windows, add_notices};
pub use file_systems::{FileSystemState, WatchState};
pub use options::{Level, Options, WakeCallback};
pub use shared::{Incident, IncidentKind, monotonic_ns};
pub use watcher::{Handles, ReaderPause, WatchCounters, Watcher};
