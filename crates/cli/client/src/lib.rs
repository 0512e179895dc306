//! Everyday commands: a client of the server's API. It reaches a server over the unix socket of its
//! data folder, where the kernel identifies the caller, or over HTTPS with a token.
//!
//! Lists are tables, or one JSON object per line with `--json`. A command that failed for some of its
//! objects prints each of them on stderr and returns an error.

mod agents;
mod answer;
mod arguments;
mod audit;
mod changes;
mod client;
mod commands;
mod connect;
mod coverage;
mod feed;
mod files;
mod fleet;
mod groups;
mod history;
mod login;
mod names;
mod owner;
mod rules;
mod table;
mod users;

pub use agents::{AgentsArgs, AgentsCommand, ImportArgs};
pub use answer::at;
pub use arguments::{duration, whole};
pub use client::Client;
pub use connect::{ConnectArgs, DataArg, existing_data, own_data};
pub use feed::ChangeFeed;
pub use fleet::{FleetCommand, run};
pub use owner::mention;
pub use users::{PasswordArgs, UsersArgs, UsersCommand, new_password};
