//! `holdfast clock` and `holdfast authority`.

use std::io::Write as _;

use anyhow::Context as _;
use client::{Client, DataArg, at};
use env::clock::{Clock as _, SystemClock};
use env::guard::Acceptance;
use env::random::SystemRandom;
use folder::{DataFolder, clock};
use model::timestamp;
use serde_json::Value;

use crate::cli::ClockCommand;

/// Runs `holdfast clock show` or `accept`. Returns false if the clock is held.
pub(crate) async fn run(command: ClockCommand) -> anyhow::Result<bool> {
    match command {
        ClockCommand::Show(args) => show(&DataFolder::new(args.folder()?)).await,
        ClockCommand::Accept(args) => {
            accept(&DataFolder::new(args.folder()?)).await?;
            Ok(true)
        }
    }
}

async fn show(folder: &DataFolder) -> anyhow::Result<bool> {
    if let Some(server) = Client::running(&folder.socket())? {
        let answer = server.get(&["clock"], &[]).await?;
        let data = at(&answer, "/data");
        print(&[
            ("wall clock", text(data, "/wall")),
            ("guarded time", text(data, "/guarded")),
            ("held", text(data, "/held/detail").or(Some("no".into()))),
        ])?;
        return Ok(at(data, "/held").is_null());
    }
    folder.expect_data()?;
    let clock = clock::read_guarded(folder);
    let hold = clock.hold();
    print(&[
        ("wall clock", Some(timestamp::micros(clock.now_us()))),
        ("guarded time", Some(timestamp::micros(clock.guarded_us()))),
        ("held", Some(hold.map_or("no".into(), |hold| clock::held_text(&hold, folder.path())))),
    ])?;
    Ok(hold.is_none())
}

async fn accept(folder: &DataFolder) -> anyhow::Result<()> {
    if let Some(server) = Client::running(&folder.socket())? {
        let answer = server.put(&["clock", "accept"], &[]).await?;
        return print(&[("clock", text(&answer, "/message"))]);
    }
    folder.expect_data()?;
    let _lock = folder.claim()?;
    folder.expect_no_series()?;
    let (acceptance, guarded_us) = clock::accept(folder)?;
    let time = timestamp::micros(guarded_us);
    let said = match acceptance {
        Acceptance::Released => "accepted",
        Acceptance::NotHeld => "it was not held",
    };
    print(&[("clock", Some(format!("{said}; the guarded time is {time}")))])
}

/// Runs `holdfast authority reissue`.
pub(crate) fn reissue(args: &DataArg) -> anyhow::Result<()> {
    let folder = DataFolder::new(args.folder()?);
    folder.expect_server()?;
    let _lock = folder.claim()?;
    let now_s = (SystemClock::new().now_us() / 1_000_000) as i64;
    let validity = registry::reissue_authority(&folder.keys(), &SystemRandom, now_s)?;
    let shown = |s: i64| timestamp::micros(u64::try_from(s).unwrap_or(0) * 1_000_000);
    print(&[("valid", Some(format!("{} to {}", shown(validity.begins_s), shown(validity.ends_s))))])
}

fn text(value: &Value, pointer: &str) -> Option<String> {
    at(value, pointer).as_str().map(String::from)
}

fn print(lines: &[(&str, Option<String>)]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for (name, value) in lines {
        writeln!(out, "{name}: {}", value.as_deref().unwrap_or_default()).context("stdout")?;
    }
    Ok(())
}
