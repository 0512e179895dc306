//! `holdfast changes`: the history of a running server on this machine.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::agent::Console;
use crate::cli::ChangesArgs;
use crate::local::{Local, at};
use crate::server;
use crate::signals::Stop;

/// How often `--follow` asks.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);
/// Items asked for in one page.
const PAGE_ITEMS: usize = 500;
/// Ids remembered so that `--follow` prints each once.
const PRINTED_MAX: usize = 100_000;

/// Print.
pub(crate) async fn run(args: &ChangesArgs) -> anyhow::Result<()> {
    let mut stop = Stop::listen()?;
    let local = Local::open(&server::socket(&args.data.data))?;
    let console = Console::new();
    let mut printed = HashSet::new();
    let mut wanted = args.limit as usize;
    loop {
        let items = match fetch(&local, args, &printed, wanted).await {
            Ok(items) => items,
            // A server that restarts is asked again; the first question must be answered.
            Err(error) if !printed.is_empty() => {
                tracing::warn!("{error:#}; asking again");
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        for item in items.iter().rev() {
            console.line(&if args.json { item.to_string() } else { line(item) });
        }
        if !args.follow {
            return Ok(());
        }
        if printed.len() > PRINTED_MAX {
            printed.clear();
        }
        printed.extend(items.iter().map(id));
        wanted = usize::MAX;
        tokio::select! {
            () = tokio::time::sleep(FOLLOW_EVERY) => {}
            () = stop.wait() => return Ok(()),
        }
    }
}

/// Newest first: up to `wanted`, or, once something was printed, up to the first one printed.
async fn fetch(
    local: &Local,
    args: &ChangesArgs,
    printed: &HashSet<String>,
    wanted: usize,
) -> anyhow::Result<Vec<Value>> {
    let coverage = args.kind.as_deref() == Some("coverage");
    let mut items: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let limit = (wanted - items.len()).min(PAGE_ITEMS);
        let mut query = vec![("limit".to_owned(), limit.to_string())];
        let mut add = |name: &str, value: Option<String>| {
            query.extend(value.map(|value| (name.to_owned(), value)));
        };
        add("agents_list", args.agent.clone());
        add("path", args.path.clone());
        add("kind", args.kind.clone().filter(|_| !coverage));
        add("from", args.since.map(since));
        add("cursor", cursor);
        let answer = local.get(if coverage { "/coverage" } else { "/changes" }, &query).await?;
        let data = at(&answer, "/data");
        let page = at(data, "/affected_items").as_array().cloned().unwrap_or_default();
        for item in page {
            if printed.contains(&id(&item)) {
                return Ok(items);
            }
            items.push(item);
        }
        cursor = at(data, "/next_cursor").as_str().map(str::to_owned);
        if cursor.is_none() || items.len() >= wanted {
            return Ok(items);
        }
    }
}

/// Unique over all agents.
fn id(item: &Value) -> String {
    at(item, "/id").as_str().unwrap_or_default().to_owned()
}

fn since(age: Duration) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    model::timestamp::micros(now.saturating_sub(age).as_micros() as u64)
}

/// One change for people.
fn line(item: &Value) -> String {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let path = model::path::show_terminal(text(at(item, "/path")).as_bytes());
    let fields: Vec<&str> = at(item, "/changed_fields")
        .as_array()
        .map(|f| f.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let found = at(item, "/time");
    let time = if found.is_string() { found } else { at(item, "/to") };
    let mut line = format!(
        "{} {} {:<8} {path}",
        text(time),
        text(at(item, "/agent/id")),
        text(at(item, "/kind"))
    );
    if !fields.is_empty() {
        let _ = write!(line, " ({})", fields.join(", "));
    }
    if let Some(detail) = at(item, "/detail").as_str() {
        let _ = write!(line, " {}", model::path::show_terminal(detail.as_bytes()));
    }
    line
}
