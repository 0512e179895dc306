//! The process as its system and its user see it: it is stopped by a signal, reports to the service
//! manager that it is ready and alive, returns freed memory, and prints lines for people.

#[cfg(target_env = "gnu")]
mod allocator;
mod console;
mod notify;
mod report;
mod signals;

#[cfg(target_env = "gnu")]
pub use allocator::return_freed_memory;
pub use console::{Console, safe_line};
pub use notify::Notify;
pub use report::report;
pub use signals::Stop;
