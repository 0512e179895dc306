//! The operations, one file per resource. Code that several of them share is in `common.rs`; no file
//! imports the code of another one's operations.

pub(crate) mod agent_commands;
pub(crate) mod agent_list;
mod agent_values;
pub(crate) mod agent_writes;
pub(crate) mod agents;
pub(crate) mod changes;
pub(crate) mod clock;
pub(crate) mod cluster;
pub(crate) mod commands;
pub(crate) mod common;
pub(crate) mod configuration;
mod digest;
mod document_condition;
pub(crate) mod enrolment;
pub(crate) mod event_item;
pub(crate) mod feed;
pub(crate) mod file_item;
pub(crate) mod fleet;
pub(crate) mod group_form;
pub(crate) mod group_item;
pub(crate) mod groups;
mod issuing;
pub(crate) mod local;
pub(crate) mod members;
mod node;
pub(crate) mod overlay;
pub(crate) mod overview;
mod ready;
pub(crate) mod rules_files;
pub(crate) mod scans;
pub(crate) mod series;
pub(crate) mod server;
pub(crate) mod states;
pub(crate) mod summary;
pub(crate) mod syscheck;
pub(crate) mod watched;
