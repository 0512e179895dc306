//! `holdfast agents`: the registry of agents.

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, Subcommand};
use reqwest::Method;

use crate::answer::{at, fail_with, items, text};
use crate::arguments::{ActArgs, ListArgs};
use crate::connect::DataArg;
use crate::{names, table};

/// Arguments of `holdfast agents`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct AgentsArgs {
    #[command(subcommand)]
    pub command: Option<AgentsCommand>,
    /// Only agents with these statuses, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = ["active", "disconnected", "pending", "never_connected"])]
    status: Vec<String>,
    /// Only agents that are not heard although they did not say goodbye.
    #[arg(long)]
    silent: bool,
    /// Only agents of this group.
    #[arg(long)]
    group: Option<String>,
    /// Only agents with this text in one of their fields.
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

/// Actions on agents.
#[derive(Debug, Subcommand)]
pub enum AgentsCommand {
    /// Print what the server knows about an agent, and how it watches its roots.
    Show(AgentArgs),
    /// Remove agents. Their certificates are refused at once, their documents are deleted, their history
    /// is kept.
    #[command(after_help = "Example:\n  holdfast agents remove web1")]
    Remove(RemoveArgs),
    /// Import the agents of a 4.x server from its client.keys, with their numbers, names, addresses
    /// and keys. If one of them is refused, none is imported. The server must not be running.
    #[command(after_help = "Example:\n  holdfast agents import client.keys --data ./data")]
    Import(ImportArgs),
}

/// One agent.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// Number or name of the agent.
    #[arg(value_name = "AGENT")]
    agent: String,
    #[command(flatten)]
    act: ActArgs,
}

/// Arguments of `holdfast agents remove`.
#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// Numbers or names of the agents.
    #[arg(value_name = "AGENT", required = true)]
    agent: Vec<String>,
    /// Free their numbers as well: another agent may get one. Their metrics are deleted.
    #[arg(long)]
    purge: bool,
    #[command(flatten)]
    act: ActArgs,
}

/// Arguments of `holdfast agents import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The client.keys of the other server.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub data: DataArg,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

pub(crate) async fn run(args: AgentsArgs) -> anyhow::Result<()> {
    match &args.command {
        None => list(&args).await,
        Some(AgentsCommand::Show(args)) => show(args).await,
        Some(AgentsCommand::Remove(args)) => remove(args).await,
        // It changes the registry of a server that does not run.
        Some(AgentsCommand::Import(_)) => bail!("agents import: needs the server's data folder"),
    }
}

async fn list(args: &AgentsArgs) -> anyhow::Result<()> {
    let client = args.list.connect.client()?;
    let given = [
        ("status", Some(args.status.join(",")).filter(|some| !some.is_empty())),
        ("silent", args.silent.then(|| "true".to_owned())),
        ("group", args.group.clone()),
        ("search", args.search.clone()),
        // The server itself is not an agent.
        ("q", Some("id!=000".to_owned())),
    ];
    let query: Vec<_> = given.into_iter().filter_map(|(name, v)| Some((name, v?))).collect();
    let columns: &[table::Column] = &[
        ("id", |item| text(at(item, "/id"))),
        ("name", |item| text(at(item, "/name"))),
        ("status", |item| status(item)),
        ("address", |item| text(at(item, "/ip"))),
        ("system", |item| system(item)),
        ("version", |item| text(at(item, "/version"))),
        ("groups", |item| text(at(item, "/group"))),
        ("last heard", |item| text(at(item, "/lastKeepAlive"))),
    ];
    args.list.print(&client, &["agents"], &query, columns).await
}

/// Formats the status, with `silent` or `left` if it is one of both.
fn status(item: &serde_json::Value) -> String {
    match ["/status", "/state"].map(|part| at(item, part)) {
        [status, state] if state.is_string() => format!("{}, {}", text(status), text(state)),
        [status, _] => text(status),
    }
}

/// Formats name and version of the operating system.
fn system(item: &serde_json::Value) -> String {
    match ["/os/name", "/os/version"].map(|part| at(item, part)) {
        [name, version] if version.is_string() => format!("{} {}", text(name), text(version)),
        [name, _] => text(name),
    }
}

async fn show(args: &AgentArgs) -> anyhow::Result<()> {
    let client = args.act.connect.client()?;
    let number = names::agent(&client, &args.agent).await?;
    let query = [("agents_list", number.clone())];
    let Some(mut agent) = items(&client.get(&["agents"], &query).await?).pop() else {
        bail!("{}: the server has no such agent; `holdfast agents` lists them", args.agent);
    };
    let watch = client.get(&["coverage", "state"], &query).await?;
    let watch = at(&watch, "/data/affected_items/0").clone();
    let roots = at(&watch, "/roots").as_array().cloned().unwrap_or_default();
    let scan = client.get(&["syscheck", &number, "last_scan"], &[]).await?;
    if let Some(fields) = agent.as_object_mut() {
        fields.insert("last_scan".into(), at(&scan, "/data/affected_items/0").clone());
        fields.insert("watch".into(), watch);
        if number == names::SERVER && !args.act.json {
            // The API has a time in the far future there: the server does not report to itself.
            fields.remove("lastKeepAlive");
        }
    }
    let fields = [
        ("id", "/id"),
        ("name", "/name"),
        ("status", "/status"),
        ("state", "/state"),
        ("silent since", "/silent_since"),
        ("removed after a silence of, seconds", "/ephemeral_s"),
        ("address", "/ip"),
        ("system", "/os/name"),
        ("system version", "/os/version"),
        ("architecture", "/os/arch"),
        ("version", "/version"),
        ("groups", "/group"),
        ("groups' configuration", "/group_config_status"),
        ("enrolled", "/dateAdd"),
        ("last heard", "/lastKeepAlive"),
        ("last scan began", "/last_scan/start"),
        ("last scan ended", "/last_scan/end"),
        ("next scan", "/watch/next_scan"),
        ("changes have a process", "/watch/attribution"),
        ("processes are missing because", "/watch/attribution_reason"),
    ];
    table::print_object(args.act.json, &agent, &fields);
    if !args.act.json && !roots.is_empty() {
        let all = roots.len() as u64;
        let columns: &[table::Column] = &[
            ("root", |item| text(at(item, "/root"))),
            ("state", |item| text(at(item, "/state"))),
            ("method", |item| text(at(item, "/method"))),
            ("reason", |item| text(at(item, "/reason"))),
            ("remedy", |item| text(at(item, "/remedy"))),
        ];
        table::print(false, &roots, all, columns);
    }
    Ok(())
}

async fn remove(args: &RemoveArgs) -> anyhow::Result<()> {
    let client = args.act.connect.client()?;
    let names = names::agents(&client, &args.agent).await?;
    if names.given.is_empty() {
        return fail_with(names.unknown);
    }
    let query = [
        ("agents_list", names.numbers()),
        ("status", "all".to_owned()),
        // The default of the operation spares agents that were heard within the last 7 days.
        ("older_than", "0s".to_owned()),
        ("purge", args.purge.to_string()),
    ];
    let answer = client.send(client.request(Method::DELETE, &["agents"], &query)?).await?;
    args.act.report_of(&answer, "removed, their history is kept", &names)
}
