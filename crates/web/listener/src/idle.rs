//! Detection of idle connections, so that they do not hold permits: connections without requests, and
//! connections whose reader does not take the answers. An answer counts as taken when its bytes are
//! written to the socket, which on a slow line is long after the body was produced.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep};

/// The activity of one connection.
pub(super) struct ConnectionActivity {
    started: Instant,
    /// Time of the last request, written piece or end of an answer, milliseconds since `started`.
    moved_ms: AtomicU64,
    in_flight: AtomicUsize,
    /// True once a request has arrived.
    asked: AtomicBool,
    /// Bytes of answers that were produced and not yet written, estimated: all other bytes written
    /// (heads, answers to pings) are subtracted as well.
    owed: AtomicU64,
}

/// Limits of inactivity.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quiet {
    /// Limit while no request is in flight.
    pub(super) idle: Duration,
    /// Limit while one is in flight.
    pub(super) stalled: Duration,
    /// Time that requests in flight have to finish when the server stops.
    pub(super) stopping: Duration,
}

impl ConnectionActivity {
    pub(super) fn new() -> Arc<Self> {
        Self::since(Instant::now())
    }

    fn since(started: Instant) -> Arc<Self> {
        let (moved_ms, in_flight, asked, owed) = Default::default();
        Arc::new(Self { started, moved_ms, in_flight, asked, owed })
    }

    /// Returns whether there has been a request, and the time since the last activity; `None` while a
    /// request is in flight.
    pub(super) fn silence(&self, now: Instant) -> Option<(bool, Duration)> {
        if self.is_busy() {
            return None;
        }
        let moved = Duration::from_millis(self.moved_ms.load(Ordering::Relaxed));
        let silent = now.saturating_duration_since(self.started).saturating_sub(moved);
        Some((self.asked.load(Ordering::Relaxed), silent))
    }

    /// Returns true if a request is in flight.
    pub(super) fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) > 0
    }

    /// Records bytes written; they count as activity if bytes of an answer were still unwritten.
    fn wrote(&self, bytes: usize) {
        let less = |owed: u64| Some(owed.saturating_sub(bytes as u64));
        let owed = self.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        if owed.is_ok_and(|owed| owed > 0) {
            self.beat();
        }
    }

    fn beat(&self) {
        self.moved_ms.store(self.started.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Records a new request, which is in flight until its answer has been produced or given up.
    pub(super) fn begin_request(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.asked.store(true, Ordering::Relaxed);
        self.beat();
        InFlight(Arc::clone(self))
    }

    /// Returns once there has been no activity for too long.
    pub(super) async fn stops(&self, quiet: Quiet) {
        while let Some(left) = self.time_left(quiet, self.started.elapsed()) {
            // Wake up early, because the limit changes when a request starts or ends.
            sleep(left.min(quiet.idle)).await;
        }
    }

    /// Returns the time left until the limit; `None` if it has been reached. `elapsed` is the time
    /// since `started`.
    fn time_left(&self, quiet: Quiet, elapsed: Duration) -> Option<Duration> {
        let busy = self.in_flight.load(Ordering::Acquire) > 0;
        let moved = Duration::from_millis(self.moved_ms.load(Ordering::Relaxed));
        let bound = if busy { quiet.stalled } else { quiet.idle };
        bound.checked_sub(elapsed.saturating_sub(moved)).filter(|left| !left.is_zero())
    }
}

/// A request in flight.
pub(super) struct InFlight(Arc<ConnectionActivity>);

impl Drop for InFlight {
    fn drop(&mut self) {
        // Record activity first: a concurrent check must not see the connection as idle since the
        // request began.
        self.0.beat();
        self.0.in_flight.fetch_sub(1, Ordering::Release);
    }
}

/// The body of an answer, with the request that ends with it.
pub(super) struct TrackedBody {
    pub(super) body: Body,
    pub(super) request: InFlight,
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(frame) = &frame {
            let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
            let bytes = data.map_or(0, Bytes::len) as u64;
            self.request.0.owed.fetch_add(bytes, Ordering::Relaxed);
            self.request.0.beat();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection's stream that counts the bytes written to it.
pub(super) struct Watched<S> {
    pub(super) stream: S,
    pub(super) pulse: Arc<ConnectionActivity>,
}

impl<S> Watched<S> {
    fn record_written(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.pulse.wrote(*bytes);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.record_written(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.record_written(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    const QUIET: Quiet = Quiet {
        idle: Duration::from_mins(1),
        stalled: Duration::from_mins(10),
        stopping: Duration::from_secs(10),
    };

    #[test]
    fn idle_limit_applies_only_without_a_request_in_flight() {
        let pulse = ConnectionActivity::new();
        let left = |seconds| {
            pulse
                .time_left(QUIET, Duration::from_secs(seconds))
                .map(|left| left.as_secs_f64().ceil())
        };
        assert_eq!((left(0), left(59), left(60)), (Some(60.0), Some(1.0), None));
        let request = pulse.begin_request();
        assert_eq!((left(60), left(599)), (Some(540.0), Some(1.0)));
        assert_eq!(left(601), None, "its reader takes nothing");
        drop(request);
        assert_eq!((left(59), left(61)), (Some(1.0), None));
    }
    #[tokio::test]
    async fn only_writes_of_answers_count_as_connection_activity() {
        let long = QUIET.idle * 2;
        let started = Instant::now().checked_sub(long).expect("since the machine started");
        let pulse = ConnectionActivity::since(started);
        let mut stream = Watched { stream: tokio::io::sink(), pulse: Arc::clone(&pulse) };
        stream.write_all(&[0; 1_000]).await.expect("a sink");
        assert!(pulse.time_left(QUIET, long).is_none());
        pulse.owed.store(100, Ordering::Relaxed);
        stream.write_all(&[0; 10]).await.expect("a sink");
        assert!(pulse.time_left(QUIET, long).is_some());
    }
}
