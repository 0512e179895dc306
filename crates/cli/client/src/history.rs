//! The history of agents, changes or gaps: which of it is asked for, and printing it while it grows.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::bail;
use clap::Args;
use serde_json::Value;
use service::Console;
use service::Stop;

use crate::answer::{at, expect_all};
use crate::arguments::whole;
use crate::client::{Client, is_final};
use crate::connect::ConnectArgs;
use crate::names;

/// Polling interval of `--follow`.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);
/// Items asked for in one page.
const PAGE_ITEMS: usize = 500;

/// Arguments of commands that print a history.
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// Only entries of this agent, by number or name.
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// Only entries of the agents that are in this group now.
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Only entries of this path and of everything below it.
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// Only entries since this age (2h), this day (2026-01-31, from 0:00 UTC) or this time
    /// (2026-01-31T12:00:00Z).
    #[arg(long, value_name = "AGE|TIME", value_parser = moment)]
    since: Option<SystemTime>,
    /// Only entries before this age, day or time; see --since.
    #[arg(long, value_name = "AGE|TIME", value_parser = moment, conflicts_with = "follow")]
    until: Option<SystemTime>,
    /// Most lines to print before following.
    #[arg(long, default_value_t = 100, value_parser = whole::<1, 100_000>)]
    limit: u32,
    /// Keep running and print new ones as they arrive.
    #[arg(long, short)]
    follow: bool,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Returns the time that is this long ago, the beginning of this day in UTC, or this time.
fn moment(text: &str) -> Result<SystemTime, String> {
    if let Ok(age) = humantime::parse_duration(text) {
        return SystemTime::now().checked_sub(age).ok_or_else(|| "before the year 1970".into());
    }
    humantime::parse_rfc3339(text)
        .or_else(|_| humantime::parse_rfc3339(&format!("{text}T00:00:00Z")))
        .map_err(|_| {
            "write an age such as 2h, a day such as 2026-01-31, or a time such as \
             2026-01-31T12:00:00Z"
                .into()
        })
}

/// A history of the API and the part of it that is asked for.
pub(crate) struct History {
    /// Last part of the path: `changes` or `coverage`.
    pub(crate) resource: &'static str,
    /// Parameters that only this history has.
    pub(crate) filters: Vec<(&'static str, String)>,
    /// True to print the newest item last, false to keep the API's order.
    pub(crate) newest_last: bool,
    /// Formats an item.
    pub(crate) line: fn(&Value) -> String,
}

impl History {
    /// Prints the latest items and, with `--follow`, those that arrive.
    pub(crate) async fn print(&self, args: &HistoryArgs) -> anyhow::Result<()> {
        let mut stop = Stop::listen()?;
        let client = args.connect.client()?;
        // A removed agent has a history, but no name.
        let agent = match &args.agent {
            Some(given) => Some(names::agent(&client, given).await?),
            None => None,
        };
        let agent = agent.as_deref();
        let console = Console::new();
        // The arrival number up to which items were printed. Following by arrival misses no item
        // that an agent reports late.
        let mut arrived: Option<u64> = None;
        loop {
            let fetched = tokio::select! {
                fetched = self.fetch(&client, args, agent, arrived) => fetched,
                () = stop.wait() => return Ok(()),
            };
            match fetched {
                Ok((items, newest)) if items.is_empty() && arrived.is_none() => {
                    report_none(&client, args, agent).await?;
                    arrived = Some(newest);
                }
                Ok((items, newest)) => {
                    self.print_items(items, args.json, &console);
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

    fn print_items(&self, mut items: Vec<Value>, as_json: bool, console: &Console) {
        if self.newest_last {
            items.reverse();
        }
        for item in &items {
            console.line(&if as_json { item.to_string() } else { (self.line)(item) });
        }
    }

    /// Returns the latest items, or all that arrived since `arrived`, newest first, and the arrival
    /// number after which the next call continues.
    async fn fetch(
        &self,
        client: &Client,
        args: &HistoryArgs,
        agent: Option<&str>,
        arrived: Option<u64>,
    ) -> anyhow::Result<(Vec<Value>, u64)> {
        let wanted = if arrived.is_some() { usize::MAX } else { args.limit as usize };
        let mut items: Vec<Value> = Vec::new();
        let mut cursor: Option<String> = None;
        let mut newest = None;
        loop {
            let limit = (wanted - items.len()).min(PAGE_ITEMS);
            let mut query = vec![("limit", limit.to_string())];
            query.extend(self.filters.iter().cloned());
            let mut add = |name: &'static str, value: Option<String>| {
                query.extend(value.map(|value| (name, value)));
            };
            add("agents_list", agent.map(str::to_owned));
            add("group", args.group.clone());
            let path = args.path.as_ref().map(|path| path.trim_end_matches('/').to_owned());
            // Everything is below /; the API refuses an empty beginning.
            add("path", path.filter(|path| !path.is_empty()));
            // The limits apply to the first request only: a change reported late may be old.
            add("from", args.since.filter(|_| arrived.is_none()).map(rfc3339));
            add("to", args.until.map(rfc3339));
            add("since", arrived.filter(|number| *number > 0).map(|number| number.to_string()));
            add("cursor", cursor);
            let answer = client.get(&[self.resource], &query).await?;
            let data = at(&answer, "/data");
            // Use the number of the first page: items that arrive while further pages are read are
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
}

/// Reports that there is no history. Fails if a named agent is not registered, or if there is no such
/// group; a removed agent has a history.
async fn report_none(
    client: &Client,
    args: &HistoryArgs,
    agent: Option<&str>,
) -> anyhow::Result<()> {
    if let Some(agent) = agent {
        let query = [("agents_list", agent.to_owned())];
        let answer = client.get(&["agents"], &query).await?;
        if at(&answer, "/data/total_affected_items").as_u64() == Some(0) {
            bail!("{agent}: the server has no such agent; `holdfast agents` lists them");
        }
    }
    if let Some(group) = &args.group {
        expect_all(&client.get(&["groups"], &[("groups_list", group.clone())]).await?)?;
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn moment_is_an_age_a_day_or_a_time() {
        let day = moment("2026-01-31").unwrap();
        assert_eq!(rfc3339(day), "2026-01-31T00:00:00.000000Z");
        assert_eq!(day + Duration::from_secs(1), moment("2026-01-31T00:00:01Z").unwrap());
        assert!(moment("2h").unwrap() < SystemTime::now());
        for wrong in ["2026-02-30", "yesterday", ""] {
            assert!(moment(wrong).unwrap_err().contains("a day such as"), "{wrong}");
        }
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
