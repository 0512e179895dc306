//! `holdfast groups`: groups, their members and their configuration.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};
use service::Console;

use crate::answer::{at, expect_all, fail_with, text};
use crate::arguments::{ActArgs, ListArgs};
use crate::names;

/// Arguments of `holdfast groups`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct GroupsArgs {
    #[command(subcommand)]
    command: Option<GroupsCommand>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Subcommand)]
enum GroupsCommand {
    /// Create a group.
    Create(GroupArgs),
    /// Delete groups. Their agents stay; one that is left without a group joins default.
    Delete(DeleteArgs),
    /// List the agents of a group.
    Show(ShowArgs),
    /// Add agents to a group.
    Add(MembersArgs),
    /// Remove agents from a group.
    Remove(MembersArgs),
    /// Print the configuration of a group, or replace it by a file (.toml, or agent.conf as XML).
    Configure(ConfigureArgs),
}

#[derive(Debug, Args)]
struct GroupArgs {
    /// Name of the group: letters, digits, dot, dash and underscore.
    #[arg(value_name = "GROUP")]
    group: String,
    #[command(flatten)]
    act: ActArgs,
}

#[derive(Debug, Args)]
struct DeleteArgs {
    /// Names of the groups.
    #[arg(value_name = "GROUP", required = true)]
    group: Vec<String>,
    #[command(flatten)]
    act: ActArgs,
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// Name of the group.
    #[arg(value_name = "GROUP")]
    group: String,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Args)]
struct MembersArgs {
    /// Name of the group.
    #[arg(value_name = "GROUP")]
    group: String,
    /// Numbers or names of the agents.
    #[arg(value_name = "AGENT", required = true)]
    agent: Vec<String>,
    #[command(flatten)]
    act: ActArgs,
}

#[derive(Debug, Args)]
struct ConfigureArgs {
    /// Name of the group.
    #[arg(value_name = "GROUP")]
    group: String,
    /// The new configuration.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    act: ActArgs,
}

pub(crate) async fn run(args: GroupsArgs) -> anyhow::Result<()> {
    match args.command {
        None => {
            let client = args.list.connect.client()?;
            args.list
                .print(
                    &client,
                    &["groups"],
                    &[],
                    &[
                        ("name", |item| text(at(item, "/name"))),
                        ("agents", |item| text(at(item, "/count"))),
                    ],
                )
                .await
        }
        Some(GroupsCommand::Create(args)) => {
            let client = args.act.connect.client()?;
            let request = client.request(Method::POST, &["groups"], &[])?;
            let answer = client.send(request.json(&json!({"group_id": args.group}))).await?;
            print_done(&args.act, &answer, &format!("created: group {}", args.group))
        }
        Some(GroupsCommand::Delete(args)) => {
            // The API takes these as several groups.
            if let Some(name) = args.group.iter().find(|name| *name == "all" || name.contains(','))
            {
                bail!("{name}: not the name of a group; name each group");
            }
            let client = args.act.connect.client()?;
            let query = [("groups_list", args.group.join(","))];
            let request = client.request(Method::DELETE, &["groups"], &query)?;
            args.act.report(&client.send(request).await?, "deleted")
        }
        Some(GroupsCommand::Show(args)) => {
            let client = args.list.connect.client()?;
            let columns: &[crate::table::Column] = &[
                ("id", |item| text(at(item, "/id"))),
                ("name", |item| text(at(item, "/name"))),
                ("status", |item| text(at(item, "/status"))),
                ("configuration", |item| text(at(item, "/group_config_status"))),
            ];
            args.list.print(&client, &["groups", &args.group, "agents"], &[], columns).await
        }
        Some(GroupsCommand::Add(args)) => members(&args, Method::PUT, "added").await,
        Some(GroupsCommand::Remove(args)) => members(&args, Method::DELETE, "removed").await,
        Some(GroupsCommand::Configure(args)) => configure(&args).await,
    }
}

/// Adds agents to a group, or removes them from it.
async fn members(args: &MembersArgs, method: Method, done: &str) -> anyhow::Result<()> {
    let client = args.act.connect.client()?;
    let names = names::agents(&client, &args.agent).await?;
    if names.given.is_empty() {
        return fail_with(names.unknown);
    }
    let query = [("agents_list", names.numbers()), ("group_id", args.group.clone())];
    let answer = client.send(client.request(method, &["agents", "group"], &query)?).await?;
    args.act.report_of(&answer, done, &names)
}

async fn configure(args: &ConfigureArgs) -> anyhow::Result<()> {
    let client = args.act.connect.client()?;
    let Some(file) = &args.file else {
        let path = ["groups", &args.group, "files", "agent.conf"];
        let raw = [("raw", (!args.act.json).to_string())];
        let text = client.send_for_text(client.request(Method::GET, &path, &raw)?).await?;
        Console::new().line(text.trim_end());
        return Ok(());
    };
    let body = std::fs::read(file).with_context(|| file.display().to_string())?;
    let path = ["groups", &args.group, "configuration"];
    let request = client.request(Method::PUT, &path, &[])?;
    let request = request.header("content-type", format_of(file)).body(body);
    let answer = client.send(request).await.with_context(|| file.display().to_string())?;
    print_done(&args.act, &answer, &format!("configured: group {}", args.group))
}

/// Returns the content type of a configuration by the name of its file.
fn format_of(file: &Path) -> &'static str {
    if file.extension().is_some_and(|end| end == "toml") {
        "application/toml"
    } else {
        "application/xml"
    }
}

/// Prints what was done to a single object.
fn print_done(act: &ActArgs, answer: &Value, done: &str) -> anyhow::Result<()> {
    expect_all(answer)?;
    Console::new().line(&if act.json { at(answer, "/data").to_string() } else { done.to_owned() });
    Ok(())
}
