//! Limits of what is read and kept to explain changes.

use std::time::Duration;

/// Most paths in the index of the lists. An entry takes about 50 bytes: at most about 25 MB, until
/// the index is dropped.
pub const ENTRIES_MAX: usize = 400_000;
/// Most links on the path of a folder. A path with more is taken as it is from there on.
pub const LINKS_MAX: usize = 40;
/// Most packages in the index.
pub const PACKAGES_MAX: usize = 5_000;
/// Largest file of dpkg that is read, except the status database, bytes.
pub const LIST_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Largest status database that is read, bytes.
pub const STATUS_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Most files of `updates` that are read.
pub const UPDATES_MAX: usize = 1_000;
/// Most bytes of the end of `dpkg.log` that are read.
pub const LOG_BYTES_MAX: u64 = 1024 * 1024;
/// Most diversions.
pub const DIVERSIONS_MAX: usize = 10_000;
/// Largest file whose MD5 is computed, bytes.
pub const CONTENT_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Most packages whose last cause is remembered for their own event.
pub const REMEMBERED_MAX: usize = 5_000;
/// Age up to which a list counts as recently changed.
pub const RECENT: Duration = Duration::from_mins(10);
/// Most time between a line of `dpkg.log` and the change that it accounts for.
pub const LOG_WINDOW: Duration = Duration::from_mins(1);
/// Age up to which a rotated log is read.
pub const ROTATED_AGE_MAX: Duration = Duration::from_hours(1);
/// Time after the last use at which the index is dropped.
pub const UNUSED_MAX: Duration = Duration::from_mins(1);
/// Age up to which the answer that a lock of dpkg is held is used again.
pub const LOCK_AGE_MAX: Duration = Duration::from_millis(50);
/// Age up to which the answer that none is held is used again. A name is due no sooner than 20 ms
/// after its change, so a lock that was taken before the change is seen.
pub const UNLOCKED_AGE_MAX: Duration = Duration::from_millis(5);
/// Greatest distance between a change and the line of `dpkg.log` that has the versions.
pub const VERSION_WINDOW: Duration = Duration::from_hours(1);
/// Shortest time between two readings of the lists while a transaction runs.
pub const NOTE_EVERY: Duration = Duration::from_millis(100);
/// Most names that are held back until a transaction ends.
pub const HELD_MAX: usize = 20_000;
/// Longest time for which a name is held back. The process table keeps ended processes for a
/// minute, and the writer must still be known afterwards.
pub const HOLD_MAX: Duration = Duration::from_secs(45);
/// Most words of a command line of dpkg that are searched for options. It must be less than
/// `attribution::limits::FIRST_ARGUMENTS_MAX`.
pub const DPKG_WORDS_MAX: usize = 30;
