//! Runs queries, a few at a time, each on a thread with a stack for the deepest tree.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use budget::Memory;
use promql_syntax::limits::STACK_BYTES;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::Refusal;

/// Longest time of a query, with the time that it waits.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(2);
/// Most queries of one port that run at a time.
pub const RUNNING_MAX: usize = 8;
/// Most queries of one port that wait for their turn.
pub const WAITING_MAX: usize = 256;

/// The queries of one port.
#[derive(Clone)]
pub(crate) struct Turns {
    running: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    pub(crate) memory: Memory,
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
struct Leaves(Arc<AtomicBool>);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Counts a query that waits.
struct Waits(Arc<AtomicUsize>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Turns {
    /// Creates the turns of queries that take their memory from a pool.
    pub(crate) fn new(memory: Memory) -> Self {
        let running = Arc::new(Semaphore::new(RUNNING_MAX));
        Self { running, waiting: Arc::default(), memory }
    }

    /// Runs a query when it is its turn.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        timeout: Duration,
        query: impl FnOnce(Client) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let until = Instant::now() + timeout;
        let waits = self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waits(Arc::clone(&self.waiting));
        if waits >= WAITING_MAX {
            return Err(unavailable("too many queries are waiting: ask again later"));
        }
        let permit = Arc::clone(&self.running).acquire_owned();
        let Ok(Ok(permit)) = timeout_at(until, permit).await else {
            return Err(unavailable("query timed out in expression evaluation"));
        };
        drop(waiting);
        let client = Client(Arc::default());
        let _leaves = Leaves(Arc::clone(&client.0));
        let (send, receive) = oneshot::channel();
        let run = move || {
            // A client that has left takes no answer.
            drop(send.send(query(client)));
            drop(permit);
        };
        let thread = std::thread::Builder::new().name("promql".into()).stack_size(STACK_BYTES);
        if let Err(error) = thread.spawn(run) {
            tracing::error!("a thread for a query cannot be started: {error}");
            return Err(unavailable("a thread for the query cannot be started"));
        }
        receive.await.unwrap_or_else(|_| {
            let text = "the query stopped unexpectedly: this is a defect, please report it".into();
            Err(Refusal { status: StatusCode::INTERNAL_SERVER_ERROR, kind: "internal", text })
        })
    }
}

pub(crate) fn unavailable(text: &str) -> Refusal {
    Refusal { status: StatusCode::SERVICE_UNAVAILABLE, kind: "timeout", text: text.into() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use std::sync::Barrier;

    use super::*;

    async fn until(is_so: impl Fn() -> bool) {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    }

    fn started<T: Send + 'static>(
        turns: &Turns,
        query: impl FnOnce(Client) -> Result<T, Refusal> + Send + 'static,
    ) -> tokio::task::JoinHandle<Result<T, Refusal>> {
        let turns = turns.clone();
        tokio::spawn(async move { turns.run(TIMEOUT, query).await })
    }

    fn wait_until_gone(client: &Client) {
        while !client.is_gone() {
            std::thread::yield_now();
        }
    }

    #[tokio::test]
    async fn queries_wait_for_a_place_and_a_further_one_is_refused() {
        let turns = Turns::new(Memory::default());
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
        let turns = Turns::new(Memory::default());
        let (send, left) = oneshot::channel();
        let request = started(&turns, move |client| {
            wait_until_gone(&client);
            let _ = send.send(());
            Ok(())
        });
        until(|| turns.running.available_permits() < RUNNING_MAX).await;
        request.abort();
        left.await.unwrap();
    }
}
