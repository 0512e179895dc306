//! The makers of changes: a [`Writer`] is the process that the kernel reported, with the times that are
//! known of it; an [`Actor`] is what the process table makes of it.

mod actor;
mod writer;

pub use actor::{Actor, ActorUser, Attribution, Candidate, Executable, ProcessInfo};
pub use writer::{Interval, Origin, Writer, WriterSeen};
