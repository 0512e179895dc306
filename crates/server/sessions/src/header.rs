//! Time limits for a connection's peer: for sending a request's header, counted from its first byte
//! (the limit of a connection that is idle between requests is separate and may be longer), and for
//! reading an answer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// The stage of a connection: idle, receiving a header, or answering.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stage(Arc<Steps>);

#[derive(Debug, Default)]
struct Steps {
    /// Number of the header that is arriving; 0 if none is.
    arriving: AtomicU64,
    /// Headers that have begun so far.
    begun: AtomicU64,
    /// Number of requests being answered.
    answering: AtomicU64,
}

/// A future whose request counts as being answered until it is dropped.
pub(crate) struct AnsweredRequest<F> {
    answer: F,
    stage: Stage,
}

impl Stage {
    /// Marks the header as complete and wraps the answer's future.
    pub(crate) fn answering<F>(&self, answer: F) -> AnsweredRequest<F> {
        self.0.answering.fetch_add(1, Ordering::AcqRel);
        self.0.arriving.store(0, Ordering::Release);
        AnsweredRequest { answer, stage: self.clone() }
    }

    /// Marks that bytes have arrived.
    fn received(&self) {
        let Steps { arriving, begun, answering } = &*self.0;
        if answering.load(Ordering::Acquire) == 0 && arriving.load(Ordering::Acquire) == 0 {
            arriving.store(begun.fetch_add(1, Ordering::AcqRel) + 1, Ordering::Release);
        }
    }

    fn arriving(&self) -> Option<u64> {
        Some(self.0.arriving.load(Ordering::Acquire)).filter(|n| *n > 0)
    }
}

impl<F: Future + Unpin> Future for AnsweredRequest<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        Pin::new(&mut self.answer).poll(cx)
    }
}

impl<F> Drop for AnsweredRequest<F> {
    fn drop(&mut self) {
        self.stage.0.answering.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The time limit of one connection's headers.
pub(crate) struct Header {
    stage: Stage,
    within: Duration,
    /// Number of the header that the alarm is for, and the alarm.
    alarm: Option<(u64, Pin<Box<Sleep>>)>,
}

impl Header {
    pub(crate) fn new(within: Duration) -> Self {
        Self { stage: Stage::default(), within, alarm: None }
    }

    pub(crate) fn stage(&self) -> Stage {
        self.stage.clone()
    }

    /// Returns ready if a header that has begun is not complete in time. Poll this after the
    /// connection, because the connection reads the header.
    pub(crate) fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(header) = self.stage.arriving() else {
            self.alarm = None;
            return Poll::Pending;
        };
        let within = self.within;
        let alarm = match self.alarm.take() {
            Some((of, alarm)) if of == header => alarm,
            _ => Box::pin(tokio::time::sleep(within)),
        };
        self.alarm.insert((header, alarm)).1.as_mut().poll(cx)
    }
}

/// Time limits for reading an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerTimeouts {
    /// Limit while the reader takes nothing at all.
    pub(crate) stalled: Duration,
    /// Limit until the reader has taken everything.
    pub(crate) whole: Duration,
}

/// An answer that is being written.
#[derive(Debug)]
struct Writing {
    patience: AnswerTimeouts,
    /// Deadline for the whole answer, counted from the first wait.
    until: Option<Instant>,
    /// Timer that fires when nothing was taken for too long.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Writing {
    /// Checks the result of an attempt to write: returns an error instead of waiting for too long.
    fn tried<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let AnswerTimeouts { stalled, whole } = self.patience;
        if polled.is_ready() {
            self.alarm = None;
        } else {
            self.until.get_or_insert_with(|| Instant::now() + whole);
            let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep(stalled)));
            if alarm.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(late()));
            }
        }
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return Poll::Ready(Err(late()));
        }
        polled
    }

    /// Marks everything written so far as taken.
    fn reset_deadline(&mut self) {
        self.until = None;
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the answer was not read")
}

/// A stream that records when bytes arrive and limits the time for which writes wait for the peer.
pub(crate) struct Watched<S> {
    stream: S,
    stage: Stage,
    writing: Writing,
}

impl<S> Watched<S> {
    pub(crate) fn new(stream: S, stage: Stage, patience: AnswerTimeouts) -> Self {
        Self { stream, stage, writing: Writing { patience, until: None, alarm: None } }
    }

    pub(crate) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.stage.received();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Self { stream, writing, .. } = &mut *self;
        let polled = Pin::new(stream).poll_write(cx, bytes);
        writing.tried(cx, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, writing, .. } = &mut *self;
        let polled = Pin::new(stream).poll_flush(cx);
        let polled = writing.tried(cx, polled);
        if polled.is_ready() {
            writing.reset_deadline();
        }
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { stream, writing, .. } = &mut *self;
        let polled = Pin::new(stream).poll_write_vectored(cx, bytes);
        writing.tried(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
