//! `holdfast files` and `holdfast packages`: what agents last reported.

use anyhow::bail;
use clap::Args;
use serde_json::Value;

use crate::answer::{at, fail_with, text};
use crate::arguments::ListArgs;
use crate::history::is_within;
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
    #[arg(long, value_name = "DIGEST", value_parser = digest)]
    hash: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

/// Returns a digest in lower case.
fn digest(text: &str) -> Result<String, String> {
    let is_digest =
        [32, 40, 64].contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digest.then(|| text.to_ascii_lowercase()).ok_or_else(|| {
        "give all hexadecimal digits: 64 of SHA-256, 40 of SHA-1 or 32 of MD5".into()
    })
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
    let mut listed = client.list(&["syscheck", &agent], &query, all).await?;
    let found = listed.items.len();
    listed.items.retain(|item| is_within(at(item, "/file"), path));
    listed.total = listed.total.saturating_sub((found - listed.items.len()) as u64);
    listed.items.truncate(args.list.limit());
    let columns: &[table::Column] = &[
        ("path", |item| text(at(item, "/file"))),
        ("type", |item| text(at(item, "/type"))),
        ("size", |item| text(at(item, "/size"))),
        ("mode", |item| text(at(item, "/mode"))),
        ("owner", |item| owner(item)),
        ("modified", |item| text(at(item, "/mtime"))),
        ("sha256", |item| text(at(item, "/sha256")).chars().take(DIGEST_DIGITS).collect()),
    ];
    args.list.print_listed(listed, columns)
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
    if agents.given.is_empty() && !args.agent.is_empty() {
        return fail_with(agents.unknown);
    }
    if args.name.as_ref().is_some_and(|name| name.contains('"')) {
        bail!("--name: the name of a package has no quotation mark");
    }
    let quoted = |name: &String| format!("name=\"{name}\"");
    let given = [
        ("agents_list", Some(agents.numbers()).filter(|some| !some.is_empty())),
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
    let path = ["states", "inventory-packages"];
    let mut listed = client.list(&path, &query, args.list.limit()).await?;
    listed.failures.extend(agents.unknown);
    args.list.print_listed(listed, columns)
}
