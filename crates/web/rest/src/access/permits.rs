//! Permits to query the stores. The number of requests that run at once is bounded, in total and (at
//! half of that) per user; so is the number that run or wait. The stores additionally keep one reader
//! of each database free for other users.

use std::collections::HashMap;
use std::sync::Arc;

use listener::Owner;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::access::quota::{Quota, Share};
use crate::limits::{RUNNING_EACH_MAX, RUNNING_MAX, WAITING_EACH_MAX, WAITING_MAX};

/// Number of owners above which the semaphores that are not in use are dropped.
const OWNERS_KEPT_MAX: usize = 1_024;

/// The permits of running requests and the quota of waiting ones.
pub struct RequestPermits {
    each: Mutex<HashMap<String, Arc<Semaphore>>>,
    all: Arc<Semaphore>,
    under_way: Quota,
}

/// A request's permit, released when dropped.
pub struct RequestPermit {
    _under_way: Share,
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Default for RequestPermits {
    fn default() -> Self {
        Self {
            each: Mutex::default(),
            all: Arc::new(Semaphore::new(RUNNING_MAX)),
            under_way: Quota::new(WAITING_MAX, WAITING_EACH_MAX),
        }
    }
}

impl RequestPermits {
    /// Waits for a permit; returns `None` if too many requests of this owner, or in total, are waiting.
    pub async fn acquire(&self, owner: Owner) -> Option<RequestPermit> {
        let own = self.semaphore_of(&owner);
        let under_way = self.under_way.reserve(owner, 1)?;
        // Acquire the owner's permit first, so that a request waiting for it holds none of the shared
        // permits.
        let own = own.acquire_owned().await.ok()?;
        let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(RequestPermit { _under_way: under_way, _own: own, _all: all })
    }

    fn semaphore_of(&self, owner: &Owner) -> Arc<Semaphore> {
        let mut each = self.each.lock();
        if let Some(permits) = each.get(owner.name.as_str()) {
            return Arc::clone(permits);
        }
        if each.len() >= OWNERS_KEPT_MAX {
            each.retain(|_, permits| Arc::strong_count(permits) > 1);
        }
        let most = if owner.is_local { RUNNING_MAX } else { RUNNING_EACH_MAX };
        let permits = Arc::new(Semaphore::new(most));
        each.insert(owner.name.clone(), Arc::clone(&permits));
        permits
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn now_or_never<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_user_cannot_take_all_request_permits() {
        let permits = RequestPermits::default();
        let from = |n: u8| Owner::from_network([192, 0, 2, n].into());
        let mut held = Vec::new();
        for _ in 0..RUNNING_EACH_MAX {
            held.push(now_or_never(permits.acquire(from(1))).expect("at once"));
        }
        assert!(now_or_never(permits.acquire(from(1))).is_none());
        held.push(now_or_never(permits.acquire(from(2))).expect("another one's"));
        let root = Owner::from_uid(0);
        while let Some(permit) = now_or_never(permits.acquire(root.clone())) {
            held.push(permit);
        }
        assert_eq!(held.len(), RUNNING_MAX);
        held.remove(0);
        held.push(now_or_never(permits.acquire(from(1))).expect("its own again"));
        drop(held);
        for n in 0..=u8::MAX {
            for third in 0..8 {
                let owner = Owner::from_network([10, 0, third, n].into());
                assert!(now_or_never(permits.acquire(owner)).is_some());
            }
        }
        assert!(permits.each.lock().len() <= OWNERS_KEPT_MAX, "who needs none is forgotten");
    }
}
