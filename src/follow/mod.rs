//! `holdfast journal follow` and `promote`: a second folder that keeps every persisted record of a
//! server, and becomes a server when the first is gone (`docs/reference/journal.md`).
//!
//! # Invariants
//! - A position is acknowledged only after every record up to it is persisted here.
//! - Only records that follow the last one without a hole are taken; whatever does not fit ends
//!   the connection, and the next one begins where the journal ends.
//! - A folder that follows is held by one process, and no server starts on it before it was
//!   promoted.

mod client;
mod copy;
mod marker;
mod seed;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use console::Console;
use reqwest::{Method, Response};
use ship::wire::{Decoder, Frame};
use ship::{HEADER_PERSISTED, Part};
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use crate::cli::{FollowArgs, PromoteArgs};
use crate::folder::{DataFolder, is_there};
use crate::local::Local;
use crate::signals::Stop;
pub(crate) use client::trusting;
use client::{Client, Trouble};
use copy::Copy;
pub(crate) use marker::Marker;
pub(crate) use seed::ServerFiles;

/// Bytes that are taken from the connection before they are persisted.
const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Pieces of the connection that wait while others are persisted.
const PIECES_WAITING: usize = 64;
/// First and longest pause before the server is asked again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How often the registry is copied anew: it is not in the journal.
const REGISTRY_EVERY: Duration = Duration::from_mins(1);

/// Follow until stopped; with `--once` until everything that the server held is here.
pub(crate) async fn follow(args: FollowArgs) -> anyhow::Result<()> {
    let mut stop = Stop::listen()?;
    let console = Console::new();
    let folder = DataFolder::new(&args.to);
    let _lock = folder.claim()?;
    let client = Client::new(&args)?;
    let mut following = Following {
        marker: adopt(&folder, &args)?,
        folder,
        client,
        console: console.clone(),
        once: args.once,
        copy: None,
        registry_at: None,
    };
    let ended = tokio::select! {
        ended = following.run() => ended,
        () = stop.wait() => Ok(()),
    };
    let closed = match following.copy.take() {
        Some(copy) => copy.close().await,
        None => Ok(()),
    };
    ended.and(closed)?;
    console.line("stopped");
    Ok(())
}

/// What the folder follows: from its mark, or as a new or restored one.
fn adopt(folder: &DataFolder, args: &FollowArgs) -> anyhow::Result<Marker> {
    let path = folder.path();
    let known = Marker::load(path)?;
    let restored = folder.restored_marker().exists() && folder.state_db().exists();
    if known.is_none() && !restored && (folder.state_db().exists() || folder.journal().exists()) {
        bail!(
            "{}: a server's data folder; name an empty one, or one that a backup was just restored \
             into",
            path.display()
        );
    }
    let mut marker = match known {
        Some(marker) => marker,
        None => Marker { seeded: restored, ..Marker::new(&args.from)? },
    };
    marker.from.clone_from(&args.from);
    marker.store(path)?;
    if marker.seeded && folder.restored_marker().exists() {
        // It goes on with the server's records instead of without them.
        std::fs::remove_file(folder.restored_marker())?;
    }
    Ok(marker)
}

/// One folder that follows one server.
struct Following {
    folder: DataFolder,
    marker: Marker,
    client: Client,
    console: Console,
    once: bool,
    copy: Option<Copy>,
    registry_at: Option<Instant>,
}

impl Following {
    async fn run(&mut self) -> anyhow::Result<()> {
        let mut pause = PAUSE.0;
        loop {
            let before = self.copy.as_ref().map(|copy| copy.last().0);
            let trouble = match self.session().await {
                Ok(()) => return Ok(()),
                Err(Trouble::Refused(error)) => return Err(error),
                Err(Trouble::Lost(why)) => why,
            };
            warn!(server = self.client.name(), "lost: {trouble}; trying again");
            if self.copy.as_ref().map(|copy| copy.last().0) != before {
                pause = PAUSE.0;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// One connection; it ends well only with `--once`.
    async fn session(&mut self) -> Result<(), Trouble> {
        self.prepare().await?;
        let Some(copy) = &self.copy else { return Ok(()) };
        let (last, crc) = copy.last();
        let (from, crc) = ((last + 1).to_string(), crc.map(|crc| format!("{crc:08x}")));
        let store = copy.store();
        let mut query = vec![
            ("follower", self.marker.name.as_str()),
            ("store", store.as_str()),
            ("from", from.as_str()),
        ];
        query.extend(crc.as_deref().map(|crc| ("last", crc)));
        let answer = self.client.ask(Method::GET, "/journal/follow", &query).await?;
        let goal = header(&answer, HEADER_PERSISTED)?;
        let (name, server) = (&self.marker.name, self.client.name());
        self.console.line(&format!("following {server} as {name} from record {from}"));
        let pieces = pieces(answer);
        self.take_all(pieces, goal).await
    }

    /// Fetch what a new folder begins with, open it, and look after the registry.
    async fn prepare(&mut self) -> Result<(), Trouble> {
        let path = self.folder.path().to_owned();
        if !self.marker.seeded {
            self.console.line(&format!("copying state and registry of {}", self.client.name()));
            seed::wipe(&self.folder)?;
            seed::fetch(&self.client, &self.marker.name, Part::All, &path).await?;
            self.marker.seeded = true;
            self.marker.store(&path)?;
            self.registry_at = Some(Instant::now());
        }
        if self.copy.is_none() {
            let folder = self.folder.clone();
            let opened = tokio::task::spawn_blocking(move || Copy::open(&folder)).await;
            self.copy = Some(opened.context("open")??);
        }
        self.refresh_registry().await
    }

    async fn refresh_registry(&mut self) -> Result<(), Trouble> {
        if self.registry_at.is_some_and(|at| at.elapsed() < REGISTRY_EVERY) {
            return Ok(());
        }
        let path = self.folder.path().to_owned();
        seed::fetch(&self.client, &self.marker.name, Part::Registry, &path).await?;
        self.registry_at = Some(Instant::now());
        Ok(())
    }

    /// Take records until the connection ends.
    async fn take_all(
        &mut self,
        mut pieces: mpsc::Receiver<Result<bytes::Bytes, String>>,
        goal: u64,
    ) -> Result<(), Trouble> {
        let mut decoder = Decoder::default();
        let mut told = false;
        while let Some(piece) = pieces.recv().await {
            decoder.push(&piece.map_err(Trouble::Lost)?);
            let broken = take_waiting(&mut pieces, &mut decoder);
            let reached = self.take_batch(&mut decoder).await?;
            if reached >= goal && !told {
                told = true;
                self.console.line(&format!("caught up: record {reached}"));
            }
            if told && self.once {
                return Ok(());
            }
            if let Some(why) = broken {
                return Err(Trouble::Lost(why));
            }
            self.refresh_registry().await?;
        }
        Err(Trouble::Lost("the server closed the connection".into()))
    }

    /// Persist and acknowledge every whole record that arrived; the last position.
    async fn take_batch(&mut self, decoder: &mut Decoder) -> Result<u64, Trouble> {
        let Some(copy) = &mut self.copy else { return Ok(0) };
        let first = copy.last().0 + 1;
        let records = records(decoder, first)?;
        if records.is_empty() {
            return Ok(first - 1);
        }
        let position = copy.append(first, records).await.map_err(|e| match e {
            journal::AppendError::Full(why) => Trouble::Lost(format!("{why}: free space")),
            other => Trouble::Refused(anyhow::Error::new(other)),
        })?;
        let (text, name) = (position.to_string(), self.marker.name.as_str());
        let query = [("follower", name), ("position", text.as_str())];
        self.client.ask(Method::POST, "/journal/follow/acknowledge", &query).await?;
        debug!(position, "acknowledged");
        if copy.is_due() {
            copy.apply().await?;
        }
        Ok(position)
    }
}

fn header(answer: &Response, name: &str) -> Result<u64, Trouble> {
    let value = answer.headers().get(name).and_then(|v| v.to_str().ok());
    let number = value.and_then(|text| text.parse().ok());
    number.ok_or_else(|| Trouble::Lost(format!("the answer has no header {name}")))
}

/// Take what else has arrived, as much as is persisted at once; why the connection broke, if it
/// did: what came before is good.
fn take_waiting(
    pieces: &mut mpsc::Receiver<Result<bytes::Bytes, String>>,
    decoder: &mut Decoder,
) -> Option<String> {
    let mut taken = 0;
    while taken < BATCH_BYTES {
        match pieces.try_recv() {
            Ok(Ok(bytes)) => {
                taken += bytes.len();
                decoder.push(&bytes);
            }
            Ok(Err(why)) => return Some(why),
            Err(_) => return None,
        }
    }
    None
}

/// The records of every whole frame that arrived, the first with position `first`.
fn records(decoder: &mut Decoder, first: u64) -> Result<Vec<Vec<u8>>, Trouble> {
    let mut records = Vec::new();
    while let Some(frame) = decoder.take().map_err(|e| Trouble::Lost(e.to_string()))? {
        let next = first + records.len() as u64;
        match frame {
            Frame::Record { position, bytes } if position == next => records.push(bytes),
            Frame::Status { persisted, .. } => debug!(persisted, has = next - 1, "status"),
            other => {
                let kind = if matches!(other, Frame::Record { .. }) { "record" } else { "frame" };
                return Err(Trouble::Lost(format!("another {kind} came than record {next}")));
            }
        }
    }
    Ok(records)
}

/// Read the connection beside what is persisted.
fn pieces(mut answer: Response) -> mpsc::Receiver<Result<bytes::Bytes, String>> {
    let (sender, receiver) = mpsc::channel(PIECES_WAITING);
    tokio::spawn(async move {
        loop {
            let piece = match answer.chunk().await {
                Ok(Some(bytes)) => Ok(bytes),
                Ok(None) => return,
                Err(e) => Err(e.without_url().to_string()),
            };
            let failed = piece.is_err();
            if sender.send(piece).await.is_err() || failed {
                return;
            }
        }
    });
    receiver
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
    let last = copy::promote(&folder)?;
    Marker::remove(path)?;
    info!(last, "promoted");
    Console::new().line(&format!(
        "promoted: {} holds every record up to {last}; start the server on it, and never again the \
         one at {}",
        path.display(),
        marker.from
    ));
    Ok(())
}

/// What a running server tells of its followers, or the mark of a folder that follows; for
/// `holdfast journal stat`.
pub(crate) async fn status(folder: &Path) -> anyhow::Result<serde_json::Value> {
    if let Some(marker) = Marker::load(folder)? {
        return Ok(serde_json::json!({ "following": marker.from, "as": marker.name }));
    }
    let socket = DataFolder::new(folder).socket();
    if !is_there(&socket)? {
        return Ok(serde_json::Value::Null);
    }
    // A socket left by a killed server answers nothing: then there is nothing to tell.
    Ok(Local::open(&socket)?.get("/journal/followers", &[]).await.unwrap_or_default())
}
