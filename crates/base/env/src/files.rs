//! The disk: [`RealFiles`] is the operating system's, [`SimDisk`] one in memory that can lose
//! power, tear writes and fail.
//!
//! What survives what, in both: a write survives a kill of the process at once; it survives power
//! loss after [`File::persist`], or at once if the file was opened with [`Access::dsync`]. Created,
//! renamed and removed names survive power loss after [`Files::persist_dir`].

mod cache;
mod identity;
mod over;
mod real;
mod sim;
mod traits;

pub use cache::drop_cached_pages;
pub use identity::FileIdentity;
pub use over::{FileOver, FilesOver};
pub use real::RealFiles;
pub use sim::{Failure, Fault, SECTOR_BYTES, SimDisk};
pub use traits::{Access, File, Files, Lock};
