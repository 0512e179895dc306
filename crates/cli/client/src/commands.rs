//! `holdfast rescan`, `restart` and `commands`: commands given to agents, and their outcomes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};
use service::Console;
use service::Stop;

use crate::answer::{at, expect_all_of, fail_with, items, text};
use crate::arguments::{ActArgs, ListArgs};
use crate::client::{Client, is_final};
use crate::{names, table};

/// Agents named in one request, so that a proxy accepts the length of its address.
const REQUEST_AGENTS_MAX: usize = 800;
/// Polling interval of `--wait`.
const WAIT_EVERY: Duration = Duration::from_millis(500);
/// Outcomes that the API lists at most; more than a fleet has agents.
const OUTCOMES_MAX: u32 = 100_000;

/// The agents that a command is for.
#[derive(Debug, Args)]
pub struct TargetArgs {
    /// Numbers or names of agents.
    #[arg(value_name = "AGENT", required_unless_present_any = ["group", "all"])]
    agent: Vec<String>,
    /// All active agents of this group.
    #[arg(long, value_name = "GROUP", conflicts_with = "agent")]
    group: Option<String>,
    /// All active agents.
    #[arg(long, conflicts_with_all = ["agent", "group"])]
    all: bool,
    /// Wait until every agent has answered.
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    act: ActArgs,
}

/// Gives a command to agents.
pub(crate) async fn give_command(args: &TargetArgs, kind: &str) -> anyhow::Result<()> {
    let client = args.act.connect.client()?;
    let path: &[&str] = if kind == "rescan" { &["syscheck"] } else { &["agents", "restart"] };
    let mut names = names::agents(&client, &args.agent).await?;
    let mut failed = fail_with(std::mem::take(&mut names.unknown)).err();
    let mut agents: Vec<String> = names.given.iter().map(|(number, _)| number.clone()).collect();
    if let Some(group) = &args.group {
        agents = active_agents(&client, group).await?;
    }
    let mut requests: Vec<Vec<(&str, String)>> = agents
        .chunks(REQUEST_AGENTS_MAX)
        .map(|some| vec![("agents_list", some.join(","))])
        .collect();
    if args.all {
        requests.push(Vec::new());
    }
    let mut given = Vec::new();
    for query in requests {
        let answer = client.put(path, &query).await?;
        failed = expect_all_of(&answer, &names).err().or(failed);
        let count = at(&answer, "/data/total_affected_items").as_u64().unwrap_or_default();
        let Some(command) = at(&answer, "/data/command").as_u64() else { continue };
        given.push(command);
        Console::new().line(&if args.act.json {
            json!({"command": command, "kind": kind, "agents": count}).to_string()
        } else {
            format!("{kind}: command {command} for {count} agent(s)")
        });
    }
    if given.is_empty() && failed.is_none() {
        bail!("{kind}: no active agent");
    }
    for command in given.into_iter().filter(|_| args.wait) {
        failed = wait(&client, command, args.act.json).await.err().or(failed);
    }
    failed.map_or(Ok(()), Err)
}

/// Returns the numbers of the active agents of a group.
async fn active_agents(client: &Client, group: &str) -> anyhow::Result<Vec<String>> {
    let query = [("status", "active".to_owned()), ("select", "id".to_owned())];
    let found = client.list(&["groups", group, "agents"], &query, usize::MAX).await?.items;
    Ok(found.iter().filter_map(|item| at(item, "/id").as_str()).map(str::to_owned).collect())
}

/// Waits until no outcome of a command is open, then prints them.
///
/// # Errors
/// If an agent failed or did not answer in time.
async fn wait(client: &Client, command: u64, json: bool) -> anyhow::Result<()> {
    let mut stop = Stop::listen()?;
    let path = ["commands", &command.to_string()];
    let counts = loop {
        let query = [("limit", "1".to_owned())];
        let stopped = || anyhow!("command {command}: stopped waiting; it stays in force");
        let answer = tokio::select! {
            answer = client.get(&path, &query) => answer,
            () = stop.wait() => return Err(stopped()),
        };
        match answer {
            Ok(answer) => {
                let counts = at(&answer, "/data/command/counts").clone();
                let of =
                    |state: &str| counts.get(state).and_then(Value::as_u64).unwrap_or_default();
                if of("pending") + of("sent") == 0 {
                    break counts;
                }
            }
            Err(error) if is_final(&error) => return Err(error),
            // The server may be starting again.
            Err(error) => tracing::warn!("{error:#}; asking again"),
        }
        tokio::select! {
            () = tokio::time::sleep(WAIT_EVERY) => {}
            () = stop.wait() => return Err(stopped()),
        }
    };
    let counts: BTreeMap<String, u64> = serde_json::from_value(counts)?;
    print_outcomes(client, command, OUTCOMES_MAX, json).await?;
    let unfinished: u64 =
        ["failed", "expired", "cancelled"].iter().filter_map(|state| counts.get(*state)).sum();
    if unfinished > 0 {
        bail!("command {command}: not carried out by {unfinished} agent(s)");
    }
    Ok(())
}

/// Arguments of `holdfast commands`.
#[derive(Debug, Args)]
pub struct CommandsArgs {
    /// Number of the command whose outcomes are printed.
    #[arg(value_name = "COMMAND")]
    command: Option<u64>,
    /// Cancel it for the agents that have not answered.
    #[arg(long, requires = "command")]
    cancel: bool,
    #[command(flatten)]
    list: ListArgs,
}

pub(crate) async fn list(args: &CommandsArgs) -> anyhow::Result<()> {
    let client = args.list.connect.client()?;
    match args.command {
        Some(command) if args.cancel => {
            let path = ["commands", &command.to_string()];
            let answer = client.send(client.request(Method::DELETE, &path, &[])?).await?;
            Console::new().line(&text(at(&answer, "/message")));
            Ok(())
        }
        Some(command) => print_outcomes(&client, command, args.list.limit, args.list.json).await,
        None => {
            let query = [("limit", args.list.limit.min(OUTCOMES_MAX).to_string())];
            let found = items(&client.get(&["commands"], &query).await?);
            args.list.print_latest(
                &found,
                &[
                    ("id", |item| text(at(item, "/id"))),
                    ("command", |item| text(at(item, "/kind"))),
                    ("by", |item| text(at(item, "/user"))),
                    ("created", |item| text(at(item, "/created"))),
                    ("agents", |item| text(at(item, "/counts/total"))),
                    ("outcomes", |item| outcomes(at(item, "/counts"))),
                ],
            );
            Ok(())
        }
    }
}

/// Formats the counts of outcomes that are not 0.
fn outcomes(counts: &Value) -> String {
    let counts = counts.as_object().into_iter().flatten();
    let some = counts.filter(|(name, n)| *name != "total" && n.as_u64() != Some(0));
    some.map(|(name, n)| format!("{n} {name}")).collect::<Vec<_>>().join(", ")
}

/// Adds the names of the agents to outcomes. A removed agent has none, and a caller may be allowed to
/// read outcomes alone.
async fn add_names(client: &Client, outcomes: &mut [Value]) {
    let query = [("select", "id,name".to_owned())];
    let agents = client.list(&["agents"], &query, usize::MAX).await.unwrap_or_default().items;
    let names: BTreeMap<&str, &Value> = agents
        .iter()
        .filter_map(|agent| Some((at(agent, "/id").as_str()?, at(agent, "/name"))))
        .collect();
    for outcome in outcomes {
        let name = at(outcome, "/agent").as_str().and_then(|id| names.get(id).copied()).cloned();
        if let (Some(name), Some(fields)) = (name, outcome.as_object_mut()) {
            fields.insert("name".into(), name);
        }
    }
}

async fn print_outcomes(
    client: &Client,
    command: u64,
    limit: u32,
    json: bool,
) -> anyhow::Result<()> {
    let query = [("limit", limit.min(OUTCOMES_MAX).to_string())];
    let answer = client.get(&["commands", &command.to_string()], &query).await?;
    let mut found = at(&answer, "/data/outcomes").as_array().cloned().unwrap_or_default();
    if !json && !found.is_empty() {
        add_names(client, &mut found).await;
    }
    let total = at(&answer, "/data/command/counts/total").as_u64().unwrap_or_default();
    table::print(
        json,
        &found,
        total,
        &[
            ("agent", |item| text(at(item, "/agent"))),
            ("name", |item| text(at(item, "/name"))),
            ("outcome", |item| text(at(item, "/state"))),
            ("time", |item| text(at(item, "/time"))),
            ("detail", |item| text(at(item, "/detail"))),
        ],
    );
    Ok(())
}
