//! Commands that look into an agent's queue and a server's journal: `holdfast queue`, `holdfast journal`
//! and `holdfast agent status`. They need no running process.

mod arguments;
mod database;
pub mod journal;
mod queue;
mod status;

pub use arguments::{JournalArgs, QueueCommand, QueueOf};
pub use database::{FolderOf, database};
pub use queue::run_queue;
pub use status::agent_status;
