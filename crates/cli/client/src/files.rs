//! `holdfast files` and `holdfast packages`: what agents last reported.

use anyhow::bail;
use clap::Args;
use serde_json::Value;

use crate::answer::{at, text};
use crate::arguments::ListArgs;
use crate::changes::is_within;
use crate::{names, table};

/// Digits of a digest in a table; `--json` prints all of them.
const DIGEST_DIGITS: usize = 16;

/// Arguments of `holdfast files`.
#[derive(Debug, Args)]
pub struct FilesArgs {
    /// Number or name of the agent.
    #[arg(value_name = "AGENT")]
    agent: String,
    /// Only this path and everything below it.
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// Only paths, types, modes, names and digests that contain this text.
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Only files with this digest (SHA-256, SHA-1 or MD5).
    #[arg(long, value_name = "DIGEST")]
    hash: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

pub(crate) async fn files(args: &FilesArgs) -> anyhow::Result<()> {
    let client = args.list.connect.client()?;
    let agent = names::agent(&client, &args.agent).await?;
    let path = args.path.as_deref();
    let given = [
        // Everything is below /; the API refuses an empty beginning.
        ("path", path.map(|path| path.trim_end_matches('/').to_owned()).filter(|p| !p.is_empty())),
        ("search", args.search.clone()),
        ("hash", args.hash.clone()),
    ];
    let query: Vec<_> = given.into_iter().filter_map(|(name, v)| Some((name, v?))).collect();
    // The API selects by the beginning of the text: /etc2 begins with /etc.
    let all = if path.is_some() { usize::MAX } else { args.list.limit() };
    let (mut within, total) = client.list(&["syscheck", &agent], &query, all).await?;
    let listed = within.len();
    within.retain(|item| is_within(at(item, "/file"), path));
    let total = total.saturating_sub((listed - within.len()) as u64);
    within.truncate(args.list.limit());
    let columns: &[table::Column] = &[
        ("path", |item| text(at(item, "/file"))),
        ("type", |item| text(at(item, "/type"))),
        ("size", |item| text(at(item, "/size"))),
        ("mode", |item| text(at(item, "/mode"))),
        ("owner", |item| owner(item)),
        ("modified", |item| text(at(item, "/mtime"))),
        ("sha256", |item| text(at(item, "/sha256")).chars().take(DIGEST_DIGITS).collect()),
    ];
    args.list.print_items(&within, total, columns);
    Ok(())
}

/// Formats user and group, by name if they are known.
fn owner(item: &Value) -> String {
    let of = |name: &str, number: &str| {
        let name = at(item, name);
        text(if name.is_null() { at(item, number) } else { name })
    };
    format!("{}:{}", of("/uname", "/uid"), of("/gname", "/gid"))
}

/// Arguments of `holdfast packages`.
#[derive(Debug, Args)]
pub struct PackagesArgs {
    /// Numbers or names of agents; all by default.
    #[arg(value_name = "AGENT")]
    agent: Vec<String>,
    /// Only packages of this name.
    #[arg(long)]
    name: Option<String>,
    /// Only packages with this text in name or architecture.
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

pub(crate) async fn packages(args: &PackagesArgs) -> anyhow::Result<()> {
    let client = args.list.connect.client()?;
    let agents = names::agents(&client, &args.agent).await?;
    if args.name.as_ref().is_some_and(|name| name.contains('"')) {
        bail!("--name: the name of a package has no quotation mark");
    }
    let quoted = |name: &String| format!("name=\"{name}\"");
    let given = [
        ("agents_list", Some(agents).filter(|some| !some.is_empty())),
        ("q", args.name.as_ref().map(quoted)),
        ("search", args.search.clone()),
    ];
    let query: Vec<_> = given.into_iter().filter_map(|(name, v)| Some((name, v?))).collect();
    let columns: &[table::Column] = &[
        ("agent", |item| text(at(item, "/agent/id"))),
        ("host", |item| text(at(item, "/agent/name"))),
        ("package", |item| text(at(item, "/document/package/name"))),
        ("version", |item| text(at(item, "/document/package/version"))),
        ("architecture", |item| text(at(item, "/document/package/architecture"))),
        ("installed", |item| text(at(item, "/document/package/installed"))),
    ];
    args.list.print(&client, &["states", "inventory-packages"], &query, columns).await
}
