//! Readers are lent, each to one query at a time, and to the queries of one user all but one of them:
//! whatever somebody asks, there is a reader for everybody else. While there is none for all who wait,
//! the next one is for whoever has fewest, and among those for who waits longest: a user who has one
//! gets no other before each user has one.

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
    /// Who waits, in the order in which they came, each with a number.
    waiting: Vec<(u64, Option<Arc<str>>)>,
    last: u64,
}

impl<R> Here<R> {
    fn lent_to(&self, who: Option<&Arc<str>>) -> usize {
        who.and_then(|who| self.lent.get(who)).copied().unwrap_or(0)
    }

    /// One that is free, where it is the turn of whoever waits by this number.
    fn next(&mut self, number: u64, each_max: usize) -> Option<R> {
        let first = self.waiting.iter().enumerate();
        let (at, (first, who)) = first.min_by_key(|(_, (_, who))| self.lent_to(who.as_ref()))?;
        let own = self.lent_to(who.as_ref());
        if *first != number || own >= each_max {
            return None;
        }
        let reader = self.free.pop()?;
        let (_, who) = self.waiting.remove(at);
        self.lent.extend(who.map(|who| (who, own + 1)));
        Some(reader)
    }
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
        let here = Here { free, lent: HashMap::new(), waiting: Vec::new(), last: 0 };
        let here = Mutex::new(here);
        Self { each_max, wait: READER_WAIT, here, back: Condvar::new() }
    }

    /// One that is free, in turn; `None` where there was none for [`READER_WAIT`].
    pub(crate) fn take(&self) -> Option<Held<'_, R>> {
        let who = WHO.with_borrow(Clone::clone);
        let end = Instant::now() + self.wait;
        let mut here = self.here.lock();
        here.last += 1;
        let number = here.last;
        here.waiting.push((number, who.clone()));
        loop {
            let reader = here.next(number, self.each_max);
            let over = reader.is_none() && self.back.wait_until(&mut here, end).timed_out();
            if over {
                here.waiting.retain(|(other, _)| *other != number);
            }
            if !over && reader.is_none() {
                continue;
            }
            // It may be the next one's turn.
            if !here.free.is_empty() {
                self.back.notify_all();
            }
            return Some(Held { readers: self, who, reader: Some(reader?) });
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
        // All: whose turn it is has changed.
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
        assert_eq!((here.free.len(), here.lent.len(), here.waiting.len()), (3, 0, 0));
    }

    #[test]
    fn the_next_reader_is_for_whoever_has_fewest_and_then_for_who_waits_longest() {
        let who = |name: &str| -> Arc<str> { name.into() };
        let waiting = ["joe", "ann", "ann", "eve"].map(who);
        let waiting = (1..).zip(waiting.map(Some)).chain([(5, None)]).collect();
        let lent = [(who("joe"), 1), (who("bob"), 2)].into();
        let mut here = Here { free: Vec::new(), lent, waiting, last: 5 };
        let mut order = Vec::new();
        for reader in 'a'..='e' {
            here.free.push(reader);
            let next = |number: &u64| here.next(*number, 3).is_some();
            order.extend((1..=5).filter(next));
        }
        assert_eq!(order, [2, 4, 5, 1, 3], "joe has one, and ann since then");
        assert!(here.free.is_empty() && here.waiting.is_empty());
        assert_eq!(
            here.lent,
            [(who("joe"), 2), (who("ann"), 2), (who("bob"), 2), (who("eve"), 1)].into()
        );
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
