//! The data folder of a server: its layout and its lock, backups of it, the clock that it persists,
//! copies for followers, and the periodic work on its stores.
//!
//! One process serves a folder; it holds the lock ([`DataFolder::claim`]). A backup and the commands that
//! only read need no lock.

pub mod backup;
pub mod clock;
mod followers;
mod layout;
mod tail;
mod upkeep;

pub use clock::FolderClock;
pub use followers::{ServerFiles, follower_folder};
pub use layout::{DataFolder, expect_no_server, is_there};
pub use tail::apply_tail;
pub use upkeep::Upkeep;
