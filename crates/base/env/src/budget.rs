//! A budget of bytes for bodies that arrive in pieces. No I/O.
//!
//! A body is charged for the bytes that have arrived, so that an announced length costs nothing.
//! A charge that does not fit is handled by age:
//! - Above its sender's share, the youngest incomplete bodies of the sender are refused.
//! - Above the budget, the youngest incomplete bodies that hold bytes are refused, until the
//!   charge fits once they are dropped. The charge waits for that. If its own body is the youngest,
//!   that body is refused instead.
//! - The oldest incomplete body is never refused for the budget if it can fit at all. It waits for
//!   bodies that are complete. Those need no more bytes to be processed, so bodies of which each
//!   holds a part cannot block each other.
//!
//! # Locking
//! One mutex per budget guards all its fields. It is held for a short time without I/O and never
//! across an `.await`, and no other lock is taken with it. Wakers are called after it is released,
//! because a waker may drop a [`Charge`], which takes it again.
//!
//! The mutex rules out these races:
//! - The check whether a charge fits and its addition are one step, so the budget is never
//!   exceeded.
//! - A younger charge does not take the bytes that an older one waits for: while an older one
//!   waits, a younger one waits behind it. Each release and each admission wakes the oldest.
//! - A body that is refused at the moment in which its last bytes arrive is still refused:
//!   [`Charge::complete`] reports it, because another body waits for its bytes.
//!
//! A caller must not wait for a charge while it holds something that the processing of a complete
//! body needs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::poll_fn;
use std::hash::Hash;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// A budget of bytes, shared by the bodies of all senders. Clones are the same budget.
#[derive(Debug)]
pub struct Budget<K: Copy + Eq + Hash>(Arc<Inner<K>>);

#[derive(Debug)]
struct Inner<K> {
    bytes_max: usize,
    share_bytes_max: usize,
    state: Mutex<State<K>>,
}

/// The limit that a charge exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExceededLimit {
    /// The whole budget.
    Budget,
    /// The share of one sender.
    Share,
}

/// The bytes that one body or answer holds; released when dropped.
#[derive(Debug)]
pub struct Charge<K: Copy + Eq + Hash> {
    budget: Budget<K>,
    /// Its position in the order of age.
    number: u64,
}

#[derive(Debug)]
struct State<K> {
    /// Bytes of all charges.
    used: usize,
    /// The part of `used` that belongs to refused bodies that are not dropped yet.
    leaving: usize,
    /// Bytes of each sender's charges, without refused ones.
    by_sender: HashMap<K, usize>,
    charges: BTreeMap<u64, WaitingCharge<K>>,
    /// The incomplete bodies that hold bytes and are not refused.
    incomplete: BTreeSet<u64>,
    /// The bodies that wait for bytes.
    waiting: BTreeSet<u64>,
    /// Charges created so far.
    begun: u64,
    /// Wakers to call once the mutex is released.
    woken: Vec<Waker>,
}

#[derive(Debug)]
struct WaitingCharge<K> {
    sender: K,
    bytes: usize,
    refused: Option<ExceededLimit>,
    waker: Option<Waker>,
}

impl<K: Copy + Eq + Hash> Clone for Budget<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Copy + Eq + Hash> Budget<K> {
    /// Creates a budget of `bytes_max` bytes, of which one sender may hold `share_bytes_max`.
    pub fn new(bytes_max: usize, share_bytes_max: usize) -> Self {
        let state = State {
            used: 0,
            leaving: 0,
            by_sender: HashMap::new(),
            charges: BTreeMap::new(),
            incomplete: BTreeSet::new(),
            waiting: BTreeSet::new(),
            begun: 0,
            woken: Vec::new(),
        };
        Self(Arc::new(Inner { bytes_max, share_bytes_max, state: Mutex::new(state) }))
    }

    /// Begins a body of which no bytes have arrived. Its age counts from this call.
    pub fn begin(&self, sender: K) -> Charge<K> {
        let number = self.with(|state| state.create(sender, 0));
        Charge { budget: self.clone(), number }
    }

    /// Charges bytes that are needed at once. Nothing waits and nothing else is refused for them.
    ///
    /// # Errors
    /// Returns the limit that they exceed.
    pub fn reserve(&self, sender: K, bytes: usize) -> Result<Charge<K>, ExceededLimit> {
        let number = self.with(|state| {
            self.0.fits(state, sender, bytes)?;
            Ok(state.create(sender, bytes))
        })?;
        Ok(Charge { budget: self.clone(), number })
    }

    /// Returns true if [`Budget::reserve`] would succeed.
    pub fn has_space(&self, sender: K, bytes: usize) -> bool {
        self.with(|state| self.0.fits(state, sender, bytes).is_ok())
    }

    /// Returns the number of bytes charged now.
    pub fn used(&self) -> usize {
        self.with(|state| state.used)
    }

    fn with<R>(&self, act: impl FnOnce(&mut State<K>) -> R) -> R {
        let mut state = self.0.state.lock();
        let result = act(&mut state);
        let woken = std::mem::take(&mut state.woken);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        result
    }
}

impl<K: Copy + Eq + Hash> Charge<K> {
    /// Charges bytes that have arrived, and waits until they fit.
    ///
    /// # Errors
    /// Returns the limit for which this body is refused. Its bytes are released when the charge is
    /// dropped.
    pub async fn add(&mut self, bytes: usize) -> Result<(), ExceededLimit> {
        poll_fn(|cx| self.poll_add(cx, bytes)).await
    }

    fn poll_add(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<Result<(), ExceededLimit>> {
        self.budget.with(|state| {
            let polled = self.budget.0.add(state, self.number, bytes);
            if polled.is_pending() {
                state.waiting.insert(self.number);
                state.set_waker(self.number, cx.waker());
            }
            polled
        })
    }

    /// Waits until this body is refused for the sake of an older one.
    pub async fn refused(&mut self) -> ExceededLimit {
        poll_fn(|cx| {
            self.budget.with(|state| {
                state.set_waker(self.number, cx.waker());
                state.refusal(self.number).map_or(Poll::Pending, Poll::Ready)
            })
        })
        .await
    }

    /// Marks the body as complete: it can no longer be refused.
    ///
    /// # Errors
    /// Returns the limit for which it was refused before this call.
    pub fn complete(&mut self) -> Result<(), ExceededLimit> {
        self.budget.with(|state| {
            state.incomplete.remove(&self.number);
            state.refusal(self.number).map_or(Ok(()), Err)
        })
    }

    /// Changes the size of the charge of a complete body, however full the budget is: the memory
    /// is already allocated.
    pub fn resize(&mut self, bytes: usize) {
        self.budget.with(|state| state.resize(self.number, bytes));
    }
}

impl<K: Copy + Eq + Hash> Drop for Charge<K> {
    fn drop(&mut self) {
        self.budget.with(|state| state.release(self.number));
    }
}

impl<K: Copy + Eq + Hash> Inner<K> {
    /// Checks bytes that do not wait. Bytes that an older body waits for are not free.
    fn fits(&self, state: &State<K>, sender: K, bytes: usize) -> Result<(), ExceededLimit> {
        if state.held_by(sender).saturating_add(bytes) > self.share_bytes_max {
            return Err(ExceededLimit::Share);
        }
        let fits = state.used.saturating_add(bytes) <= self.bytes_max;
        if fits && state.waiting.is_empty() { Ok(()) } else { Err(ExceededLimit::Budget) }
    }

    /// Adds bytes to an incomplete body, or refuses it or younger ones.
    fn add(
        &self,
        state: &mut State<K>,
        number: u64,
        bytes: usize,
    ) -> Poll<Result<(), ExceededLimit>> {
        let Some(held) = state.charges.get(&number) else { return Poll::Ready(Ok(())) };
        let (sender, own) = (held.sender, held.bytes.saturating_add(bytes));
        if let Some(spent) = held.refused {
            return Poll::Ready(Err(spent));
        }
        // A body that cannot fit even alone would wait for ever.
        if own > self.bytes_max {
            return Poll::Ready(Err(state.refuse(number, ExceededLimit::Budget)));
        }
        while state.held_by(sender).saturating_add(bytes) > self.share_bytes_max {
            let youngest = state.youngest_of(sender).filter(|youngest| *youngest > number);
            let spent = state.refuse(youngest.unwrap_or(number), ExceededLimit::Share);
            if youngest.is_none() {
                return Poll::Ready(Err(spent));
            }
        }
        if state.waiting.first().is_some_and(|oldest| *oldest < number) {
            return Poll::Pending;
        }
        if state.used.saturating_add(bytes) <= self.bytes_max {
            state.resize(number, own);
            state.incomplete.insert(number);
            state.waiting.remove(&number);
            state.wake_oldest();
            return Poll::Ready(Ok(()));
        }
        while (state.used - state.leaving).saturating_add(bytes) > self.bytes_max {
            match (state.incomplete.first(), state.incomplete.last()) {
                (_, Some(youngest)) if *youngest > number => {
                    state.refuse(*youngest, ExceededLimit::Budget);
                }
                (Some(oldest), _) if *oldest < number => {
                    return Poll::Ready(Err(state.refuse(number, ExceededLimit::Budget)));
                }
                // Only complete bodies hold the rest.
                _ => break,
            }
        }
        Poll::Pending
    }
}

impl<K: Copy + Eq + Hash> State<K> {
    fn create(&mut self, sender: K, bytes: usize) -> u64 {
        let number = self.begun;
        self.begun += 1;
        self.charges.insert(number, WaitingCharge { sender, bytes: 0, refused: None, waker: None });
        self.resize(number, bytes);
        number
    }

    fn held_by(&self, sender: K) -> usize {
        self.by_sender.get(&sender).copied().unwrap_or(0)
    }

    fn refusal(&self, number: u64) -> Option<ExceededLimit> {
        self.charges.get(&number).and_then(|held| held.refused)
    }

    fn youngest_of(&self, sender: K) -> Option<u64> {
        let is_of = |n: &&u64| self.charges.get(n).is_some_and(|held| held.sender == sender);
        self.incomplete.iter().rev().find(is_of).copied()
    }

    fn set_waker(&mut self, number: u64, waker: &Waker) {
        if let Some(held) = self.charges.get_mut(&number) {
            held.waker = Some(waker.clone());
        }
    }

    fn wake(&mut self, number: u64) {
        let waker = self.charges.get_mut(&number).and_then(|held| held.waker.take());
        self.woken.extend(waker);
    }

    fn wake_oldest(&mut self) {
        if let Some(oldest) = self.waiting.first() {
            self.wake(*oldest);
        }
    }

    /// Sets the bytes of a charge that is not refused.
    fn resize(&mut self, number: u64, bytes: usize) {
        let Some(held) = self.charges.get_mut(&number) else { return };
        let before = std::mem::replace(&mut held.bytes, bytes);
        let sender = held.sender;
        self.count(sender, before, bytes);
        self.used = self.used - before + bytes;
        if bytes < before {
            self.wake_oldest();
        }
    }

    /// Counts a charge of a sender with `after` bytes instead of `before`.
    fn count(&mut self, sender: K, before: usize, after: usize) {
        let held = self.by_sender.entry(sender).or_default();
        *held = *held - before + after;
        if *held == 0 {
            self.by_sender.remove(&sender);
        }
    }

    /// Refuses an incomplete body. Its bytes no longer count for its sender. They count for the
    /// budget until its task drops it, which also wakes those that wait.
    fn refuse(&mut self, number: u64, spent: ExceededLimit) -> ExceededLimit {
        let Some(held) = self.charges.get_mut(&number) else { return spent };
        held.refused = Some(spent);
        let (sender, bytes) = (held.sender, held.bytes);
        self.leaving += bytes;
        self.count(sender, bytes, 0);
        self.incomplete.remove(&number);
        self.waiting.remove(&number);
        self.wake(number);
        spent
    }

    fn release(&mut self, number: u64) {
        if self.refusal(number).is_none() {
            self.resize(number, 0);
        }
        if let Some(refused) = self.charges.remove(&number) {
            self.used -= refused.bytes;
            self.leaving -= refused.bytes;
        }
        self.incomplete.remove(&number);
        self.waiting.remove(&number);
        self.wake_oldest();
    }
}

#[cfg(test)]
mod tests;
