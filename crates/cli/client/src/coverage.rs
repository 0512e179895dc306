//! `holdfast coverage`: the gaps in which something was not watched.

use clap::Args;
use serde_json::Value;

use crate::answer::at;
use crate::changes::agent_name;
use crate::history::{History, HistoryArgs};

/// Arguments of `holdfast coverage`.
#[derive(Debug, Args)]
pub struct CoverageArgs {
    /// Only gaps that have not ended.
    #[arg(long)]
    open: bool,
    #[command(flatten)]
    history: HistoryArgs,
}

pub(crate) async fn run(args: &CoverageArgs) -> anyhow::Result<()> {
    let open = args.open.then(|| ("open", "true".to_owned()));
    let history = History {
        resource: "coverage",
        filters: open.into_iter().collect(),
        newest_last: true,
        line,
    };
    history.print(&args.history).await
}

/// Formats one gap as a line of text: its interval, agent, reason, path and detail.
fn line(item: &Value) -> String {
    let text = |pointer: &str| at(item, pointer).as_str().unwrap_or_default();
    let to = at(item, "/to").as_str().unwrap_or("now");
    let first = format!("{} to {to}", text("/from"));
    let parts = [&first, agent_name(item), text("/kind"), text("/path"), text("/detail")];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.map(|part| model::path::show_terminal(part.as_bytes())).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn gap_is_printed_with_its_interval_and_agent() {
        let mut gap = json!({"agent": {"id": "001", "name": "web1"}, "kind": "agent_down",
            "path": "", "from": "F", "to": "T", "detail": "not running"});
        assert_eq!(line(&gap), "F to T web1 agent_down not running");
        gap["to"] = Value::Null;
        gap["path"] = json!("/etc");
        assert_eq!(line(&gap), "F to now web1 agent_down /etc not running");
    }
}
