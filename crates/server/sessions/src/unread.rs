//! Large answers. They are sent in pieces, and keep their charge of the bytes in flight and their
//! request permit until the last piece is sent. The connection limits the time that a reader may
//! take ([`crate::header::Watched`]).

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Response, StatusCode};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use link::Answer;

use crate::admit::Charge;
use crate::agent_queues::RequestPermit;
use crate::answer::session_answer;

/// Bytes of a piece: about as much as a connection buffers at once.
const PIECE_BYTES: usize = 64 * 1024;

/// The unsent rest of an answer.
struct Unread {
    bytes: Bytes,
    _charge: Charge,
    _permit: RequestPermit,
}

/// Returns the answer to a stored session. A small answer is written at once. A large one, which
/// lists many skipped values, counts as in flight until it is read.
pub(crate) fn session_response(
    answer: &Answer,
    mut charge: Charge,
    permit: RequestPermit,
) -> axum::response::Response {
    match serde_json::to_vec(answer) {
        Ok(bytes) if bytes.len() > PIECE_BYTES => {
            charge.resize(bytes.len());
            json(bytes, charge, permit)
        }
        _ => session_answer(StatusCode::OK, answer),
    }
}

/// Returns an answer in JSON that counts as in flight until it is read.
pub(crate) fn json(
    bytes: Vec<u8>,
    charge: Charge,
    permit: RequestPermit,
) -> axum::response::Response {
    let unread = Unread { bytes: bytes.into(), _charge: charge, _permit: permit };
    let mut response = Response::new(Body::new(unread));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

impl HttpBody for Unread {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = self.bytes.len().min(PIECE_BYTES);
        Poll::Ready((bytes > 0).then(|| Ok(Frame::data(self.bytes.split_to(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}
