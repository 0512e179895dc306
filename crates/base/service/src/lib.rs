//! The process as its system sees it: it is stopped by a signal, reports to the service manager
//! that it is ready and alive, and returns freed memory.

#[cfg(target_env = "gnu")]
mod allocator;
mod notify;
mod signals;

#[cfg(target_env = "gnu")]
pub use allocator::return_freed_memory;
pub use notify::Notify;
pub use signals::Stop;
