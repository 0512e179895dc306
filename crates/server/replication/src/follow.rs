//! Follows a server: a second folder stores every persisted record of the server, and can be
//! promoted to a server when the first one is lost (`docs/reference/journal.md`).
//!
//! # Invariants
//! - A position is acknowledged only after every record up to it is persisted here.
//! - Only records that follow the last one without a gap are accepted. Anything else ends the
//!   connection, and the next connection continues at the end of the journal.
//! - A following folder is locked by one process, and no server starts on it before it is promoted.

mod client;
mod copy;
mod error;
mod folder;
mod marker;
mod seed;

use std::time::Duration;

use control::{ControlStore, KEYS_SETTING};
use reqwest::{Method, Response};
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use crate::protocol::{HEADER_PERSISTED, HEADER_VERSION, VERSION};
use crate::seed_source::Part;
use crate::wire::{Decoder, Frame};
use client::{Client, RequestFailure};
use copy::Copy;

pub use client::{ServerAddress, trust_authority};
pub use error::FollowError;
pub use folder::FollowerFolder;
pub use marker::Marker;

/// Bytes that are read from the connection before they are persisted.
const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Pieces of the connection that may be queued while others are persisted.
const PIECES_WAITING: usize = 64;
/// First delay before reconnecting; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// Longest delay.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The server to follow and the folder to follow into. The caller has claimed the folder.
pub struct FollowOptions {
    pub server: ServerAddress,
    pub folder: FollowerFolder,
    /// Part of the follower's name at the server.
    pub host: String,
    /// Return when everything that the server held at the beginning is persisted here.
    pub once: bool,
    /// Receives lines for the person who started the program.
    pub show: Box<dyn Fn(&str) + Send + Sync>,
}

/// Follows until `stop` is ready or, with [`FollowOptions::once`], until everything that the server
/// held at the beginning is persisted here.
///
/// # Errors
/// Returns an error if the server refuses this follower, or a file cannot be read or written.
pub async fn follow(
    options: FollowOptions,
    stop: impl Future<Output = ()>,
) -> Result<(), FollowError> {
    let client = Client::new(&options.server)?;
    let mut following = Following {
        marker: adopt(&options)?,
        folder: options.folder,
        client,
        show: options.show,
        once: options.once,
        copy: None,
        begin_again: false,
    };
    let ended = tokio::select! {
        ended = following.run() => ended,
        () = stop => Ok(()),
    };
    if ended.is_ok() && following.copy.is_some() {
        // Without the server, the next connection fetches its keys.
        let _ = following.apply_now().await;
    }
    let closed = match following.copy.take() {
        Some(copy) => copy.close().await,
        None => Ok(()),
    };
    ended.and(closed)?;
    (following.show)("stopped");
    Ok(())
}

/// Returns the folder's marker, or creates one if the folder is new or restored.
fn adopt(options: &FollowOptions) -> Result<Marker, FollowError> {
    let FollowerFolder { path, journal, state_db, registry_db, restored_marker, .. } =
        &options.folder;
    let known = Marker::load(path)?;
    let restored = restored_marker.exists() && state_db.exists();
    if known.is_none() && !restored && (state_db.exists() || journal.exists()) {
        return Err(FollowError::Folder { path: path.clone() });
    }
    let from = &options.server.from;
    let mut marker = if let Some(marker) = known {
        marker
    } else {
        // A backup of this version has every decision up to its position.
        let decisions = restored && ControlStore::position_of(registry_db)?.is_some();
        let version = if decisions { VERSION } else { 0 };
        Marker { seeded: restored, version, ..Marker::new(from, &options.host)? }
    };
    marker.from.clone_from(from);
    marker.store(path)?;
    if marker.seeded && restored_marker.exists() {
        // A restored folder continues with the server's records, so the marker is removed.
        std::fs::remove_file(restored_marker).map_err(FollowError::file(restored_marker))?;
    }
    Ok(marker)
}

/// One folder that follows one server.
struct Following {
    folder: FollowerFolder,
    marker: Marker,
    client: Client,
    show: Box<dyn Fn(&str) + Send + Sync>,
    once: bool,
    copy: Option<Copy>,
    /// The copies are of an older version, and the server sends decisions as records: they are fetched
    /// again.
    begin_again: bool,
}

impl Following {
    async fn run(&mut self) -> Result<(), FollowError> {
        let mut pause = PAUSE_FIRST;
        loop {
            let before = self.position();
            let trouble = match self.session().await {
                Ok(()) => return Ok(()),
                Err(RequestFailure::Refused(error)) => return Err(error),
                Err(RequestFailure::Lost(why)) => why,
            };
            warn!(server = self.client.name(), "lost: {trouble}; trying again");
            if self.position() != before {
                pause = PAUSE_FIRST;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Returns the last position persisted here.
    fn position(&self) -> Option<u64> {
        self.copy.as_ref().map(|copy| copy.last().position)
    }

    /// Runs one connection; returns `Ok` only with `--once`.
    async fn session(&mut self) -> Result<(), RequestFailure> {
        self.prepare().await?;
        // A connection may have been lost before they were fetched.
        self.refresh_keys().await?;
        let Some(copy) = &self.copy else { return Ok(()) };
        let last = copy.last();
        let from = (last.position + 1).to_string();
        let crc = last.crc.map(|crc| format!("{crc:08x}"));
        let store = copy.store();
        let mut query = vec![
            ("follower", self.marker.name.as_str()),
            ("store", store.as_str()),
            ("from", from.as_str()),
        ];
        query.extend(crc.as_deref().map(|crc| ("last", crc)));
        let answer = self.client.send_checked(Method::GET, "/journal/follow", &query).await?;
        self.expect_version(&answer)?;
        let goal = header(&answer, HEADER_PERSISTED)?;
        let (name, server) = (&self.marker.name, self.client.name());
        (self.show)(&format!("following {server} as {name} from record {from}"));
        let pieces = pieces(answer);
        self.take_all(pieces, goal).await
    }

    /// Compares the server's version with that of the copies.
    fn expect_version(&mut self, answer: &Response) -> Result<(), RequestFailure> {
        if self.marker.version == VERSION {
            return Ok(());
        }
        if answer.headers().contains_key(HEADER_VERSION) {
            self.begin_again = true;
            let why = "it sends decisions as records now, which the copies here do not have";
            return Err(RequestFailure::Lost(why.into()));
        }
        warn!(
            server = self.client.name(),
            "an older version: what is decided there comes here once it is upgraded"
        );
        Ok(())
    }

    /// Fetches the seed of a new folder, and opens the copy.
    async fn prepare(&mut self) -> Result<(), RequestFailure> {
        if !self.marker.seeded || self.begin_again {
            (self.show)(&format!("copying state and registry of {}", self.client.name()));
            if let Some(copy) = self.copy.take() {
                copy.close().await?;
            }
            self.fetch_all().await?;
        }
        if self.copy.is_none() {
            let folder = self.folder.clone();
            let opened = tokio::task::spawn_blocking(move || Copy::open(&folder)).await;
            self.copy = Some(opened.map_err(FollowError::from)??);
        }
        Ok(())
    }

    /// Fetches everything. An earlier copy is kept until the new one is here.
    async fn fetch_all(&mut self) -> Result<(), RequestFailure> {
        let (folder, mut marker) = (self.folder.clone(), self.marker.clone());
        let name = marker.name.clone();
        let answered = seed::fetch(&self.client, &name, Part::All, &folder.path, || {
            marker.seeded = false;
            marker.store(&folder.path)?;
            seed::wipe(&folder)
        });
        self.marker.version = answered.await?;
        self.marker.keys = ControlStore::setting_of(&self.folder.registry_db, KEYS_SETTING)
            .map_err(FollowError::from)?;
        self.marker.seeded = true;
        self.begin_again = false;
        Ok(self.marker.store(&self.folder.path)?)
    }

    async fn apply_when_due(&mut self) -> Result<(), RequestFailure> {
        if self.copy.as_ref().is_some_and(Copy::is_due) { self.apply_now().await } else { Ok(()) }
    }

    /// Applies what has arrived, and fetches the keys that it says have changed.
    async fn apply_now(&mut self) -> Result<(), RequestFailure> {
        if let Some(copy) = &mut self.copy {
            copy.apply().await?;
        }
        self.refresh_keys().await
    }

    /// Fetches the server's keys again if they have changed there.
    async fn refresh_keys(&mut self) -> Result<(), RequestFailure> {
        let keys = ControlStore::setting_of(&self.folder.registry_db, KEYS_SETTING)
            .map_err(FollowError::from)?;
        if keys.is_none() || keys == self.marker.keys {
            return Ok(());
        }
        let path = &self.folder.path;
        seed::fetch(&self.client, &self.marker.name, Part::Keys, path, || Ok(())).await?;
        info!("the server's keys have changed: fetched again");
        self.marker.keys = keys;
        Ok(self.marker.store(path)?)
    }

    /// Receives records until the connection ends.
    async fn take_all(
        &mut self,
        mut pieces: mpsc::Receiver<Result<bytes::Bytes, String>>,
        goal: u64,
    ) -> Result<(), RequestFailure> {
        let mut decoder = Decoder::default();
        let mut reported = false;
        while let Some(piece) = pieces.recv().await {
            decoder.push(&piece.map_err(RequestFailure::Lost)?);
            let broken = take_waiting(&mut pieces, &mut decoder);
            let reached = self.take_batch(&mut decoder).await?;
            self.apply_when_due().await?;
            if reached >= goal && !reported {
                reported = true;
                (self.show)(&format!("caught up: record {reached}"));
            }
            if reported && self.once {
                return self.apply_now().await;
            }
            if let Some(why) = broken {
                return Err(RequestFailure::Lost(why));
            }
        }
        Err(RequestFailure::Lost("the server closed the connection".into()))
    }

    /// Persists and acknowledges every whole record that arrived; returns the last position.
    async fn take_batch(&mut self, decoder: &mut Decoder) -> Result<u64, RequestFailure> {
        let Some(copy) = &mut self.copy else { return Ok(0) };
        let first = copy.last().position + 1;
        let records = records(decoder, first)?;
        if records.is_empty() {
            return Ok(first - 1);
        }
        let position = copy.append(first, records).await.map_err(|e| match e {
            journal::AppendError::Full(why) => RequestFailure::Lost(format!("{why}: free space")),
            other => RequestFailure::Refused(other.into()),
        })?;
        let (text, name) = (position.to_string(), self.marker.name.as_str());
        let query = [("follower", name), ("position", text.as_str())];
        self.client.send_checked(Method::POST, "/journal/follow/acknowledge", &query).await?;
        debug!(position, "acknowledged");
        Ok(position)
    }
}

fn header(answer: &Response, name: &str) -> Result<u64, RequestFailure> {
    let value = answer.headers().get(name).and_then(|v| v.to_str().ok());
    let number = value.and_then(|text| text.parse().ok());
    number.ok_or_else(|| RequestFailure::Lost(format!("the answer has no header {name}")))
}

/// Takes the pieces that have arrived, up to one batch. Returns the reason if the connection
/// broke; what arrived before that is valid.
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

/// Returns the records of all whole frames that arrived; the first has position `first`.
fn records(decoder: &mut Decoder, first: u64) -> Result<Vec<Vec<u8>>, RequestFailure> {
    let mut records = Vec::new();
    while let Some(frame) = decoder.next_frame().map_err(|e| RequestFailure::Lost(e.to_string()))? {
        let next = first + records.len() as u64;
        match frame {
            Frame::Record { position, bytes } if position == next => records.push(bytes),
            Frame::Status { persisted, .. } => debug!(persisted, has = next - 1, "status"),
            other => {
                let kind = if matches!(other, Frame::Record { .. }) { "record" } else { "frame" };
                return Err(RequestFailure::Lost(format!(
                    "another {kind} came than record {next}"
                )));
            }
        }
    }
    Ok(records)
}

/// Reads the connection in a separate task, while earlier records are being persisted.
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

/// Makes a following folder one of a server; [`end_promotion`] must follow. Returns the position of its last
/// record. The
/// caller has claimed the folder. Blocks.
///
/// # Errors
/// Returns an error if a file cannot be read or written.
pub fn promote(folder: &FollowerFolder) -> Result<u64, FollowError> {
    let last = copy::promote(folder)?;
    info!(last, "promoted");
    Ok(last)
}

/// Ends a promotion: the folder no longer follows. Until then it can be repeated.
///
/// # Errors
/// Returns an error if the marker cannot be removed.
pub fn end_promotion(folder: &FollowerFolder) -> Result<(), FollowError> {
    Marker::remove(&folder.path)
}
