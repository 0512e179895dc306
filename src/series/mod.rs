//! `holdfast series`: running the series store without a server, and commands on a store.

mod alone;
mod bench;
mod own;
mod ports;
mod stat;
mod tools;

use crate::cli::SeriesCommand;

pub(crate) use alone::certificate_files;
pub(crate) use own::store as store_own;
pub(crate) use ports::{Ports, Secrets, print_ports};

/// Runs one command. Returns false if it found damage or if samples were refused or unreadable.
pub(crate) fn run(command: SeriesCommand) -> anyhow::Result<bool> {
    match command {
        SeriesCommand::Serve(args) => crate::runtime()?.block_on(alone::serve(args))?,
        SeriesCommand::Init(data) => alone::init(&data)?,
        SeriesCommand::Create(data) => alone::create(&data)?,
        SeriesCommand::Delete(args) => tools::delete(&args)?,
        SeriesCommand::Stat(args) => crate::runtime()?.block_on(stat::stat(&args))?,
        SeriesCommand::Verify(args) => return tools::verify(&args),
        SeriesCommand::Export(args) => return tools::export(&args),
        SeriesCommand::Import(args) => return tools::import(&args),
        SeriesCommand::Bench(args) => bench::run(&args)?,
    }
    Ok(true)
}
