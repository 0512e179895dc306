//! `holdfast journal follow` and `promote`.

use std::path::Path;

use anyhow::bail;
use client::Client;
use replication::follow::{self, FollowOptions, Marker, ServerAddress};
use service::Stop;

use crate::cli::{FollowArgs, PromoteArgs};
use crate::server;
use folder::{DataFolder, follower_folder, is_there};
use service::Console;

/// `holdfast journal follow`.
pub(crate) async fn follow(args: FollowArgs) -> anyhow::Result<()> {
    let mut stop = Stop::listen()?;
    let console = Console::new();
    let folder = DataFolder::new(&args.to);
    let _lock = folder.claim()?;
    if let Some(socket) = args.from.strip_prefix("unix:").map(Path::new) {
        client::mention(socket.parent().unwrap_or(socket));
        if Client::running(socket)?.is_none() && args.once && !is_there(socket)? {
            let from = &args.from;
            bail!("--from {from}: no such socket; it is holdfast.sock in a server's data folder");
        }
    }
    let keys = folder.keys();
    let options = FollowOptions {
        server: ServerAddress {
            from: args.from,
            ca: args.ca.unwrap_or_else(|| keys.join("ca.pem")),
            token: args.token,
            token_file: keys.join("follower"),
        },
        folder: follower_folder(&folder),
        host: host::system::hostname(),
        once: args.once,
        show: Box::new(move |line| console.line(line)),
    };
    Ok(follow::follow(options, stop.wait()).await?)
}

/// `holdfast journal promote`.
pub(crate) fn promote(args: &PromoteArgs) -> anyhow::Result<()> {
    let folder = DataFolder::new(&args.dir);
    let path = folder.path();
    let marker = if path.is_dir() { Marker::load(path)? } else { None };
    let Some(marker) = marker else {
        bail!("{}: follows no server; name the folder that `journal follow` wrote", path.display());
    };
    if !marker.seeded {
        bail!("{}: its first copy is not complete; let it follow once", path.display());
    }
    let _lock = folder.claim()?;
    let last = follow::promote(&follower_folder(&folder))?;
    let next = server::accept_registry(&folder)?;
    follow::end_promotion(&follower_folder(&folder))?;
    Console::new().line(&format!(
        "promoted: {} holds every record up to {last}; every token is revoked, and the next new agent \
         is {next}; start the server on it, and never again the one at {}",
        path.display(),
        marker.from
    ));
    Ok(())
}

/// Returns a running server's report of its followers, or the marker of a folder that follows; for
/// `holdfast journal stat`.
pub(crate) async fn status(folder: &Path) -> anyhow::Result<serde_json::Value> {
    if let Some(marker) = Marker::load(folder)? {
        return Ok(serde_json::json!({ "following": marker.from, "as": marker.name }));
    }
    let socket = DataFolder::new(folder).socket();
    // Without a server there are no followers to report.
    let Some(server) = Client::running(&socket)? else { return Ok(serde_json::Value::Null) };
    Ok(server.get(&["journal", "followers"], &[]).await.unwrap_or_default())
}
