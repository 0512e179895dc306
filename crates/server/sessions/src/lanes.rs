//! The order of one agent's requests: each agent has a lane, and whoever has joined it first goes
//! first. Lanes of different agents do not know each other.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use model::AgentId;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// All lanes.
pub(crate) struct Lanes {
    lanes: Mutex<HashMap<AgentId, Arc<Lane>>>,
    /// Idle lanes are forgotten beyond this many.
    lanes_max: usize,
    /// Most requests in one lane.
    requests_max: usize,
}

#[derive(Default)]
struct Lane {
    turn: Arc<tokio::sync::Mutex<()>>,
    requests: AtomicUsize,
    /// The last session that the store has applied, once known.
    session: Mutex<Option<String>>,
}

/// A place in a lane; given up when dropped.
pub(crate) struct Place {
    lane: Arc<Lane>,
}

/// The turn of a request; over when dropped.
pub(crate) struct Turn {
    place: Place,
    _guard: OwnedMutexGuard<()>,
}

impl Lanes {
    pub(crate) fn new(lanes_max: usize, requests_max: usize) -> Self {
        Self { lanes: Mutex::default(), lanes_max, requests_max }
    }

    /// Take a place, or nothing when this agent has too many already.
    pub(crate) fn join(&self, agent: AgentId) -> Option<Place> {
        let lane = self.lane(agent);
        lane.requests
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| {
                (n < self.requests_max).then_some(n + 1)
            })
            .ok()
            .map(|_| Place { lane })
    }

    /// The last session known to be applied.
    pub(crate) fn session(&self, agent: AgentId) -> Option<String> {
        self.lanes.lock().get(&agent).and_then(|l| l.session.lock().clone())
    }

    /// Remember what the store said.
    pub(crate) fn remember(&self, agent: AgentId, session: &str) {
        let lane = self.lane(agent);
        lane.session.lock().get_or_insert_with(|| session.to_owned());
    }

    fn lane(&self, agent: AgentId) -> Arc<Lane> {
        let mut lanes = self.lanes.lock();
        if lanes.len() >= self.lanes_max && !lanes.contains_key(&agent) {
            lanes.retain(|_, lane| Arc::strong_count(lane) > 1);
        }
        Arc::clone(lanes.entry(agent).or_default())
    }
}

impl Place {
    /// Wait for everyone who is before us.
    pub(crate) async fn turn(self) -> Turn {
        let guard = Arc::clone(&self.lane.turn).lock_owned().await;
        Turn { place: self, _guard: guard }
    }
}

impl Turn {
    /// This session is applied; `None`: the agent was removed.
    pub(crate) fn applied(&self, session: Option<&str>) {
        *self.place.lane.session.lock() = session.map(str::to_owned);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lane.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_agents_requests_go_in_order_and_are_bounded() {
        let lanes = Lanes::new(10, 3);
        let first = lanes.join(AgentId(1)).unwrap().turn().await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for n in 0..2 {
            let (place, order) = (lanes.join(AgentId(1)).unwrap(), Arc::clone(&order));
            let mut turn = Box::pin(place.turn());
            // Polled once, in order: each stands in line now.
            assert!(
                std::future::poll_fn(|cx| {
                    std::task::Poll::Ready(turn.as_mut().poll(cx).is_pending())
                })
                .await
            );
            tasks.push(tokio::spawn(async move {
                let _turn = turn.await;
                order.lock().push(n);
            }));
        }
        assert!(lanes.join(AgentId(1)).is_none(), "a fourth request");
        assert!(lanes.join(AgentId(2)).is_some(), "another agent");
        assert!(order.lock().is_empty());
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock(), [0, 1]);
        assert!(lanes.join(AgentId(1)).is_some());
    }

    #[test]
    fn idle_lanes_are_forgotten() {
        let lanes = Lanes::new(4, 1);
        let kept = lanes.join(AgentId(0)).unwrap();
        for n in 1..100 {
            lanes.remember(AgentId(n), "s");
        }
        assert!(lanes.lanes.lock().len() <= 5);
        assert!(lanes.join(AgentId(0)).is_none());
        drop(kept);
        assert!(lanes.join(AgentId(0)).is_some());
    }
}
