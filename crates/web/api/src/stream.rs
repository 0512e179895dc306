//! Answers that are sent while they are made, so that a large one never stands in memory whole.
//!
//! Pieces go through a bounded queue: whoever makes them waits for whoever reads them. A failure in
//! the middle breaks the connection off, since the status has been sent: a list that ended early
//! must not look like a whole one.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::envelope::{JSON, List, Stream};
use crate::error::Failure;

/// Pieces that wait for their reader.
const PIECES_WAITING_MAX: usize = 4;

type Piece = Result<Bytes, io::Error>;

/// The sending half of a body.
pub(crate) type PieceSender = Sender<Piece>;

struct Pieces(Receiver<Piece>);

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, io::Error>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|p| p.map(hyper::body::Frame::data)))
    }
}

/// A body and where its pieces go.
pub(crate) fn body() -> (PieceSender, Body) {
    let (sender, receiver) = channel(PIECES_WAITING_MAX);
    (sender, Body::new(UnsyncBoxBody::new(Pieces(receiver))))
}

/// A list whose items come in pieces: each call of `next` gives some, written with commas between
/// them, and `None` at the end. `next` runs on a thread that may block.
pub(crate) fn list(
    frame: &List,
    first: Vec<u8>,
    mut next: impl FnMut() -> Result<Option<Vec<u8>>, Failure> + Send + 'static,
) -> Stream {
    let (before, behind) = frame.frame();
    let (sender, body) = body();
    tokio::task::spawn_blocking(move || {
        let send = |bytes: Vec<u8>| sender.blocking_send(Ok(bytes.into())).is_ok();
        let mut comma = !first.is_empty();
        if !send(before) || !send(first) {
            return;
        }
        let mut separated = |mut piece: Vec<u8>| {
            if comma && !piece.is_empty() {
                piece.insert(0, b',');
            }
            comma |= !piece.is_empty();
            piece
        };
        let broken = loop {
            let going = match next() {
                Ok(Some(piece)) => send(separated(piece)),
                Ok(None) => break None,
                Err(failure) => break Some(failure),
            };
            if !going {
                return;
            }
        };
        let Some(failure) = broken else {
            send(behind);
            return;
        };
        tracing::error!("a list broke off: {}", failure.detail);
        let _ = sender.blocking_send(Err(io::Error::other("broken off")));
    });
    Stream { content_type: JSON, body }
}
