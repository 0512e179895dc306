//! Answers of queries on their way to the client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Version, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use series::Store;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;

use super::{Rooms, query_error};
use crate::query;

/// Longest time that a query waits for a client that reads nothing of its answer.
pub const UNREAD_TIME_MAX: Duration = Duration::from_secs(30);
/// Largest answer to a client of HTTP/1.0, in bytes.
pub const WHOLE_BYTES_MAX: usize = 8 << 20;
/// Bytes of such an answer that are handed over at a time: the rest is its own until they are taken.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces of an answer that wait for the client; the query waits then.
const PIECES_MAX: usize = 4;

/// Why an answer is not whole, if it is not: its end must not look like one.
type Cut = Arc<Mutex<Option<String>>>;

/// Answer a query piece by piece, as its client takes them; one of HTTP/1.0 gets the whole at once.
pub(super) async fn answer(
    store: Store,
    query: query::Query,
    rooms: &Rooms,
    permit: OwnedSemaphorePermit,
    version: Version,
) -> Response {
    let (send, receive) = mpsc::channel(PIECES_MAX);
    let (cut, permit) = (Cut::default(), Arc::new(permit));
    // What waits for its reader keeps its place among the answers.
    let held = Arc::clone(&permit);
    let mut pieces = Pieces { pieces: receive, cut: Arc::clone(&cut) };
    let client = send.clone();
    let gone = move || client.is_closed();
    let budget = query::Budget::new(rooms.query_time, rooms.memory.clone(), gone);
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        // The client going away, or reading nothing, ends the query.
        query::run(&store, &query, &budget, |piece| {
            let patience = budget.left().min(UNREAD_TIME_MAX);
            runtime.block_on(hand_over(&send, piece, patience, &cut))
        });
        if let Some(why) = budget.over() {
            cut.lock().get_or_insert_with(|| why.to_owned());
        }
        drop((budget, permit));
    });
    let body = if version >= Version::HTTP_11 {
        Body::new(pieces)
    } else {
        match pieces.whole().await {
            Ok(all) => Body::new(Whole(all.into(), held)),
            Err(why) => return query_error(&why),
        }
    };
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response()
}

/// Give the client a piece of its answer; whether to go on. `cut` tells of a client that read
/// nothing for so long that the answer ends here.
async fn hand_over(
    send: &mpsc::Sender<Bytes>,
    piece: Bytes,
    patience: Duration,
    cut: &Cut,
) -> bool {
    let sent = timeout(patience, send.send(piece)).await;
    if sent.is_err() {
        cut.lock().get_or_insert_with(|| "nothing of it was read for too long".into());
    }
    matches!(sent, Ok(Ok(())))
}

/// An answer on its way.
struct Pieces {
    pieces: mpsc::Receiver<Bytes>,
    cut: Cut,
}

impl Pieces {
    /// All of them: without chunks or a length the end of a connection is the end of an answer, and
    /// one that was cut would look whole.
    ///
    /// # Errors
    /// Why it is not whole, or that it is too large.
    async fn whole(&mut self) -> Result<Vec<u8>, String> {
        let mut all = Vec::new();
        while let Some(piece) = self.pieces.recv().await {
            if all.len() + piece.len() > WHOLE_BYTES_MAX {
                return Err(format!(
                    "the answer has more than {WHOLE_BYTES_MAX} bytes; ask with HTTP/1.1, or for less"
                ));
            }
            all.extend_from_slice(&piece);
        }
        self.cut.lock().take().map_or(Ok(all), Err)
    }
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let piece = ready!(self.pieces.poll_recv(cx));
        Poll::Ready(match piece {
            Some(bytes) => Some(Ok(Frame::data(bytes))),
            None => self.cut.lock().take().map(|why| Err(std::io::Error::other(why))),
        })
    }
}

/// An answer that is there, and its place among the answers of the port until it is read.
struct Whole(Bytes, #[expect(dead_code, reason = "held")] Arc<OwnedSemaphorePermit>);

impl hyper::body::Body for Whole {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let bytes = self.0.len().min(PIECE_BYTES);
        let piece = self.0.split_to(bytes);
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use hyper::body::Body as _;

    use super::*;

    #[tokio::test]
    async fn an_answer_that_nobody_reads_is_cut_and_its_end_is_an_error() {
        let (send, pieces) = mpsc::channel(1);
        let cut = Cut::default();
        let mut answer = Pieces { pieces, cut: Arc::clone(&cut) };
        let piece = || Bytes::from_static(b"+cpu host=a\r\n");
        let short = Duration::from_millis(1);
        assert!(hand_over(&send, piece(), short, &cut).await);
        assert!(!hand_over(&send, piece(), short, &cut).await, "there is no room for another");
        drop(send);
        let mut next = async || poll_fn(|cx| Pin::new(&mut answer).poll_frame(cx)).await;
        assert!(next().await.unwrap().is_ok());
        assert!(next().await.unwrap().is_err());
        assert!(next().await.is_none());
    }
}
