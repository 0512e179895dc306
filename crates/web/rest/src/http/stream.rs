//! Answers sent in pieces: large ones, and those that are sent while they are generated and are
//! never in memory as a whole.
//!
//! Pieces pass through a bounded queue: the producer waits for the reader, for a bounded time and
//! without holding a thread. If a body cannot be completed (a failure in the middle, a reader that
//! does not read), the connection is aborted, since the status has already been sent: a truncated
//! list must not look like a complete one.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{sleep, timeout};

use crate::access::quota::Share;
use crate::error::Failure;
use crate::http::envelope::{JSON, List, Stream};

/// Capacity of the queue of pieces.
const PIECES_WAITING_MAX: usize = 4;
/// Size of the pieces of an answer in memory, bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// Maximum time to wait for a reader.
#[derive(Clone, Copy)]
struct ReadTimeouts {
    piece: Duration,
    /// Limit for a whole list, and for a whole answer that holds a share of a quota.
    whole: Duration,
}

const PATIENCE: ReadTimeouts =
    ReadTimeouts { piece: Duration::from_secs(30), whole: Duration::from_mins(10) };

/// The sending half of a body.
pub struct PieceSender {
    pieces: Sender<Bytes>,
    whole: Arc<AtomicBool>,
    patience: ReadTimeouts,
}

impl PieceSender {
    /// Sends a piece. Returns false if the reader is gone or took nothing for too long; the caller
    /// must then drop the sender.
    pub async fn send(&self, piece: impl Into<Bytes>) -> bool {
        let sent = timeout(self.patience.piece, self.pieces.send(piece.into()));
        matches!(sent.await, Ok(Ok(())))
    }

    /// Waits until the reader is gone.
    pub async fn closed(&self) {
        self.pieces.closed().await;
    }

    /// Marks the body as complete. Dropping the sender without calling this aborts the body.
    pub fn finish(self) {
        self.whole.store(true, Ordering::Release);
    }
}

struct StreamBody {
    waiting: Receiver<Bytes>,
    whole: Arc<AtomicBool>,
}

impl HttpBody for StreamBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.waiting.poll_recv(context).map(|piece| match piece {
            Some(piece) => Some(Ok(Frame::data(piece))),
            None if self.whole.load(Ordering::Acquire) => None,
            None => Some(Err(io::Error::other("broken off"))),
        })
    }
}

/// Returns a body and the sender of its pieces.
pub fn body() -> (PieceSender, Body) {
    body_with_timeouts(PATIENCE)
}

fn body_with_timeouts(patience: ReadTimeouts) -> (PieceSender, Body) {
    let (sender, waiting) = channel(PIECES_WAITING_MAX);
    let whole = Arc::new(AtomicBool::new(false));
    let sender = PieceSender { pieces: sender, whole: Arc::clone(&whole), patience };
    (sender, Body::new(UnsyncBoxBody::new(StreamBody { waiting, whole })))
}

/// Returns a body for bytes in memory. It holds its share of the quota until it is sent or given
/// up.
pub fn in_memory(bytes: impl Into<Bytes>, quota: Share) -> Body {
    buffered_body(bytes.into(), quota, PATIENCE)
}

fn buffered_body(bytes: Bytes, quota: Share, patience: ReadTimeouts) -> Body {
    let held = Arc::new(Mutex::new(BufferedState { bytes, taken: 0, quota: Some(quota) }));
    tokio::spawn(give_up(Arc::downgrade(&held), patience));
    Body::new(UnsyncBoxBody::new(BufferedBody(held)))
}

/// The body of an answer in memory, which its reader takes in pieces.
struct BufferedBody(Arc<Mutex<BufferedState>>);

struct BufferedState {
    /// Bytes that have not been taken.
    bytes: Bytes,
    /// Number of pieces that have been taken.
    taken: u64,
    /// The share of the quota; `None` once the body has been given up.
    quota: Option<Share>,
}

/// Waits until the body is dropped; if its reader stalls or takes too long, frees its memory and
/// its share.
async fn give_up(held: Weak<Mutex<BufferedState>>, patience: ReadTimeouts) {
    let (mut waited, mut taken) = (Duration::ZERO, 0);
    loop {
        sleep(patience.piece).await;
        waited += patience.piece;
        let Some(held) = held.upgrade() else { return };
        let mut held = held.lock();
        if held.taken == taken || waited >= patience.whole {
            (held.bytes, held.quota) = (Bytes::new(), None);
            return;
        }
        taken = held.taken;
    }
}

impl HttpBody for BufferedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let mut held = self.0.lock();
        if held.quota.is_none() {
            return Poll::Ready(Some(Err(io::Error::other("given up"))));
        }
        if held.bytes.is_empty() {
            return Poll::Ready(None);
        }
        held.taken += 1;
        let size = held.bytes.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(Frame::data(held.bytes.split_to(size)))))
    }

    fn is_end_stream(&self) -> bool {
        let held = self.0.lock();
        held.bytes.is_empty() && held.quota.is_some()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.lock().bytes.len() as u64)
    }
}

/// Returns a list whose items are generated in pieces: each call of `next` returns some items,
/// serialized and separated by commas, and `None` at the end. `next` runs on a blocking thread, one
/// call at a time; `place` is held until the list is sent or given up.
pub fn list(
    frame: &List,
    first: Vec<u8>,
    next: impl FnMut() -> Result<Option<Vec<u8>>, Failure> + Send + 'static,
    place: Share,
) -> Stream {
    Stream { content_type: JSON, body: streamed_body(frame.frame(), first, next, place, PATIENCE) }
}

fn streamed_body(
    frame: (Vec<u8>, Vec<u8>),
    first: Vec<u8>,
    next: impl FnMut() -> Result<Option<Vec<u8>>, Failure> + Send + 'static,
    place: Share,
    patience: ReadTimeouts,
) -> Body {
    let (sender, body) = body_with_timeouts(patience);
    let send = send_list(sender, frame, first, next);
    tokio::spawn(async move {
        let _place = place;
        if timeout(patience.whole, send).await.is_err() {
            tracing::info!("a list broke off: its reader takes longer than {:?}", patience.whole);
        }
    });
    body
}

/// Sends a list piece by piece between `before` and `behind`, with commas between the pieces. A
/// failure after the first piece leaves the answer incomplete, which its reader can detect.
async fn send_list(
    sender: PieceSender,
    (before, behind): (Vec<u8>, Vec<u8>),
    first: Vec<u8>,
    mut next: impl FnMut() -> Result<Option<Vec<u8>>, Failure> + Send + 'static,
) {
    let mut comma = !first.is_empty();
    if !sender.send(before).await || !sender.send(first).await {
        return;
    }
    loop {
        let made = tokio::task::spawn_blocking(move || {
            let piece = next();
            (next, piece)
        });
        let (again, piece) = match made.await {
            Ok(made) => made,
            Err(cause) => return tracing::error!("a list broke off: {cause}"),
        };
        next = again;
        let mut piece = match piece {
            Ok(Some(piece)) => piece,
            Ok(None) => break,
            Err(failure) => return tracing::error!("a list broke off: {}", failure.detail),
        };
        if comma && !piece.is_empty() {
            piece.insert(0, b',');
        }
        comma |= !piece.is_empty();
        if !sender.send(piece).await {
            return;
        }
    }
    if sender.send(behind).await {
        sender.finish();
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::access::caller::Caller;
    use crate::access::quota::Quota;

    const BYTES: usize = 3 * 1024 * 1024;

    fn whole(quota: &Quota) -> Option<Share> {
        quota.reserve(Caller::Anyone.owner(), 1)
    }

    /// Waits until the share has been released.
    async fn given_back(quota: &Quota) {
        while whole(quota).is_none() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn answer_in_memory_arrives_whole_and_frees_its_quota() {
        let quota = Quota::new(1, 1);
        let body = in_memory(vec![7; BYTES], whole(&quota).unwrap());
        assert!(whole(&quota).is_none());
        assert_eq!(body.size_hint().exact(), Some(BYTES as u64));
        assert_eq!(body.collect().await.unwrap().to_bytes(), vec![7; BYTES]);
        given_back(&quota).await;
    }

    /// Short enough for the test to wait for.
    const LITTLE: Duration = Duration::from_millis(10);
    const MINUTE: Duration = Duration::from_mins(1);

    #[tokio::test]
    async fn unread_answer_frees_its_quota_and_is_marked_incomplete() {
        let quota = Quota::new(1, 1);
        let patience = ReadTimeouts { piece: LITTLE, whole: MINUTE };
        let body = buffered_body(vec![7; BYTES].into(), whole(&quota).unwrap(), patience);
        given_back(&quota).await;
        assert!(body.collect().await.is_err());
    }

    #[tokio::test]
    async fn unread_list_releases_its_permit() {
        let quota = Quota::new(1, 1);
        let endless = || Ok(Some(b"1".repeat(PIECE_BYTES)));
        let patience = ReadTimeouts { piece: LITTLE, whole: MINUTE };
        let body = streamed_body(
            Default::default(),
            Vec::new(),
            endless,
            whole(&quota).unwrap(),
            patience,
        );
        given_back(&quota).await;
        assert!(body.collect().await.is_err());
    }

    #[tokio::test]
    async fn list_read_too_slowly_releases_its_permit() {
        let quota = Quota::new(1, 1);
        let endless = || Ok(Some(b"1".repeat(PIECE_BYTES)));
        let patience = ReadTimeouts { piece: MINUTE, whole: LITTLE };
        let body = streamed_body(
            Default::default(),
            Vec::new(),
            endless,
            whole(&quota).unwrap(),
            patience,
        );
        assert!(body.collect().await.is_err());
        given_back(&quota).await;
    }
}
