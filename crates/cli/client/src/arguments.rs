//! Arguments that several commands share: of a list, and of an action.

use std::io::{Write as _, stderr};
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use service::Console;

use crate::answer::{GivenNames, at, expect_all_of, fail_with, items};
use crate::client::{Client, Listed};
use crate::connect::ConnectArgs;
use crate::table::{self, Column};

/// Parses a whole number from `MIN` to `MAX`.
///
/// # Errors
/// If it is none.
pub fn whole<const MIN: u32, const MAX: u32>(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (MIN..=MAX).contains(number));
    number.ok_or_else(|| match MAX {
        u32::MAX => format!("not a whole number of {MIN} or more"),
        _ => format!("not a whole number from {MIN} to {MAX}"),
    })
}

/// Parses a time span such as 2h.
///
/// # Errors
/// If it is none.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "write a number with a unit, such as 30s, 5m, 2h or 7d".into())
}

/// Arguments of commands that print a list.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Most items to print.
    #[arg(long, default_value_t = 1_000, value_parser = whole::<1, { u32::MAX }>)]
    pub(crate) limit: u32,
    /// Print one JSON object per item.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

impl ListArgs {
    /// Requests a list and prints it.
    pub(crate) async fn print(
        &self,
        client: &Client,
        path: &[&str],
        query: &[(&str, String)],
        columns: &[Column],
    ) -> anyhow::Result<()> {
        self.print_listed(client.list(path, query, self.limit()).await?, columns)
    }

    /// Prints a list, and fails if a part of it failed.
    pub(crate) fn print_listed(&self, listed: Listed, columns: &[Column]) -> anyhow::Result<()> {
        self.print_items(&listed.items, listed.total, columns);
        fail_with(listed.failures)
    }

    pub(crate) fn print_items(&self, items: &[Value], total: u64, columns: &[Column]) {
        table::print(self.json, items, total, columns);
    }

    /// Prints the latest items, of which the server may have more.
    pub(crate) fn print_latest(&self, items: &[Value], columns: &[Column]) {
        self.print_items(items, items.len() as u64, columns);
        if items.len() == self.limit() {
            let limit = self.limit;
            let _ = writeln!(stderr(), "the latest {limit} are shown; --limit sets how many");
        }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit as usize
    }
}

/// An action on a server, and how its result is printed.
#[derive(Debug, Args)]
pub(crate) struct ActArgs {
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

impl ActArgs {
    /// Prints what was done, and fails if a part failed.
    pub(crate) fn report(&self, answer: &Value, done: &str) -> anyhow::Result<()> {
        self.report_of(answer, done, &GivenNames::default())
    }

    /// As [`ActArgs::report`], for objects that the command line names.
    pub(crate) fn report_of(
        &self,
        answer: &Value,
        done: &str,
        names: &GivenNames,
    ) -> anyhow::Result<()> {
        let items = items(answer);
        if self.json {
            Console::new().line(&at(answer, "/data").to_string());
        } else if !items.is_empty() {
            Console::new().line(&format!("{done}: {}", names.text(&Value::Array(items))));
        }
        expect_all_of(answer, names)
    }
}
