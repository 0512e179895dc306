//! `holdfast series`: running the series store without a server, and commands on a store.

mod alone;
mod bench;
mod names;
mod own;
mod ports;

use crate::cli::SeriesCommand;

pub(crate) use alone::certificate_files;
pub(crate) use names::store as store_names;
pub(crate) use own::store as store_own;
pub(crate) use ports::{Ports, Secrets, print_ports};

/// Runs one command. Returns false if it found damage or if samples were refused or unreadable.
pub(crate) fn run(command: SeriesCommand) -> anyhow::Result<bool> {
    match command {
        SeriesCommand::Serve(args) => crate::runtime()?.block_on(alone::serve(args))?,
        SeriesCommand::Init(data) => alone::init(&data)?,
        SeriesCommand::Create(data) => alone::create(&data)?,
        SeriesCommand::Delete(args) => series_tools::delete(&args)?,
        SeriesCommand::Stat(args) => crate::runtime()?.block_on(series_tools::stat(&args))?,
        SeriesCommand::Verify(args) => return series_tools::verify(&args),
        SeriesCommand::Export(args) => return series_tools::export(&args),
        SeriesCommand::Import(args) => return series_tools::import(&args),
        SeriesCommand::Bench(args) => bench::run(&args)?,
    }
    Ok(true)
}
