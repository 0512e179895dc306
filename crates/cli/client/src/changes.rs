//! `holdfast changes`: the history of changes.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::bail;
use clap::Args;
use serde_json::Value;
use service::Console;
use service::Stop;

use crate::answer::at;
use crate::client::{Client, is_final};
use crate::connect::ConnectArgs;
use crate::names;

/// Polling interval of `--follow`.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);
/// Items asked for in one page.
const PAGE_ITEMS: usize = 500;

/// Arguments of `holdfast changes`.
#[derive(Debug, Args)]
pub struct ChangesArgs {
    /// Only changes of this agent, by number or name.
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// Only changes of this path and of everything below it.
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// Only changes of these kinds, separated by commas; coverage (gaps) only alone.
    #[arg(long, value_delimiter = ',', value_parser = ["created", "modified", "deleted", "moved", "transient", "coverage"])]
    kind: Vec<String>,
    /// Only changes with these causes, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = ["unexplained", "package", "deployment"])]
    cause: Vec<String>,
    /// Print unexplained changes first; each part newest first.
    #[arg(long, value_name = "ORDER", value_parser = ["unexplained"], conflicts_with = "follow")]
    sort: Option<String>,
    /// Only changes younger than this age (2h), or since this time (2026-01-31T12:00:00Z).
    #[arg(long, value_name = "AGE|TIME", value_parser = since)]
    since: Option<SystemTime>,
    /// Most lines to print before following.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Keep running and print new changes as they arrive.
    #[arg(long, short)]
    follow: bool,
    /// Print one JSON object per change.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Returns the time that is this long ago, or this time.
fn since(text: &str) -> Result<SystemTime, String> {
    if let Ok(age) = humantime::parse_duration(text) {
        return SystemTime::now().checked_sub(age).ok_or_else(|| "before the year 1970".into());
    }
    humantime::parse_rfc3339(text)
        .map_err(|_| "write an age such as 2h, or a time such as 2026-01-31T12:00:00Z".into())
}

pub(crate) async fn run(args: &ChangesArgs) -> anyhow::Result<()> {
    let mut stop = Stop::listen()?;
    let client = args.connect.client()?;
    // A removed agent has changes, but no name.
    let agent = match &args.agent {
        Some(given) => Some(names::agent(&client, given).await?),
        None => None,
    };
    let agent = agent.as_deref();
    let console = Console::new();
    // The arrival number up to which changes were printed. Following by arrival misses no change
    // that an agent reports late.
    let mut arrived: Option<u64> = None;
    loop {
        let fetched = tokio::select! {
            fetched = fetch(&client, args, agent, arrived) => fetched,
            () = stop.wait() => return Ok(()),
        };
        match fetched {
            Ok((mut items, newest)) => {
                if items.is_empty() && arrived.is_none() {
                    report_none(&client, args, agent).await?;
                }
                let text = |item: &Value| if args.json { item.to_string() } else { line(item) };
                if args.sort.is_none() {
                    items.reverse();
                }
                for item in &items {
                    console.line(&text(item));
                }
                arrived = Some(newest);
            }
            // Retry while a server restarts; only the first request must succeed.
            Err(error) if arrived.is_some() && !is_final(&error) => {
                tracing::warn!("{error:#}; asking again");
            }
            Err(error) => return Err(error),
        }
        if !args.follow {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(FOLLOW_EVERY) => {}
            () = stop.wait() => return Ok(()),
        }
    }
}

/// Returns the latest changes, or all that arrived since `arrived`, newest first, and the arrival
/// number after which the next call continues.
async fn fetch(
    client: &Client,
    args: &ChangesArgs,
    agent: Option<&str>,
    arrived: Option<u64>,
) -> anyhow::Result<(Vec<Value>, u64)> {
    let coverage = args.kind.iter().any(|kind| kind == "coverage");
    if coverage && (args.kind.len() > 1 || !args.cause.is_empty() || args.sort.is_some()) {
        bail!("--kind coverage cannot be combined with other kinds, --cause or --sort");
    }
    let wanted = if arrived.is_some() { usize::MAX } else { args.limit as usize };
    let mut items: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    let mut newest = None;
    loop {
        let limit = (wanted - items.len()).min(PAGE_ITEMS);
        let mut query = vec![("limit", limit.to_string())];
        let mut add = |name: &'static str, value: Option<String>| {
            query.extend(value.map(|value| (name, value)));
        };
        add("agents_list", agent.map(str::to_owned));
        let path = args.path.as_ref().map(|path| path.trim_end_matches('/').to_owned());
        // Everything is below /; the API refuses an empty beginning.
        add("path", path.filter(|path| !path.is_empty()));
        add("kind", Some(args.kind.join(",")).filter(|kinds| !coverage && !kinds.is_empty()));
        add("cause", Some(args.cause.join(",")).filter(|causes| !causes.is_empty()));
        add("sort", args.sort.clone());
        // The limit applies to the first request only: a change reported late may be old.
        add("from", args.since.filter(|_| arrived.is_none()).map(rfc3339));
        add("since", arrived.filter(|number| *number > 0).map(|number| number.to_string()));
        add("cursor", cursor);
        let answer = client.get(&[if coverage { "coverage" } else { "changes" }], &query).await?;
        let data = at(&answer, "/data");
        // Use the number of the first page: changes that arrive while further pages are read are
        // returned by the next call.
        newest = newest.or_else(|| at(data, "/newest").as_u64());
        let page = at(data, "/affected_items").as_array().cloned().unwrap_or_default();
        items.extend(
            page.into_iter().filter(|item| is_within(at(item, "/path"), args.path.as_deref())),
        );
        cursor = at(data, "/next_cursor").as_str().map(str::to_owned);
        if cursor.is_none() || items.len() >= wanted {
            return Ok((items, newest.or(arrived).unwrap_or_default()));
        }
    }
}

/// Reports that there are no changes. Fails if a named agent is not registered; a removed agent has
/// some.
async fn report_none(
    client: &Client,
    args: &ChangesArgs,
    agent: Option<&str>,
) -> anyhow::Result<()> {
    if let Some(agent) = agent {
        let query = [("agents_list", agent.to_owned())];
        let answer = client.get(&["agents"], &query).await?;
        if at(&answer, "/data/total_affected_items").as_u64() == Some(0) {
            bail!("{agent}: the server has no such agent");
        }
    }
    if !args.json && !args.follow {
        let _ = writeln!(std::io::stderr(), "nothing found");
    }
    Ok(())
}

/// Returns true if a path is `path` or lies below it. The API selects by the beginning of the text.
pub(crate) fn is_within(found: &Value, path: Option<&str>) -> bool {
    let Some(path) = path.map(|path| path.trim_end_matches('/')) else { return true };
    let rest = found.as_str().and_then(|found| found.strip_prefix(path));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn rfc3339(time: SystemTime) -> String {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    model::timestamp::micros(since_epoch.as_micros() as u64)
}

/// Formats one change as a line of text.
fn line(item: &Value) -> String {
    let text = |pointer: &str| at(item, pointer).as_str().unwrap_or_default();
    let show = |text: &str| model::path::show_terminal(text.as_bytes());
    let join = |values: &Value| {
        let texts = values.as_array().into_iter().flatten().filter_map(Value::as_str);
        texts.collect::<Vec<_>>().join(", ")
    };
    let (found, from) = (text("/time"), text("/from"));
    let mut line = match found {
        "" => format!("{from} to {}", at(item, "/to").as_str().unwrap_or("now")),
        found => found.to_owned(),
    };
    let (agent, kind, path) = (text("/agent/id"), text("/kind"), show(text("/path")));
    let _ = write!(line, " {agent} {kind:<8} {path}");
    let by = [text("/user/name"), &program(at(item, "/process"))].join(" ");
    let count = at(item, "/transient/count").as_u64();
    let names = join(at(item, "/transient/names"));
    let transient = count.map(|n| format!("{n} files existed for a moment: {names}"));
    for (before, part, after) in [
        (" from ", if found.is_empty() { "" } else { from }, ""),
        (" (", &join(at(item, "/changed_fields")), ")"),
        (" by ", by.trim(), ""),
        (" ", &package(item).unwrap_or_default(), ""),
        (" ", &transient.unwrap_or_default(), ""),
        (" explained by ", &explanation(at(item, "/cause")), ""),
        (" ", text("/detail"), ""),
    ] {
        if !part.is_empty() {
            let _ = write!(line, "{before}{}{after}", show(part));
        }
    }
    line
}

/// Returns the name of a process's program, or those that come into question.
fn program(process: &Value) -> String {
    if let Some(name) = at(process, "/name").as_str() {
        return name.to_owned();
    }
    let candidates = at(process, "/candidates").as_array();
    let mut names: Vec<&str> =
        candidates.into_iter().flatten().filter_map(|one| at(one, "/name").as_str()).collect();
    names.dedup();
    names.join(" or ")
}

/// Formats the cause of a change; empty if it is unexplained.
fn explanation(cause: &Value) -> String {
    let parts = ["/kind", "/tool", "/package/name", "/package/version"].map(|part| at(cause, part));
    let texts = parts.into_iter().filter_map(Value::as_str).filter(|text| !text.is_empty());
    let text = texts.collect::<Vec<_>>().join(" ");
    let attention = at(cause, "/attention").as_bool() == Some(true);
    match (text.starts_with("unexplained"), attention) {
        (true, _) => String::new(),
        (false, true) => format!("{text}, which needs attention"),
        (false, false) => text,
    }
}

/// Formats the version before and after, the architecture and the vendor of a package; `None` for a
/// change of something else. Only packages have a version.
fn package(item: &Value) -> Option<String> {
    let version = |when: &str| at(item, when).get("version").and_then(Value::as_str);
    let (before, after) = (version("/before"), version("/after"));
    let mut text = match (before, after) {
        (Some(before), Some(after)) if before != after => format!("version {before} to {after}"),
        (_, Some(version)) | (Some(version), None) => format!("version {version}"),
        (None, None) => return None,
    };
    let now = at(item, if after.is_some() { "/after" } else { "/before" });
    for name in ["architecture", "vendor"] {
        if let Some(value) = now.get(name).and_then(Value::as_str).filter(|v| !v.is_empty()) {
            let _ = write!(text, ", {name} {value}");
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn package_change_is_printed_with_its_versions() {
        let old = json!({"name": "bash", "version": "5.1", "architecture": "amd64"});
        let new = json!({"version": "5.2", "architecture": "amd64", "vendor": "Debian"});
        for (before, after, expected) in [
            (&old, &new, Some("version 5.1 to 5.2, architecture amd64, vendor Debian")),
            (&Value::Null, &new, Some("version 5.2, architecture amd64, vendor Debian")),
            (&old, &Value::Null, Some("version 5.1, architecture amd64")),
            (&Value::Null, &json!({"path": "/a"}), None),
        ] {
            let item = json!({"before": before, "after": after});
            assert_eq!(package(&item).as_deref(), expected, "{item}");
        }
    }

    #[test]
    fn cause_is_printed_unless_the_change_is_unexplained() {
        let package = json!({"name": "bash", "version": "5.2"});
        let cause = json!({"kind": "package", "tool": "apt", "package": package});
        assert_eq!(explanation(&cause), "package apt bash 5.2");
        assert_eq!(explanation(&json!({"kind": "unexplained", "detail": "no match"})), "");
        let item = json!({"time": "T", "agent": {"id": "001"}, "kind": "modified", "path": "/a",
            "changed_fields": ["size", "mode"], "cause": cause});
        let expected = "T 001 modified /a (size, mode) explained by package apt bash 5.2";
        assert_eq!(line(&item), expected);
    }

    #[test]
    fn path_selects_itself_and_everything_below_it() {
        let item = |path: &str| json!(path);
        for path in ["/etc", "/etc/"] {
            assert!(is_within(&item("/etc"), Some(path)));
            assert!(is_within(&item("/etc/passwd"), Some(path)));
            assert!(!is_within(&item("/etc2/passwd"), Some(path)));
        }
        assert!(is_within(&item("/etc2"), Some("/")) && is_within(&item(""), None));
    }
}
