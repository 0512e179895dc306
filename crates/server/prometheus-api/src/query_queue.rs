//! Runs queries, a few at a time, each on a thread with a stack for the deepest tree.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use budget::Memory;
use promql_syntax::limits::STACK_BYTES;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::refusal::{Refusal, defect, unavailable};
use crate::stream::{self, BodySender, UNREAD_TIME_MAX};

/// Longest time of a query, with the time that it waits.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(2);
/// Most queries of one port that run at a time.
pub const RUNNING_MAX: usize = 8;
/// Most queries of one port that wait for their turn.
pub const WAITING_MAX: usize = 256;

/// The queries of one port.
#[derive(Clone)]
pub(crate) struct QueryQueue {
    running: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    pub(crate) memory: Memory,
    /// Longest time that a query waits for a client that takes nothing of a streamed answer.
    unread_time: Duration,
}

/// Says if the client of a query has left.
#[derive(Clone)]
pub(crate) struct Client(Arc<AtomicBool>);

impl Client {
    pub(crate) fn is_gone(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Tells that the client has left, when it is dropped.
struct DisconnectGuard(Arc<AtomicBool>);

impl Drop for DisconnectGuard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Counts a query that waits.
struct WaitingCount(Arc<AtomicUsize>);

impl Drop for WaitingCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl QueryQueue {
    /// Creates the queue of a port, whose queries take their memory from a pool.
    pub(crate) fn new(memory: Memory) -> Self {
        let running = Arc::new(Semaphore::new(RUNNING_MAX));
        Self { running, waiting: Arc::default(), memory, unread_time: UNREAD_TIME_MAX }
    }

    /// Runs a query once fewer than [`RUNNING_MAX`] others run.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        timeout: Duration,
        query: impl FnOnce(Client) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let permit = self.permit(timeout).await?;
        let client = Client(Arc::default());
        let _leaves = DisconnectGuard(Arc::clone(&client.0));
        let (send, receive) = oneshot::channel();
        // A client that has left takes no answer.
        start(permit, move || drop(send.send(query(client))))?;
        receive.await.unwrap_or_else(|_| Err(defect()))
    }

    /// Runs a query that hands over its answer in pieces, when it is its turn. Returns once the first
    /// piece is there.
    pub(crate) async fn stream(
        &self,
        query: impl FnOnce(&BodySender) -> Result<(), Refusal> + Send + 'static,
    ) -> Result<Body, Refusal> {
        let permit = self.permit(TIMEOUT).await?;
        let (pieces, answer) = stream::answer(self.unread_time);
        start(permit, move || {
            let result = query(&pieces);
            pieces.end(result);
        })?;
        answer.body().await
    }

    /// Waits until the query may run.
    async fn permit(&self, timeout: Duration) -> Result<OwnedSemaphorePermit, Refusal> {
        let until = Instant::now() + timeout;
        let waits = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = WaitingCount(Arc::clone(&self.waiting));
        if waits >= WAITING_MAX {
            return Err(unavailable("too many queries are waiting: ask again later"));
        }
        let permit = Arc::clone(&self.running).acquire_owned();
        let permit = timeout_at(until, permit).await.ok().and_then(Result::ok);
        permit.ok_or_else(|| unavailable("query timed out in expression evaluation"))
    }
}

/// Runs a query on a thread of its own, which holds the permit.
fn start(
    permit: OwnedSemaphorePermit,
    query: impl FnOnce() + Send + 'static,
) -> Result<(), Refusal> {
    let run = move || {
        query();
        drop(permit);
    };
    let thread = std::thread::Builder::new().name("promql".into()).stack_size(STACK_BYTES);
    if let Err(error) = thread.spawn(run) {
        tracing::error!("a thread for a query cannot be started: {error}");
        return Err(unavailable("a thread for the query cannot be started"));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use std::future::poll_fn;
    use std::iter::repeat;
    use std::pin::Pin;
    use std::sync::Barrier;

    use axum::body::HttpBody as _;

    use super::*;

    async fn until(is_so: impl Fn() -> bool) {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    }

    fn started<T: Send + 'static>(
        turns: &QueryQueue,
        query: impl FnOnce(Client) -> Result<T, Refusal> + Send + 'static,
    ) -> tokio::task::JoinHandle<Result<T, Refusal>> {
        let turns = turns.clone();
        tokio::spawn(async move { turns.run(TIMEOUT, query).await })
    }

    fn wait_until(is_so: impl Fn() -> bool) {
        while !is_so() {
            std::thread::yield_now();
        }
    }

    #[tokio::test]
    async fn queries_wait_for_a_place_and_a_further_one_is_refused() {
        let turns = QueryQueue::new(Memory::default());
        let barrier = Arc::new(Barrier::new(RUNNING_MAX + 1));
        let mut queries = Vec::new();
        for _ in 0..RUNNING_MAX {
            let barrier = Arc::clone(&barrier);
            queries.push(started(&turns, move |_| Ok(barrier.wait().is_leader())));
        }
        until(|| turns.running.available_permits() == 0).await;
        queries.extend((0..WAITING_MAX).map(|_| started(&turns, |_| Ok(false))));
        until(|| turns.waiting.load(Ordering::Relaxed) == WAITING_MAX).await;
        let refused = turns.run(TIMEOUT, |_| Ok(())).await.unwrap_err();
        assert_eq!(refused, unavailable("too many queries are waiting: ask again later"));
        queries.pop().unwrap().abort();
        until(|| turns.waiting.load(Ordering::Relaxed) == WAITING_MAX - 1).await;
        let late = turns.run(Duration::ZERO, |_| Ok(())).await.unwrap_err();
        assert_eq!(late, unavailable("query timed out in expression evaluation"));
        barrier.wait();
        for query in queries {
            assert!(query.await.unwrap().is_ok());
        }
    }

    #[tokio::test]
    async fn query_sees_that_its_client_has_left() {
        let turns = QueryQueue::new(Memory::default());
        let (send, left) = oneshot::channel();
        let request = started(&turns, move |client| {
            wait_until(|| client.is_gone());
            let _ = send.send(());
            Ok(())
        });
        until(|| turns.running.available_permits() < RUNNING_MAX).await;
        request.abort();
        left.await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn unread_stream_gives_its_place_back_and_ends_as_incomplete() {
        let turns = QueryQueue {
            unread_time: Duration::from_millis(1),
            ..QueryQueue::new(Memory::default())
        };
        let endless =
            |pieces: &BodySender| repeat(()).try_for_each(|()| pieces.send(vec![0; 1000]));
        let mut body = turns.stream(endless).await.unwrap();
        until(|| turns.running.available_permits() == RUNNING_MAX).await;
        let (mut bytes, mut next) = (0, poll(&mut body).await);
        while let Some(Ok(frame)) = next {
            bytes += frame.data_ref().unwrap().len();
            next = poll(&mut body).await;
        }
        assert!(next.unwrap().is_err() && bytes <= 4000, "{bytes} bytes were waiting");
    }

    #[tokio::test]
    async fn stream_ends_as_complete_only_if_its_query_has_ended() {
        let turns = QueryQueue::new(Memory::default());
        let early = turns.stream(|_| Err(unavailable("early"))).await.unwrap_err();
        assert_eq!(early, unavailable("early"));
        let failing = turns.stream(|pieces| {
            pieces.send(vec![1])?;
            Err(unavailable("late"))
        });
        let mut late = failing.await.unwrap();
        assert!(poll(&mut late).await.unwrap().is_ok());
        assert!(poll(&mut late).await.unwrap().is_err());
        let mut whole = turns.stream(|pieces| pieces.send(vec![1])).await.unwrap();
        assert!(poll(&mut whole).await.unwrap().is_ok());
        assert!(poll(&mut whole).await.is_none());
        let mut empty = turns.stream(|_| Ok(())).await.unwrap();
        assert!(poll(&mut empty).await.is_none());
    }

    #[tokio::test]
    async fn stream_sees_that_its_client_has_left() {
        let turns = QueryQueue::new(Memory::default());
        let (send, left) = oneshot::channel();
        let query = move |pieces: &BodySender| {
            pieces.send(vec![1])?;
            wait_until(pieces.gone());
            let _ = send.send(pieces.send(vec![2]).is_err());
            Ok(())
        };
        drop(turns.stream(query).await.unwrap());
        assert!(left.await.unwrap());
    }

    async fn poll(
        body: &mut Body,
    ) -> Option<Result<hyper::body::Frame<bytes::Bytes>, axum::Error>> {
        poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await
    }
}
