//! Sessions of simulated agents over mutual TLS on loopback until the durable 200, next to two
//! limits: TLS and HTTP alone with the same bytes, and the journal alone with the same records.
//!
//! The server is a process of its own, measured by the kernel's accounting; the load shares the
//! machine with it. With `FULL=1` the first sync has 1,000 agents and the steady state 50,000;
//! otherwise they have 50 and 2,000, sending at the rate of 50,000.

#[path = "../sync/cases.rs"]
mod cases;
#[path = "../sync/load.rs"]
mod load;
#[path = "../sync/server.rs"]
mod server;

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["enrol", folder, agents] => server::enrol(folder.as_ref(), agents.parse()?),
        ["serve", folder] => server::serve(folder.as_ref(), None),
        ["serve", folder, core] => server::serve(folder.as_ref(), Some(core.parse()?)),
        ["echo", folder] => server::echo(folder.as_ref()),
        [] => cases::compare(),
        _ => anyhow::bail!("no arguments, please; QUICK=1 for a short run, FULL=1 for a whole one"),
    }
}
