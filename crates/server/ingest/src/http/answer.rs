//! Streams the answers of queries to the client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Version, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use hyper::body::Frame;
use parking_lot::Mutex;
use series::Store;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;

use super::QueryQuotas;

/// Longest time that a query waits for a client that reads nothing of its answer.
pub const UNREAD_TIME_MAX: Duration = Duration::from_secs(30);
/// Pieces of an answer that may be queued for the client. The query waits when the queue is full.
const PIECES_MAX: usize = 4;

/// The reason why an answer is incomplete, if it is. Its end must then not look like the end of a
/// complete answer.
type IncompleteReason = Arc<Mutex<Option<String>>>;

/// Answers a query in pieces as the client reads them. An answer of a single piece is sent with its
/// length.
pub(super) async fn stream_answer(
    store: Store,
    query: query::Query,
    quotas: &QueryQuotas,
    permit: OwnedSemaphorePermit,
    version: Version,
) -> Response {
    let (send, mut receive) = mpsc::channel(PIECES_MAX);
    let cut = IncompleteReason::default();
    let reason = Arc::clone(&cut);
    let client = send.clone();
    let gone = move || client.is_closed();
    let budget = query::Budget::new(quotas.query_time, quotas.memory.clone(), gone);
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        // The query ends if the client disconnects or reads nothing for too long.
        let over = query::run(&store, &query, &budget, |piece| {
            let patience = budget.time_left().min(UNREAD_TIME_MAX);
            runtime.block_on(hand_over(&send, piece, patience, &reason))
        });
        if let Some(why) = over {
            reason.lock().get_or_insert(why);
        }
        drop((budget, permit));
    });
    let first: Option<Bytes> = receive.recv().await;
    let body = match first {
        Some(whole) if whole.len() < query::PIECE_BYTES => Body::from(whole),
        first => {
            let chunked = version >= Version::HTTP_11;
            Body::new(AnswerBody { first, receive, cut, chunked })
        }
    };
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response()
}

/// Sends the client a piece of its answer. Returns false to stop. `cut` records a client that read
/// nothing for so long that the answer ends here.
async fn hand_over(
    send: &mpsc::Sender<Bytes>,
    piece: Bytes,
    patience: Duration,
    cut: &IncompleteReason,
) -> bool {
    let sent = timeout(patience, send.send(piece)).await;
    if sent.is_err() {
        cut.lock().get_or_insert_with(|| "nothing of it was read for too long".into());
    }
    matches!(sent, Ok(Ok(())))
}

/// The body of an answer, received in pieces from the thread of the query.
struct AnswerBody {
    first: Option<Bytes>,
    receive: mpsc::Receiver<Bytes>,
    cut: IncompleteReason,
    /// True if the end of the body is explicit. In HTTP/1.0 it is not: data sent before a
    /// connection error may be lost and the answer would look complete, so the reason is sent as a
    /// query error instead.
    chunked: bool,
}

impl hyper::body::Body for AnswerBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let piece = match self.first.take() {
            Some(first) => Some(first),
            None => ready!(self.receive.poll_recv(cx)),
        };
        let cut = || self.cut.lock().take();
        Poll::Ready(match piece.map(Ok).or_else(|| cut().map(Err)) {
            Some(Ok(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(Err(why)) if self.chunked => Some(Err(std::io::Error::other(why))),
            Some(Err(why)) => Some(Ok(Frame::data(format!("-{why}\r\n").into()))),
            None => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use hyper::body::Body as _;

    use super::*;

    #[tokio::test]
    async fn unread_answer_is_cut_off_and_ends_with_an_error() {
        let (send, receive) = mpsc::channel(1);
        let cut = IncompleteReason::default();
        let mut answer = AnswerBody { first: None, receive, cut: Arc::clone(&cut), chunked: true };
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
