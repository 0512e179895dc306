//! The pure part of realtime detection: from the bytes of a notification group to names that are
//! due for a check. No system calls, clocks or threads: `watch` adds them.
//!
//! [`decode`] turns bytes into notifications. A [`Tracker`] applies them to an index of directories,
//! which resolves handles to paths, and to the dirty set, which knows what is due when. Times are
//! nanoseconds of `CLOCK_MONOTONIC`, and of the caller's choice.

pub mod decode;
mod directory_index;
mod due;
mod fair_queues;
mod files;
mod inodes;
mod links;
mod merge;
mod notices;
mod rename;
mod set;
mod take;
mod track;
mod unknown;
mod window;

pub use directory_index::{DirectoryLimitReached, NodeId};
pub use fair_queues::OriginLookup;
pub use inodes::HandleLayout;
pub use links::NewLink;
pub use notices::{WRITERS_MAX, add_notices};
pub use set::NotificationInfo;
pub use track::{CANARY_FILE, Paths, ReadTimes, Tracker};
pub use window::Windows;
