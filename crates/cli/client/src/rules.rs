//! `holdfast rules`: detection rules (Sigma).

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use reqwest::Method;
use service::Console;

use crate::answer::{at, expect_all, text};
use crate::arguments::{ActArgs, ListArgs};
use crate::table;

/// Arguments of `holdfast rules`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct RulesArgs {
    #[command(subcommand)]
    command: Option<RulesCommand>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Subcommand)]
enum RulesCommand {
    /// Print a rule.
    Show(RuleArgs),
    /// Store a file of one rule. The server checks it; no rule is evaluated yet.
    Add(AddArgs),
    /// Delete a rule.
    Delete(RuleArgs),
}

#[derive(Debug, Args)]
struct RuleArgs {
    /// Name of the rule's file, such as `cron_changed.yml`.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    act: ActArgs,
}

#[derive(Debug, Args)]
struct AddArgs {
    /// The file; its name must end in .yml.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace the file of the same name.
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    act: ActArgs,
}

pub(crate) async fn run(args: RulesArgs) -> anyhow::Result<()> {
    match args.command {
        None => {
            let client = args.list.connect.client()?;
            let columns: &[table::Column] = &[
                ("rule", |item| text(at(item, "/filename"))),
                ("status", |item| status(&text(at(item, "/status")))),
            ];
            args.list.print(&client, &["rules", "files"], &[], columns).await
        }
        Some(RulesCommand::Show(args)) => {
            let client = args.act.connect.client()?;
            let raw = [("raw", (!args.act.json).to_string())];
            let request = client.request(Method::GET, &["rules", "files", &args.name], &raw)?;
            let rule = client.send_for_text(request).await?;
            // A rule that there is none of has no text, only an answer that says so.
            if let Ok(answer) = serde_json::from_str(&rule) {
                expect_all(&answer)?;
            }
            Console::new().line(rule.trim_end());
            Ok(())
        }
        Some(RulesCommand::Add(args)) => add(&args).await,
        Some(RulesCommand::Delete(args)) => {
            let client = args.act.connect.client()?;
            let request = client.request(Method::DELETE, &["rules", "files", &args.name], &[])?;
            args.act.report(&client.send(request).await?, "deleted")
        }
    }
}

/// Returns the status of a rule in words: the API calls a valid rule `enabled`, but none is evaluated yet.
fn status(word: &str) -> String {
    if word == "enabled" { "stored" } else { word }.to_owned()
}

async fn add(args: &AddArgs) -> anyhow::Result<()> {
    let file = args.file.display();
    let Some(name) = args.file.file_name().and_then(|name| name.to_str()) else {
        bail!("{file}: name a file that ends in .yml");
    };
    let body = std::fs::read(&args.file).with_context(|| file.to_string())?;
    let client = args.act.connect.client()?;
    let query = [("overwrite", args.replace.to_string())];
    let request = client.request(Method::PUT, &["rules", "files", name], &query)?;
    let request = request.header("content-type", "application/octet-stream").body(body);
    let answer = client.send(request).await.with_context(|| file.to_string())?;
    args.act.report(&answer, "stored")
}
