//! Per-agent queues: the requests of one agent that change or compare its state run one after the
//! other. Queues of different agents are independent.
//!
//! A request takes a [`RequestPermit`] of its agent's queue, which bounds the queue, reads and
//! verifies its body, and waits for the [`AgentLock`]. With the lock it identifies its sender
//! again, claims the instance lease, submits its record to the journal and waits until the state
//! store has applied it. Requests get the lock in the order in which they begin to wait for it,
//! which is the order in which their bodies were verified.
//!
//! # Locking
//! Locks are taken in this order:
//!
//! 1. [`AgentLock`], an asynchronous mutex per agent. It is the only lock of this crate that is
//!    held across an `.await`: a session, a removal and a digest keep it until their last call to
//!    commit, state store and registry has returned.
//! 2. The locks of registry, commit and state store, within such a call.
//! 3. The mutexes of this crate: the map of queues, the last session of a queue, the leases and
//!    the limit of log lines. Each is held for a short time without I/O, and never two of them at
//!    once.
//!
//! Permits are counters. A request that finds none left is refused and does not wait, so they
//! cannot be part of a deadlock. A body may wait for bytes in flight, with a permit and without an
//! [`AgentLock`]. Those bytes are held by complete bodies, which need nothing more of the budget,
//! and by younger ones, which are refused ([`env::budget`]).
//!
//! The order rules out these races:
//! - Two sessions of one agent are in the journal in the order in which they are answered. The
//!   later one is submitted after the earlier one was applied.
//! - A digest or a check that follows an answered session sees what that session wrote: with the
//!   lock held, it waits until everything in the journal is applied, and then reads.
//! - No session is stored after the removal of its agent. A removal over the unix socket holds the
//!   lock, and a session identifies its sender again once it has the lock. A removal through the
//!   API does not take the lock; its record deletes what was stored before it, and the state store
//!   refuses a later record of the incarnation that has ended.
//! - An agent never has two queues. A queue that is in use is referred to by a permit, the
//!   reference is taken with the map locked, and an idle queue is dropped with the map locked.
//!
//! A caller must not wait for a body, or for a second agent's lock, while it holds an
//! [`AgentLock`]. The registry calls back for a removed agent with its own locks held; the callback
//! takes mutexes of group 3 only.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use model::{AgentId, Incarnation};
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

pub(crate) struct AgentQueues {
    by_agent: Mutex<HashMap<AgentId, Arc<AgentQueue>>>,
    /// Number of queues above which idle ones are dropped.
    queues_max: usize,
    /// Most requests in one queue.
    requests_max: usize,
}

#[derive(Default)]
struct AgentQueue {
    order: Arc<tokio::sync::Mutex<()>>,
    requests: AtomicUsize,
    /// `None` until it was read from the store.
    last_session: Mutex<Option<LastSession>>,
}

/// The last session of an agent that the store has applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LastSession {
    incarnation: Incarnation,
    /// `None` if this incarnation has had no session yet.
    pub(crate) id: Option<String>,
}

/// Permission to be one of the requests of an agent; given back when dropped.
pub(crate) struct RequestPermit {
    queue: Arc<AgentQueue>,
}

/// Exclusive access to an agent's state; released when dropped.
pub(crate) struct AgentLock {
    permit: RequestPermit,
    _guard: OwnedMutexGuard<()>,
}

impl AgentQueues {
    pub(crate) fn new(queues_max: usize, requests_max: usize) -> Self {
        Self { by_agent: Mutex::default(), queues_max, requests_max }
    }

    /// Takes a permit, or returns `None` if the agent's queue is full.
    pub(crate) fn take_permit(&self, agent: AgentId) -> Option<RequestPermit> {
        let queue = self.queue(agent);
        queue
            .requests
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| {
                (n < self.requests_max).then_some(n + 1)
            })
            .ok()
            .map(|_| RequestPermit { queue })
    }

    /// Returns the last session of this incarnation, or `None` if it is not cached and has to be
    /// read from the store.
    pub(crate) fn last_session(
        &self,
        agent: AgentId,
        incarnation: Incarnation,
    ) -> Option<LastSession> {
        let queue = self.by_agent.lock().get(&agent).map(Arc::clone)?;
        let last = queue.last_session.lock();
        last.as_ref().filter(|last| last.incarnation == incarnation).cloned()
    }

    /// Caches the store's answer, unless a session was applied since it was asked. The absence of a
    /// session is cached too: otherwise each heartbeat of a new agent would query the store.
    pub(crate) fn cache_last_session(
        &self,
        agent: AgentId,
        incarnation: Incarnation,
        session: Option<&str>,
    ) {
        let queue = self.queue(agent);
        let mut last = queue.last_session.lock();
        if last.as_ref().is_none_or(|last| last.incarnation != incarnation) {
            *last = Some(LastSession { incarnation, id: session.map(str::to_owned) });
        }
    }

    fn queue(&self, agent: AgentId) -> Arc<AgentQueue> {
        let mut queues = self.by_agent.lock();
        if queues.len() >= self.queues_max && !queues.contains_key(&agent) {
            queues.retain(|_, queue| Arc::strong_count(queue) > 1);
        }
        Arc::clone(queues.entry(agent).or_default())
    }
}

impl RequestPermit {
    /// Waits until all requests that began to wait before have released the agent's lock.
    pub(crate) async fn lock_agent(self) -> AgentLock {
        let guard = Arc::clone(&self.queue.order).lock_owned().await;
        AgentLock { permit: self, _guard: guard }
    }
}

impl AgentLock {
    /// Releases the lock and keeps the permit.
    pub(crate) fn release(self) -> RequestPermit {
        self.permit
    }

    /// Notes a session that the store has applied.
    pub(crate) fn set_last_session(&self, incarnation: Incarnation, session: &str) {
        let last = LastSession { incarnation, id: Some(session.to_owned()) };
        *self.permit.queue.last_session.lock() = Some(last);
    }

    /// Forgets the last session of an agent that was removed.
    pub(crate) fn forget_last_session(&self) {
        *self.permit.queue.last_session.lock() = None;
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        self.queue.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::task::Poll;

    use super::*;

    /// Polls once, which gives the future its position in the queue.
    async fn is_waiting(lock: &mut Pin<Box<impl Future<Output = AgentLock>>>) -> bool {
        poll_fn(|cx| Poll::Ready(lock.as_mut().poll(cx).is_pending())).await
    }

    #[tokio::test]
    async fn requests_of_one_agent_are_ordered_and_bounded() {
        let queues = AgentQueues::new(10, 3);
        let first = queues.take_permit(AgentId(1)).unwrap().lock_agent().await;
        let mut second = Box::pin(queues.take_permit(AgentId(1)).unwrap().lock_agent());
        let mut third = Box::pin(queues.take_permit(AgentId(1)).unwrap().lock_agent());
        assert!(is_waiting(&mut second).await && is_waiting(&mut third).await);
        assert!(queues.take_permit(AgentId(1)).is_none(), "a fourth request");
        assert!(queues.take_permit(AgentId(2)).is_some(), "another agent");
        drop(first);
        assert!(is_waiting(&mut third).await, "the second goes first");
        drop(second.await);
        drop(third.await);
        assert!(queues.take_permit(AgentId(1)).is_some());
    }

    #[tokio::test]
    async fn absence_of_a_session_is_cached_until_there_is_one() {
        let queues = AgentQueues::new(4, 1);
        let first = Incarnation(5);
        let known = || queues.last_session(AgentId(1), first).map(|last| last.id);
        assert_eq!(known(), None);
        queues.cache_last_session(AgentId(1), first, None);
        assert_eq!(known(), Some(None));
        let lock = queues.take_permit(AgentId(1)).unwrap().lock_agent().await;
        lock.set_last_session(first, "s");
        queues.cache_last_session(AgentId(1), first, None);
        assert_eq!(known(), Some(Some("s".into())), "a late answer of the store changes nothing");
        let later = queues.last_session(AgentId(1), Incarnation(6)).map(|last| last.id);
        assert_eq!(later, None, "another incarnation");
        lock.forget_last_session();
        assert_eq!(known(), None, "the agent was removed");
    }

    #[test]
    fn idle_queues_are_dropped() {
        let queues = AgentQueues::new(4, 1);
        let kept = queues.take_permit(AgentId(0)).unwrap();
        for n in 1..100 {
            queues.cache_last_session(AgentId(n), Incarnation(1), Some("s"));
        }
        assert!(queues.by_agent.lock().len() <= 5);
        assert!(queues.take_permit(AgentId(0)).is_none());
        drop(kept);
        assert!(queues.take_permit(AgentId(0)).is_some());
    }
}
