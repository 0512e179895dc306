//! Arguments that several commands share: of a list, and of an action.

use std::io::{Write as _, stderr};

use clap::Args;
use serde_json::Value;
use service::Console;

use crate::answer::{at, expect_all, items, text};
use crate::client::Client;
use crate::connect::ConnectArgs;
use crate::table::{self, Column};

/// Arguments of commands that print a list.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Most items to print.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
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
        let (items, total) = client.list(path, query, self.limit as usize).await?;
        self.print_items(&items, total, columns);
        Ok(())
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
        let items = items(answer);
        if self.json {
            Console::new().line(&at(answer, "/data").to_string());
        } else if !items.is_empty() {
            Console::new().line(&format!("{done}: {}", text(&Value::Array(items))));
        }
        expect_all(answer)
    }
}
