//! The bodies of answers: records as they are persisted, and the files of a seed. Each is produced
//! by its own thread, which waits while the connection is full and ends with it.

use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::Frame as BodyFrame;
use tokio::sync::mpsc;

use crate::followers::{AttachedFollower, Shipping};
use crate::refusal::FollowerRefusal;
use crate::seed_source::{Part, SCRATCH_PREFIX};
use crate::wire::{Frame, PIECE_BYTES_MAX, push_piece, push_record};

/// Bytes of frames passed to the connection at once; a larger record is passed alone.
const CHUNK_BYTES: usize = 256 * 1024;
/// Chunks that may be queued for the connection.
const CHUNKS_WAITING: usize = 4;
/// Time that a stream waits for records before it checks that it is still the current one.
const WAIT: Duration = Duration::from_millis(200);
/// Interval between status frames of a stream without records.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// A response body produced by a thread.
pub(crate) struct Chunks(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|chunk| chunk.map(|bytes| Ok(BodyFrame::data(bytes))))
    }
}

fn on_thread(
    name: &str,
    work: impl FnOnce(&mpsc::Sender<Bytes>) + Send + 'static,
) -> Result<Chunks, FollowerRefusal> {
    let (sender, receiver) = mpsc::channel(CHUNKS_WAITING);
    std::thread::Builder::new()
        .name(format!("ship-{name}"))
        .spawn(move || work(&sender))
        .map_err(|e| FollowerRefusal::Busy(format!("no thread could be started: {e}")))?;
    Ok(Chunks(receiver))
}

/// Streams records from the reader's position until the follower disconnects, a newer stream of the
/// same name begins, or the server stops.
pub(crate) fn records(
    shipping: &Shipping,
    name: &str,
    attached: AttachedFollower,
) -> Result<Chunks, FollowerRefusal> {
    let (shipping, follower) = (shipping.clone(), name.to_owned());
    on_thread(name, move |sender| {
        let stream = attached.stream;
        let ended = send_records(&shipping, &follower, attached, sender);
        shipping.detach(&follower, stream);
        match ended {
            Ok(()) => tracing::info!(follower, "follower disconnected"),
            Err(error) => tracing::error!(follower, %error, "records could not be read"),
        }
    })
}

/// Sends records of the journal as they are persisted, and the status at intervals. Returns when
/// the follower has left or connected again, or the server stops.
fn send_records(
    shipping: &Shipping,
    name: &str,
    attached: AttachedFollower,
    sender: &mpsc::Sender<Bytes>,
) -> Result<(), journal::ReadError> {
    let AttachedFollower { mut reader, stream } = attached;
    let inner = &shipping.0;
    let mut sent_at: Option<Instant> = None;
    while !shipping.is_stopped() && shipping.is_current(name, stream) {
        let began = Instant::now();
        let mut chunk = Vec::new();
        let mut next = reader.next_within(WAIT).transpose()?;
        while let Some((position, record)) = next {
            push_record(&mut chunk, position, &record);
            metrics::counter!("holdfast_follow_sent_bytes_total").increment(record.len() as u64);
            next = if chunk.len() < CHUNK_BYTES { reader.next().transpose()? } else { None };
        }
        let persisted = inner.journal.persisted_position();
        let caught_up = reader.position() > persisted;
        let due = sent_at.is_none_or(|at| at.elapsed() >= STATUS_EVERY);
        if due || (caught_up && !chunk.is_empty()) {
            sent_at = Some(Instant::now());
            Frame::Status { persisted, at_us: inner.options.clock.now_us() }.push(&mut chunk);
        }
        if !chunk.is_empty() {
            if sender.blocking_send(chunk.into()).is_err() {
                return Ok(());
            }
        } else if sender.is_closed() || began.elapsed() < WAIT / 2 {
            // The follower has disconnected, or the journal was closed or poisoned and returns no
            // more records.
            return Ok(());
        }
    }
    Ok(())
}

/// Streams the files of a seed.
pub(crate) fn seed(shipping: &Shipping, name: &str, part: Part) -> Result<Chunks, FollowerRefusal> {
    if shipping.0.seeding.swap(true, Ordering::AcqRel) {
        return Err(FollowerRefusal::Busy("another seed is being made".into()));
    }
    let (own, follower) = (shipping.clone(), name.to_owned());
    let started = on_thread(name, move |sender| {
        let folder = own.0.options.folder.join(format!("{SCRATCH_PREFIX}{follower}"));
        if let Err(error) = send_seed(&own, &folder, part, sender) {
            // The connection ends without the last frame, so the follower starts over.
            tracing::error!(follower, error, "a copy for a new follower could not be made");
        }
        if let Err(error) = fs::remove_dir_all(&folder) {
            tracing::warn!(%error, folder = %folder.display(), "the copies for a new follower were not removed");
        }
        own.0.seeding.store(false, Ordering::Release);
    });
    if started.is_err() {
        shipping.0.seeding.store(false, Ordering::Release);
    }
    started
}

fn send_seed(
    shipping: &Shipping,
    folder: &Path,
    part: Part,
    sender: &mpsc::Sender<Bytes>,
) -> Result<(), String> {
    use std::os::unix::fs::DirBuilderExt as _;
    let in_words = |e: io::Error| format!("{}: {e}", folder.display());
    let _ = fs::remove_dir_all(folder);
    fs::DirBuilder::new().mode(0o700).create(folder).map_err(in_words)?;
    let names = shipping.0.options.seed.copy(part, folder)?;
    for name in &names {
        send_file(shipping, &folder.join(name), name, sender).map_err(in_words)?;
    }
    let mut chunk = Vec::new();
    Frame::End { files: names.len() as u64 }.push(&mut chunk);
    sender.blocking_send(chunk.into()).map_err(|_| "the follower left".into())
}

fn send_file(
    shipping: &Shipping,
    path: &Path,
    name: &str,
    sender: &mpsc::Sender<Bytes>,
) -> io::Result<()> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut chunk = Vec::new();
    Frame::File { size, name: name.to_owned() }.push(&mut chunk);
    let mut piece = vec![0; PIECE_BYTES_MAX];
    let mut offset = 0;
    loop {
        if shipping.is_stopped() {
            return Err(io::Error::other("the server stops"));
        }
        let got = file.read(&mut piece)?;
        if let Some(bytes) = piece.get(..got).filter(|b| !b.is_empty()) {
            push_piece(&mut chunk, offset, bytes);
            offset += got as u64;
        }
        let whole = std::mem::take(&mut chunk);
        if !whole.is_empty() && sender.blocking_send(whole.into()).is_err() {
            return Err(io::Error::other("the follower left"));
        }
        if got == 0 {
            return Ok(());
        }
    }
}
