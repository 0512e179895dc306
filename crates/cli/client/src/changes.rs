//! `holdfast changes`: the history of changes.

use std::fmt::Write as _;

use clap::Args;
use serde_json::Value;

use crate::answer::at;
use crate::history::{History, HistoryArgs};

/// Longest command line in a line of text, characters; `--json` prints all of it.
const COMMAND_CHARS_MAX: usize = 160;

/// Arguments of `holdfast changes`.
#[derive(Debug, Args)]
pub struct ChangesArgs {
    /// Only changes of these kinds, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = ["created", "modified", "deleted", "moved", "transient"])]
    kind: Vec<String>,
    /// Only changes with these causes, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = ["unexplained", "package", "deployment"])]
    cause: Vec<String>,
    /// Only changes made by the user of this name.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Only changes that the program of this name made, or perhaps made.
    #[arg(long, value_name = "NAME")]
    process: Option<String>,
    /// Print unexplained changes first; each part newest first.
    #[arg(long, value_name = "ORDER", value_parser = ["unexplained"], conflicts_with = "follow")]
    sort: Option<String>,
    #[command(flatten)]
    history: HistoryArgs,
}

pub(crate) async fn run(args: &ChangesArgs) -> anyhow::Result<()> {
    let some = |words: &[String]| Some(words.join(",")).filter(|words| !words.is_empty());
    let given = [
        ("kind", some(&args.kind)),
        ("cause", some(&args.cause)),
        ("user", args.user.clone()),
        ("process", args.process.clone()),
        ("sort", args.sort.clone()),
    ];
    let history = History {
        resource: "changes",
        filters: given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect(),
        newest_last: args.sort.is_none(),
        line,
    };
    history.print(&args.history).await
}

/// Formats one change as a line of text.
pub(crate) fn line(item: &Value) -> String {
    let text = |pointer: &str| at(item, pointer).as_str().unwrap_or_default();
    let show = |text: &str| model::path::show_terminal(text.as_bytes());
    let join = |values: &Value| {
        let texts = values.as_array().into_iter().flatten().filter_map(Value::as_str);
        texts.collect::<Vec<_>>().join(", ")
    };
    let (agent, kind, path) = (show(agent_name(item)), text("/kind"), show(text("/path")));
    let mut line = format!("{} {agent} {kind:<8} {path}", text("/time"));
    let by = [text("/user/name"), &program(at(item, "/process"))].join(" ");
    let count = at(item, "/transient/count").as_u64();
    let names = join(at(item, "/transient/names"));
    let transient = count.map(|n| format!("{n} files existed for a moment: {names}"));
    for (before, part, after) in [
        (" from ", text("/from"), ""),
        (" (", &join(at(item, "/changed_fields")), ")"),
        (" by ", by.trim(), ""),
        (" ", &package(item).unwrap_or_default(), ""),
        (" ", &transient.unwrap_or_default(), ""),
        (" explained by ", &explanation(at(item, "/cause")), ""),
    ] {
        if !part.is_empty() {
            let _ = write!(line, "{before}{}{after}", show(part));
        }
    }
    line
}

/// Returns the name of an item's agent, or its number if the name is no longer stored.
pub(crate) fn agent_name(item: &Value) -> &str {
    let part = |pointer: &str| at(item, pointer).as_str().filter(|text| !text.is_empty());
    part("/agent/name").or_else(|| part("/agent/id")).unwrap_or_default()
}

/// Formats a process's program with its command line, or those that come into question.
fn program(process: &Value) -> String {
    let candidates = at(process, "/candidates").as_array();
    let programs: Vec<&Value> = match at(process, "/name").as_str() {
        Some(_) => vec![process],
        None => candidates.into_iter().flatten().collect(),
    };
    let mut texts: Vec<String> = programs.into_iter().map(with_command_line).collect();
    texts.dedup();
    texts.join(" or ")
}

/// Formats the name of a program and, in quotation marks, its command line if that says more.
fn with_command_line(program: &Value) -> String {
    let text = |pointer: &str| at(program, pointer).as_str().unwrap_or_default();
    let (name, command) = (text("/name"), text("/command_line"));
    if command.is_empty() || command == name {
        return name.to_owned();
    }
    match command.char_indices().nth(COMMAND_CHARS_MAX) {
        Some((end, _)) => format!("{name} \"{}...\"", &command[..end]),
        None => format!("{name} \"{command}\""),
    }
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
    fn writer_is_printed_with_its_command_line() {
        let sed = json!({"name": "sed", "command_line": "sed -i s/a/b/ /a"});
        let item = json!({"time": "T", "agent": {"id": "001", "name": "web1"}, "kind": "modified",
            "path": "/a", "user": {"name": "root"}, "process": sed});
        let expected = "T web1 modified /a by root sed \"sed -i s/a/b/ /a\"";
        assert_eq!(line(&item), expected);
        let bash = json!({"name": "bash", "command_line": "bash"});
        let either = json!({"candidates": [bash, sed]});
        assert_eq!(program(&either), "bash or sed \"sed -i s/a/b/ /a\"");
        let long = json!({"name": "x", "command_line": "ü".repeat(COMMAND_CHARS_MAX + 1)});
        assert_eq!(program(&long), format!("x \"{}...\"", "ü".repeat(COMMAND_CHARS_MAX)));
    }
}
