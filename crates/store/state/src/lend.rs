//! Readers are lent, each to one query at a time, and to the queries of one user all but one of them:
//! whatever somebody asks, there is a reader for everybody else.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::limits::READER_WAIT;

thread_local! {
    static WHO: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// Do something whose queries a user asks. Queries that nobody asks take whatever reader is free.
pub fn asked_by<T>(who: &str, work: impl FnOnce() -> T) -> T {
    struct Before(Option<Arc<str>>);
    impl Drop for Before {
        fn drop(&mut self) {
            WHO.set(self.0.take());
        }
    }
    let _before = Before(WHO.replace(Some(who.into())));
    work()
}

/// The readers of one database.
pub(crate) struct Readers<R> {
    /// For the queries of one user.
    each_max: usize,
    /// How long somebody waits for one.
    wait: Duration,
    here: Mutex<Here<R>>,
    back: Condvar,
}

struct Here<R> {
    free: Vec<R>,
    lent: HashMap<Arc<str>, usize>,
}

/// A reader, given back when dropped.
pub(crate) struct Held<'a, R> {
    readers: &'a Readers<R>,
    who: Option<Arc<str>>,
    pub(crate) reader: Option<R>,
}

impl<R> Readers<R> {
    pub(crate) fn new(free: Vec<R>) -> Self {
        let each_max = free.len().saturating_sub(1).max(1);
        let here = Mutex::new(Here { free, lent: HashMap::new() });
        Self { each_max, wait: READER_WAIT, here, back: Condvar::new() }
    }

    /// The first one that is free; `None` where there was none for [`READER_WAIT`].
    pub(crate) fn take(&self) -> Option<Held<'_, R>> {
        let who = WHO.with_borrow(Clone::clone);
        let end = Instant::now() + self.wait;
        let mut here = self.here.lock();
        loop {
            let own = who.as_ref().and_then(|who| here.lent.get(who)).copied().unwrap_or(0);
            if own < self.each_max
                && let Some(reader) = here.free.pop()
            {
                here.lent.extend(who.clone().map(|who| (who, own + 1)));
                return Some(Held { readers: self, who, reader: Some(reader) });
            }
            if self.back.wait_until(&mut here, end).timed_out() {
                return None;
            }
        }
    }

    /// Visit every one that is free.
    pub(crate) fn each<E>(&self, visit: impl FnMut(&mut R) -> Result<(), E>) -> Result<(), E> {
        self.here.lock().free.iter_mut().try_for_each(visit)
    }
}

impl<R> Drop for Held<'_, R> {
    fn drop(&mut self) {
        let mut here = self.readers.here.lock();
        here.free.extend(self.reader.take());
        if let Some(who) = &self.who {
            let own = here.lent.remove(who).unwrap_or(0);
            if own > 1 {
                here.lent.insert(Arc::clone(who), own - 1);
            }
        }
        drop(here);
        // All: the first in line may be one whose share is lent.
        self.readers.back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_is_lent_all_readers_but_one() {
        let mut readers = Readers::new(vec!['a', 'b', 'c']);
        readers.wait = Duration::from_millis(1);
        let mut held: Vec<_> =
            asked_by("joe", || (0..2).map(|_| readers.take().unwrap()).collect());
        assert!(asked_by("joe", || readers.take()).is_none());
        assert!(readers.take().is_some(), "what nobody asked");
        let other = asked_by("ann", || readers.take().unwrap());
        held.pop();
        let own = asked_by("joe", || readers.take().unwrap());
        drop((held, other, own));
        let here = readers.here.lock();
        assert_eq!((here.free.len(), here.lent.len()), (3, 0));
    }

    #[test]
    fn who_waits_for_a_reader_gets_the_one_that_is_given_back() {
        let readers = Readers::new(vec!['a']);
        let held = readers.take();
        std::thread::scope(|scope| {
            let next = scope.spawn(|| asked_by("joe", || readers.take().is_some()));
            drop(held);
            assert!(next.join().unwrap());
        });
    }

    #[test]
    fn a_panic_leaves_nobody_behind_it() {
        let readers = Readers::new(vec!['a']);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            asked_by("joe", || {
                let _held = readers.take();
                panic!("on purpose");
            })
        }));
        assert!(ended.is_err() && WHO.with_borrow(Option::is_none));
        assert!(readers.take().is_some());
    }
}
