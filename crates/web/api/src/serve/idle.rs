//! Connections on which nothing happens do not keep their places: neither those on which no request
//! comes, nor those whose reader takes nothing of the answers.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, sleep};

/// What happens on one connection.
pub(super) struct Pulse {
    started: Instant,
    /// When a request came, a piece of an answer was taken or an answer ended: milliseconds after
    /// `started`.
    moved_ms: AtomicU64,
    in_flight: AtomicUsize,
}

/// How long nothing may happen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quiet {
    /// While no request is under way.
    pub(super) idle: Duration,
    /// While one is.
    pub(super) stalled: Duration,
}

impl Pulse {
    pub(super) fn new() -> Arc<Self> {
        let (moved_ms, in_flight) = Default::default();
        Arc::new(Self { started: Instant::now(), moved_ms, in_flight })
    }

    fn beat(&self) {
        self.moved_ms.store(self.started.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// A request has come; it is under way until its answer was taken whole or given up.
    pub(super) fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.beat();
        InFlight(Arc::clone(self))
    }

    /// Returns once nothing has happened for too long.
    pub(super) async fn stops(&self, quiet: Quiet) {
        while let Some(left) = self.left(quiet, self.started.elapsed()) {
            // Whether a request is under way may change meanwhile.
            sleep(left.min(quiet.idle)).await;
        }
    }

    /// How long nothing may happen yet, so long after the start; `None` when it is over.
    fn left(&self, quiet: Quiet, elapsed: Duration) -> Option<Duration> {
        let busy = self.in_flight.load(Ordering::Acquire) > 0;
        let moved = Duration::from_millis(self.moved_ms.load(Ordering::Relaxed));
        let bound = if busy { quiet.stalled } else { quiet.idle };
        bound.checked_sub(elapsed.saturating_sub(moved)).filter(|left| !left.is_zero())
    }
}

/// A request under way.
pub(super) struct InFlight(Arc<Pulse>);

impl Drop for InFlight {
    fn drop(&mut self) {
        // First: whoever looks in between must not find it idle since it began.
        self.0.beat();
        self.0.in_flight.fetch_sub(1, Ordering::Release);
    }
}

/// The body of an answer with the request that it ends.
pub(super) struct Answered {
    pub(super) body: Body,
    pub(super) request: InFlight,
}

impl HttpBody for Answered {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_ready() {
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

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Quiet = Quiet { idle: Duration::from_mins(1), stalled: Duration::from_mins(10) };

    #[test]
    fn a_connection_ends_a_while_after_its_last_request_and_not_during_one() {
        let pulse = Pulse::new();
        let left = |seconds| {
            pulse.left(QUIET, Duration::from_secs(seconds)).map(|left| left.as_secs_f64().ceil())
        };
        assert_eq!((left(0), left(59), left(60)), (Some(60.0), Some(1.0), None));
        let request = pulse.begin();
        assert_eq!((left(60), left(599)), (Some(540.0), Some(1.0)));
        assert_eq!(left(601), None, "its reader takes nothing");
        drop(request);
        assert_eq!((left(59), left(61)), (Some(1.0), None));
    }
}
