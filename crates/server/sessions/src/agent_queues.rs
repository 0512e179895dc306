//! The order of one agent's requests: each agent has a lane, and whoever has joined it first goes
//! first. Lanes of different agents do not know each other.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use model::{AgentId, Incarnation};
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

pub(crate) struct Lanes {
    by_agent: Mutex<HashMap<AgentId, Arc<Lane>>>,
    /// Idle lanes are forgotten beyond this many.
    idle_max: usize,
    /// Most requests in one lane.
    requests_max: usize,
}

#[derive(Default)]
struct Lane {
    turn: Arc<tokio::sync::Mutex<()>>,
    requests: AtomicUsize,
    /// The last session that the store has applied.
    session: Mutex<Last>,
}

/// The last session of an agent that the store has applied.
#[derive(Debug, Clone, Default)]
pub(crate) struct Last {
    /// Of which life of the agent the store was asked; `None`: it was not.
    life: Option<Incarnation>,
    /// Its id; `None` when there was none.
    pub(crate) id: Option<String>,
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
    pub(crate) fn new(idle_max: usize, requests_max: usize) -> Self {
        Self { by_agent: Mutex::default(), idle_max, requests_max }
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

    /// The last session applied of this life; `None` when it is not known: ask the store.
    pub(crate) fn session(&self, agent: AgentId, life: Incarnation) -> Option<Last> {
        let lane = self.by_agent.lock().get(&agent).map(Arc::clone)?;
        let last = lane.session.lock();
        (last.life == Some(life)).then(|| last.clone())
    }

    /// Remember what the store said, also that there was none: else each heartbeat of an agent that
    /// has told nothing yet would ask again.
    pub(crate) fn remember(&self, agent: AgentId, life: Incarnation, session: Option<&str>) {
        let lane = self.lane(agent);
        let mut last = lane.session.lock();
        if last.life != Some(life) {
            *last = Last { life: Some(life), id: session.map(str::to_owned) };
        }
    }

    fn lane(&self, agent: AgentId) -> Arc<Lane> {
        let mut lanes = self.by_agent.lock();
        if lanes.len() >= self.idle_max && !lanes.contains_key(&agent) {
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
    /// Whoever is next may go; the place is still taken.
    pub(crate) fn over(self) -> Place {
        self.place
    }

    /// This session of that life is applied; `None`: the agent was removed.
    pub(crate) fn applied(&self, applied: Option<(Incarnation, &str)>) {
        *self.place.lane.session.lock() = match applied {
            Some((life, session)) => Last { life: Some(life), id: Some(session.to_owned()) },
            None => Last::default(),
        };
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lane.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::task::Poll;

    use super::*;

    /// Polls once: whoever is polled first stands first in line.
    async fn waits(turn: &mut Pin<Box<impl Future<Output = Turn>>>) -> bool {
        poll_fn(|cx| Poll::Ready(turn.as_mut().poll(cx).is_pending())).await
    }

    #[tokio::test]
    async fn one_agents_requests_go_in_order_and_are_bounded() {
        let lanes = Lanes::new(10, 3);
        let first = lanes.join(AgentId(1)).unwrap().turn().await;
        let mut second = Box::pin(lanes.join(AgentId(1)).unwrap().turn());
        let mut third = Box::pin(lanes.join(AgentId(1)).unwrap().turn());
        assert!(waits(&mut second).await && waits(&mut third).await);
        assert!(lanes.join(AgentId(1)).is_none(), "a fourth request");
        assert!(lanes.join(AgentId(2)).is_some(), "another agent");
        drop(first);
        assert!(waits(&mut third).await, "the second goes first");
        drop(second.await);
        drop(third.await);
        assert!(lanes.join(AgentId(1)).is_some());
    }

    #[tokio::test]
    async fn that_there_was_no_session_is_known_until_there_is_one() {
        let lanes = Lanes::new(4, 1);
        let life = Incarnation(5);
        let known = || lanes.session(AgentId(1), life).map(|last| last.id);
        assert_eq!(known(), None);
        lanes.remember(AgentId(1), life, None);
        assert_eq!(known(), Some(None));
        let turn = lanes.join(AgentId(1)).unwrap().turn().await;
        turn.applied(Some((life, "s")));
        lanes.remember(AgentId(1), life, None);
        assert_eq!(known(), Some(Some("s".into())), "what was asked before comes too late");
        let later = lanes.session(AgentId(1), Incarnation(6)).map(|last| last.id);
        assert_eq!(later, None, "another life of the number has sessions of its own");
        turn.applied(None);
        assert_eq!(known(), None, "the agent was removed");
    }

    #[test]
    fn idle_lanes_are_forgotten() {
        let lanes = Lanes::new(4, 1);
        let kept = lanes.join(AgentId(0)).unwrap();
        for n in 1..100 {
            lanes.remember(AgentId(n), Incarnation(1), Some("s"));
        }
        assert!(lanes.by_agent.lock().len() <= 5);
        assert!(lanes.join(AgentId(0)).is_none());
        drop(kept);
        assert!(lanes.join(AgentId(0)).is_some());
    }
}
