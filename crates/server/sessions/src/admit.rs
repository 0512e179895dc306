//! Admission by the number of bytes in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A budget of bytes that requests share.
#[derive(Debug, Clone)]
pub(crate) struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    max: usize,
    used: AtomicUsize,
}

/// A share of the budget, released when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Budget,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(max: usize) -> Self {
        Self(Arc::new(Inner { max, used: AtomicUsize::new(0) }))
    }

    /// Takes a share; `None` if that would exceed the budget.
    pub(crate) fn reserve(&self, bytes: usize) -> Option<Share> {
        self.0
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                used.checked_add(bytes).filter(|sum| *sum <= self.0.max)
            })
            .ok()
            .map(|_| Share { budget: self.clone(), bytes })
    }

    /// Returns the number of bytes taken now.
    pub(crate) fn used(&self) -> usize {
        self.0.used.load(Ordering::Acquire)
    }
}

impl Share {
    /// Changes the size of the share, however full the budget is: the memory is already allocated.
    pub(crate) fn resize(&mut self, bytes: usize) {
        let used = &self.budget.0.used;
        match bytes.checked_sub(self.bytes) {
            Some(more) => used.fetch_add(more, Ordering::AcqRel),
            None => used.fetch_sub(self.bytes - bytes, Ordering::AcqRel),
        };
        self.bytes = bytes;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.0.used.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_budget_is_never_exceeded_and_is_released() {
        let budget = Budget::new(10);
        let a = budget.reserve(6).unwrap();
        assert!(budget.reserve(5).is_none());
        assert!(budget.reserve(usize::MAX).is_none());
        let b = budget.reserve(4).unwrap();
        assert!(budget.reserve(1).is_none());
        drop(a);
        assert_eq!(budget.used(), 4);
        drop(b);
        assert!(budget.reserve(10).is_some());
    }

    #[test]
    fn budget_share_resizes_to_the_size_it_accounts_for() {
        let budget = Budget::new(10);
        let mut share = budget.reserve(6).unwrap();
        share.resize(2);
        assert!(budget.reserve(9).is_none() && budget.reserve(8).is_some());
        share.resize(12);
        assert_eq!(budget.used(), 12);
        assert!(budget.reserve(1).is_none());
        drop(share);
        assert_eq!(budget.used(), 0);
    }
}
