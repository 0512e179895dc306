//! `holdfast series stat`: what a store holds, and what was done since it was opened.

use anyhow::{Context as _, bail};
use client::{Client, DataArg};
use ingest::stats_json;
use serde_json::Value as Json;

use crate::arguments::SeriesStatArgs;
use crate::tools::{existing, is_locked, open_read_only};
use folder::DataFolder;

/// Totals that are zero when a store is opened. All other numbers describe what it holds.
const SINCE_START: &[&str] = &["batches", "batches_failed", "log_payload_bytes", "samples"];

/// `holdfast series stat`.
pub async fn stat(args: &SeriesStatArgs) -> anyhow::Result<()> {
    let stats = if let Some(url) = &args.url {
        fetch_stats(url, args).await?
    } else {
        of_folder(&args.data).await?
    };
    let stats = if args.json { stats } else { labelled(stats) };
    service::report(args.json, &stats);
    Ok(())
}

/// Says of each number what it counts, and whether the disk is full.
fn labelled(mut stats: Json) -> Json {
    for (name, value) in stats.as_object_mut().into_iter().flatten() {
        let since_start = SINCE_START.contains(&&**name);
        *value = match (&**name, &*value) {
            ("disk_full", Json::Null) => "no".into(),
            ("disk_full", Json::String(cause)) => format!("writes are refused: {cause}").into(),
            (_, Json::Number(number)) if since_start => format!("{number} since start").into(),
            ("position" | "sealed_position", _) => continue,
            (_, Json::Number(number)) => format!("{number} stored").into(),
            _ => continue,
        };
    }
    stats
}

/// Returns the statistics of a store, from the server that has it open or from its files.
async fn of_folder(data: &DataArg) -> anyhow::Result<Json> {
    let dir = existing(data)?;
    let server = Client::running(&DataFolder::new(data.folder()?).socket())?;
    if let Some(server) = &server
        && let Ok(stats) = server.get(&["series", "stats"], &[]).await
    {
        return Ok(stats);
    }
    match tokio::task::spawn_blocking(move || open_read_only(&dir)).await? {
        Ok(store) => {
            let stats = stats_json(&store.stats());
            tokio::task::spawn_blocking(move || store.close()).await??;
            Ok(stats)
        }
        Err(locked) if is_locked(&locked) && server.is_none() => Err(locked.context(
            "a running `holdfast series serve` is asked with --url http://HOST:PORT of its query port",
        )),
        Err(other) => Err(other),
    }
}

/// Returns the statistics from the query port of a running store. There is no time limit.
async fn fetch_stats(url: &str, args: &SeriesStatArgs) -> anyhow::Result<Json> {
    if !reqwest::Url::parse(url).is_ok_and(|url| url.has_host()) {
        bail!("--url {url}: name the store's query port as http://HOST:PORT");
    }
    let url = format!("{}/api/stats", url.trim_end_matches('/'));
    let mut builder = reqwest::Client::builder().no_proxy();
    if url.starts_with("http:") {
        // Without TLS no authority is needed: a system may have none.
        builder = builder.tls_certs_only([]);
    } else if let Some(ca) = &args.ca {
        builder = builder.tls_backend_preconfigured(replication::follow::trust_authority(ca)?);
    }
    let mut request = builder.build()?.get(&url);
    if let Some(token) = &args.token {
        request = request.bearer_auth(token);
    }
    let answer = request.send().await.with_context(|| url.clone())?;
    let status = answer.status();
    let text = answer.text().await.with_context(|| url.clone())?;
    if !status.is_success() {
        bail!("{url}: status {status}: {}", text.trim());
    }
    serde_json::from_str(&text).with_context(|| url.clone())
}
