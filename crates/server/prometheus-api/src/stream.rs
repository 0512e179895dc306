//! Answers that are written while the client reads them.
//!
//! The thread of the query hands over pieces and waits while [`PIECES_MAX`] of them are not sent. It
//! gives up when the client takes none for a minute, or the query's time is over. An answer ends as a complete one only if the
//! thread says so: if it fails or stops, the connection ends in the middle of the answer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::Frame;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::query_queue::TIMEOUT;
use crate::refusal::{Refusal, defect, unavailable};

/// Longest time that a query waits for a client that takes nothing of its answer.
pub(crate) const UNREAD_TIME_MAX: Duration = Duration::from_mins(1);
/// Bytes of a piece from which on it is handed over.
pub(crate) const PIECE_BYTES: usize = 64 << 10;
/// Pieces that wait for the client.
const PIECES_MAX: usize = 2;

enum BodyPiece {
    Data(Bytes),
    /// The answer is complete.
    End,
    /// There is no answer, or no more of it.
    Failed(Refusal),
}

/// Takes the pieces of an answer on the thread of its query.
pub(crate) struct BodySender {
    send: mpsc::Sender<BodyPiece>,
    runtime: Handle,
    unread_time: Duration,
    /// The end of the query's time.
    until: Instant,
}

/// Receives the pieces of an answer.
pub(crate) struct Answer(mpsc::Receiver<BodyPiece>);

/// Returns both ends of an answer. Call this from an async task.
pub(crate) fn answer(unread_time: Duration) -> (BodySender, Answer) {
    let (send, receive) = mpsc::channel(PIECES_MAX);
    let (runtime, until) = (Handle::current(), Instant::now() + TIMEOUT);
    (BodySender { send, runtime, unread_time, until }, Answer(receive))
}

impl BodySender {
    /// Returns a function that says if the client has left.
    pub(crate) fn gone(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let send = self.send.clone();
        move || send.is_closed()
    }

    /// Hands over a piece. Waits until there is room for it.
    ///
    /// # Errors
    /// Returns an error if the client has left, or takes nothing for too long.
    pub(crate) fn send(&self, bytes: Vec<u8>) -> Result<(), Refusal> {
        self.hand_over(BodyPiece::Data(bytes.into()))
    }

    /// Ends the answer.
    pub(crate) fn end(self, result: Result<(), Refusal>) {
        // If there is no room for this either, the answer ends without it, as an incomplete one.
        drop(self.hand_over(result.map_or_else(BodyPiece::Failed, |()| BodyPiece::End)));
    }

    fn hand_over(&self, piece: BodyPiece) -> Result<(), Refusal> {
        // A timeout can be created only within the runtime.
        let until = self.until.min(Instant::now() + self.unread_time);
        let send = async { timeout_at(until, self.send.send(piece)).await };
        let sent = self.runtime.block_on(send);
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(unavailable("the client is gone")),
            Err(_) => Err(unavailable("the answer was read too slowly")),
        }
    }
}

impl Answer {
    /// Returns the body of the answer once its first piece is there.
    ///
    /// # Errors
    /// Returns the error of a query that failed before.
    pub(crate) async fn body(mut self) -> Result<Body, Refusal> {
        match self.0.recv().await {
            Some(BodyPiece::Failed(refusal)) => Err(refusal),
            Some(first) => Ok(Body::new(StreamedBody { first: Some(first), rest: self.0 })),
            None => Err(defect()),
        }
    }
}

/// The body of an answer.
struct StreamedBody {
    first: Option<BodyPiece>,
    rest: mpsc::Receiver<BodyPiece>,
}

impl HttpBody for StreamedBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let piece = match self.first.take() {
            Some(first) => Some(first),
            None => ready!(self.rest.poll_recv(context)),
        };
        let why = match piece {
            Some(BodyPiece::Data(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Some(BodyPiece::End) => return Poll::Ready(None),
            Some(BodyPiece::Failed(refusal)) => refusal.text,
            None => "it was not read, or its query stopped".into(),
        };
        tracing::warn!("a streamed answer is cut off: {why}");
        Poll::Ready(Some(Err(std::io::Error::other(why))))
    }
}
