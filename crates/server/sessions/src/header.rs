//! How long a connection's other side may take: with a request's header, counted from its first
//! byte (a connection that is idle between requests is another matter, and may be so for longer),
//! and with reading an answer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// What a connection is at: idle, the arrival of a header, or an answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stage(Arc<Steps>);

#[derive(Debug, Default)]
struct Steps {
    /// Number of the header that is arriving; 0: none is.
    arriving: AtomicU64,
    /// Headers that have begun so far.
    begun: AtomicU64,
    /// Requests being answered.
    answering: AtomicU64,
}

/// A request is being answered while this lives.
pub(crate) struct Answering<F> {
    answer: F,
    stage: Stage,
}

impl Stage {
    /// The header is here; this is the answer in work.
    pub(crate) fn answering<F>(&self, answer: F) -> Answering<F> {
        self.0.answering.fetch_add(1, Ordering::AcqRel);
        self.0.arriving.store(0, Ordering::Release);
        Answering { answer, stage: self.clone() }
    }

    /// Bytes have arrived.
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

impl<F: Future + Unpin> Future for Answering<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        Pin::new(&mut self.answer).poll(cx)
    }
}

impl<F> Drop for Answering<F> {
    fn drop(&mut self) {
        self.stage.0.answering.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The time limit of one connection's headers.
pub(crate) struct Header {
    stage: Stage,
    within: Duration,
    /// Which header it is for.
    alarm: Option<(u64, Pin<Box<Sleep>>)>,
}

impl Header {
    pub(crate) fn new(within: Duration) -> Self {
        Self { stage: Stage::default(), within, alarm: None }
    }

    pub(crate) fn stage(&self) -> Stage {
        self.stage.clone()
    }

    /// Ready when a header that has begun is not here in time. To be asked after the connection
    /// itself, which reads.
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

/// How long an answer may wait for its reader.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// While it takes nothing at all.
    pub(crate) stalled: Duration,
    /// Until it has taken everything.
    pub(crate) whole: Duration,
}

/// An answer that is being written.
#[derive(Debug)]
struct Writing {
    patience: Patience,
    /// When it must have been taken whole, from the first wait on.
    until: Option<Instant>,
    /// Rings when nothing was taken for too long.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Writing {
    /// What became of one try to write: an error instead of a wait that is too long.
    fn tried<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Patience { stalled, whole } = self.patience;
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

    /// Everything written so far was taken.
    fn taken(&mut self) {
        self.until = None;
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the answer was not read")
}

/// A stream whose arriving bytes are noticed, and whose other side is not waited for without end.
pub(crate) struct Watched<S> {
    stream: S,
    stage: Stage,
    writing: Writing,
}

impl<S> Watched<S> {
    pub(crate) fn new(stream: S, stage: Stage, patience: Patience) -> Self {
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
            writing.taken();
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
