//! A fixed number of readers, such as database connections, each used by one query at a time.
//!
//! One user holds at most all readers but one, so one is always left for the others. A free reader
//! goes to the waiting query of the user that holds the fewest; among those, to the one that has
//! waited longest. Queries of the server itself count as holding none.
//!
//! # Locking
//! One mutex guards the free readers, the number of readers that each user holds and the queue. It
//! is held for the choice only, never while a query runs, and no other lock is taken under it. A
//! query enters the queue under the mutex before it looks for a reader, so a reader that is
//! returned between the two is not missed. Every change that may make another query next wakes all
//! waiting queries, because a single wakeup could reach one that is not next and be lost. A caller
//! that holds a reader must not take a second one: all readers may be held by callers that do the
//! same.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::limits::READER_WAIT;
use crate::reader::Reader;

/// Readers that serve waiting queries in a fair order.
pub(crate) struct Readers<R> {
    count: usize,
    /// Readers that one user may hold.
    each_max: usize,
    /// Time that a query waits for a reader.
    wait: Duration,
    state: Mutex<State<R>>,
    changed: Condvar,
}

struct State<R> {
    free: Vec<R>,
    /// Calls to [`Readers::paused`] that wait or run: no reader is lent.
    pauses: usize,
    /// Number of readers by the user that holds them; no entry for zero.
    held: HashMap<Arc<str>, usize>,
    /// Waiting queries in the order of their arrival.
    queue: Vec<Waiting>,
    last_ticket: u64,
}

struct Waiting {
    ticket: u64,
    user: Option<Arc<str>>,
}

impl<R> State<R> {
    fn held_by(&self, user: Option<&Arc<str>>) -> usize {
        user.and_then(|user| self.held.get(user)).copied().unwrap_or(0)
    }

    /// Adds a query to the queue and returns its ticket.
    fn enqueue(&mut self, user: Option<Arc<str>>) -> u64 {
        self.last_ticket += 1;
        self.queue.push(Waiting { ticket: self.last_ticket, user });
        self.last_ticket
    }

    /// Takes a free reader for the query with this ticket if it is next.
    fn next(&mut self, ticket: u64, each_max: usize) -> Option<R> {
        if self.pauses > 0 {
            return None;
        }
        let queue = self.queue.iter().enumerate();
        // `min_by_key` returns the first of equal elements: the one that has waited longest.
        let (at, first) = queue.min_by_key(|(_, query)| self.held_by(query.user.as_ref()))?;
        let held = self.held_by(first.user.as_ref());
        // If the user with the fewest may hold no more, no other may either.
        if first.ticket != ticket || held >= each_max {
            return None;
        }
        let reader = self.free.pop()?;
        if let Some(user) = self.queue.remove(at).user {
            self.held.insert(user, held + 1);
        }
        Some(reader)
    }

    fn give_back(&mut self, reader: R, user: Option<&Arc<str>>) {
        self.free.push(reader);
        if let Some(user) = user {
            match self.held.remove(user) {
                Some(held) if held > 1 => self.held.insert(Arc::clone(user), held - 1),
                _ => None,
            };
        }
    }
}

impl<R> Readers<R> {
    pub(crate) fn new(free: Vec<R>) -> Self {
        let each_max = free.len().saturating_sub(1).max(1);
        let count = free.len();
        let state =
            State { free, pauses: 0, held: HashMap::new(), queue: Vec::new(), last_ticket: 0 };
        let state = Mutex::new(state);
        Self { count, each_max, wait: READER_WAIT, state, changed: Condvar::new() }
    }

    /// Runs work with a reader; `None` if there was none for [`READER_WAIT`].
    pub(crate) fn with<T>(&self, asking: &Reader, work: impl FnOnce(&mut R) -> T) -> Option<T> {
        self.take_reader(asking)?.reader.as_mut().map(work)
    }

    fn take_reader(&self, asking: &Reader) -> Option<ReaderGuard<'_, R>> {
        let user = asking.user().cloned();
        let end = Instant::now() + self.wait;
        let mut state = self.state.lock();
        let ticket = state.enqueue(user.clone());
        let taken = loop {
            if let Some(reader) = state.next(ticket, self.each_max) {
                break Some(reader);
            }
            if self.changed.wait_until(&mut state, end).timed_out() {
                // It may have become next while the lock was taken again.
                break state.next(ticket, self.each_max);
            }
        };
        if taken.is_none() {
            state.queue.retain(|query| query.ticket != ticket);
        }
        // This query is not in the queue any more, so another one may be next.
        if !state.free.is_empty() {
            self.changed.notify_all();
        }
        Some(ReaderGuard { readers: self, user, reader: Some(taken?) })
    }

    /// Runs work while no reader is lent: lends none from now on and waits for those that are.
    /// `None` if one of them was not given back within `wait`; the work did not run.
    pub(crate) fn paused<T>(&self, wait: Duration, work: impl FnOnce() -> T) -> Option<T> {
        let end = Instant::now() + wait;
        let mut state = self.state.lock();
        state.pauses += 1;
        let _pause = Pause(self);
        while state.free.len() < self.count {
            if self.changed.wait_until(&mut state, end).timed_out() {
                break;
            }
        }
        let all = state.free.len() == self.count;
        drop(state);
        all.then(work)
    }

    /// Visits every free reader. None is lent while it runs.
    pub(crate) fn each<E>(&self, visit: impl FnMut(&mut R) -> Result<(), E>) -> Result<(), E> {
        self.state.lock().free.iter_mut().try_for_each(visit)
    }
}

/// Ends a pause when dropped.
struct Pause<'a, R>(&'a Readers<R>);

impl<R> Drop for Pause<'_, R> {
    fn drop(&mut self) {
        self.0.state.lock().pauses -= 1;
        self.0.changed.notify_all();
    }
}

/// A reader that is given back when dropped.
pub(crate) struct ReaderGuard<'a, R> {
    readers: &'a Readers<R>,
    user: Option<Arc<str>>,
    /// `None` only while it is dropped.
    reader: Option<R>,
}

impl<R> Drop for ReaderGuard<'_, R> {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take() {
            self.readers.state.lock().give_back(reader, self.user.as_ref());
            self.readers.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> Reader {
        Reader::server().with_user(name)
    }

    #[test]
    fn one_user_holds_at_most_all_readers_but_one() {
        let mut readers = Readers::new(vec!['a', 'b', 'c']);
        readers.wait = Duration::from_millis(1);
        let mut held = vec![readers.take_reader(&user("joe")), readers.take_reader(&user("joe"))];
        assert!(readers.take_reader(&user("joe")).is_none());
        assert!(readers.take_reader(&Reader::server()).is_some(), "the server's own query");
        let other = readers.take_reader(&user("ann")).unwrap();
        held.pop();
        let own = readers.take_reader(&user("joe")).unwrap();
        drop((held, other, own));
        let state = readers.state.lock();
        assert_eq!((state.free.len(), state.held.len(), state.queue.len()), (3, 0, 0));
    }

    #[test]
    fn reader_goes_to_user_with_fewest_then_longest_waiting() {
        let name = |name: &str| -> Arc<str> { name.into() };
        let held = [(name("joe"), 1), (name("bob"), 2)].into();
        let mut state =
            State { free: Vec::new(), pauses: 0, held, queue: Vec::new(), last_ticket: 0 };
        for user in ["joe", "ann", "ann", "eve"] {
            state.enqueue(Some(name(user)));
        }
        state.enqueue(None);
        let mut order = Vec::new();
        for reader in 'a'..='e' {
            state.free.push(reader);
            order.extend((1..=5).filter(|ticket| state.next(*ticket, 3).is_some()));
        }
        assert_eq!(order, [2, 4, 5, 1, 3], "joe has one, and ann since then");
        assert!(state.free.is_empty() && state.queue.is_empty());
        assert_eq!(
            state.held,
            [(name("joe"), 2), (name("ann"), 2), (name("bob"), 2), (name("eve"), 1)].into()
        );
    }

    #[test]
    fn waiting_query_gets_the_returned_reader() {
        let readers = Readers::new(vec!['a']);
        let held = readers.take_reader(&Reader::server());
        std::thread::scope(|scope| {
            let next = scope.spawn(|| readers.take_reader(&user("joe")).is_some());
            drop(held);
            assert!(next.join().unwrap());
        });
    }

    #[test]
    fn pause_waits_for_lent_readers_and_holds_queries_back() {
        let readers = Readers::new(vec!['a', 'b']);
        let held = readers.take_reader(&Reader::server());
        assert_eq!(readers.paused(Duration::from_millis(1), || ()), None, "one is lent");
        drop(held);
        let now = || {
            let ticket = readers.state.lock().enqueue(None);
            let reader = readers.state.lock().next(ticket, 2);
            readers.state.lock().queue.clear();
            reader
        };
        assert_eq!(readers.paused(Duration::ZERO, now), Some(None), "none is lent in a pause");
        assert_eq!(now(), Some('b'), "queries go on");
    }

    #[test]
    fn panicking_query_returns_its_reader() {
        let readers = Readers::new(vec!['a']);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            readers.with(&user("joe"), |_| panic!("on purpose"))
        }));
        assert!(ended.is_err() && readers.state.lock().held.is_empty());
        assert_eq!(readers.with(&user("joe"), |reader| *reader), Some('a'));
    }
}
