//! Limits of one query: time, and memory for rows that were read and not yet written.
//!
//! A query that exceeds a limit ends with an error; rows already written stay in the answer. All
//! queries of a server share the pool of one [`Memory`]. Each may also hold `MEMORY_SURE` of its
//! own, whatever the others hold, so that a large query does not make a small one fail.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Longest time of one query.
pub const QUERY_TIME_MAX: Duration = Duration::from_mins(10);
/// Most memory of one query by default, in bytes.
const MEMORY_MAX_DEFAULT: usize = 512 << 20;
/// Memory that every query may hold, in bytes.
const MEMORY_SURE: usize = 16 << 20;
/// Most memory of all queries by default, beyond what each may hold, in bytes.
const MEMORY_ALL_MAX_DEFAULT: usize = 1 << 30;

/// The memory of queries in both languages. Clones share the same pool.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    /// Memory that all queries hold, in bytes.
    held: AtomicUsize,
    /// Most memory of one query, in bytes.
    each_max: usize,
    /// Most memory of all, beyond what each may hold, in bytes.
    all_max: usize,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(MEMORY_MAX_DEFAULT, MEMORY_ALL_MAX_DEFAULT)
    }
}

impl Memory {
    /// Creates a pool with the limits of one query and of all together, in bytes.
    pub fn new(each_max: usize, all_max: usize) -> Self {
        Self(Arc::new(Pool { held: AtomicUsize::new(0), each_max, all_max }))
    }

    /// Returns true if all together hold more than their limit, because each has a share that is sure.
    pub fn is_over(&self) -> bool {
        self.held_bytes() > self.0.all_max
    }

    /// Returns what all queries hold now, bytes.
    pub fn held_bytes(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }
}

/// The limits of one query. Clones share the same budget.
#[derive(Clone)]
pub struct Budget(Arc<Inner>);

struct Inner {
    until: Instant,
    gone: Box<dyn Fn() -> bool + Send + Sync>,
    memory: Memory,
    held: AtomicUsize,
    over: OnceLock<String>,
}

impl Budget {
    /// Creates a budget that ends after `time`; `gone` returns true if the client has disconnected.
    pub fn new(
        time: Duration,
        memory: Memory,
        gone: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            until: Instant::now() + time,
            gone: Box::new(gone),
            memory,
            held: AtomicUsize::new(0),
            over: OnceLock::new(),
        }))
    }

    pub fn time_left(&self) -> Duration {
        self.0.until.saturating_duration_since(Instant::now())
    }

    /// Returns the reason why the query must end, if there is one.
    pub fn over(&self) -> Option<&str> {
        self.0.over.get().map(String::as_str)
    }

    fn end(&self, why: String) -> String {
        self.0.over.get_or_init(|| why).clone()
    }

    /// Checks that the query may go on.
    ///
    /// # Errors
    /// Returns an error if the time is over, the client has disconnected, or a limit was exceeded
    /// before.
    pub fn check(&self) -> Result<(), String> {
        if let Some(why) = self.over() {
            return Err(why.to_owned());
        }
        if self.time_left().is_zero() {
            let seconds = QUERY_TIME_MAX.as_secs();
            let why = format!("Query took longer than {seconds} s; ask for less at a time");
            return Err(self.end(why));
        }
        if (self.0.gone)() {
            return Err(self.end("the client is gone".into()));
        }
        Ok(())
    }

    /// Returns a reservation of zero bytes.
    pub fn nothing(&self) -> HeldMemory {
        HeldMemory { budget: self.clone(), bytes: 0 }
    }

    fn reserve(&self, bytes: usize) -> Result<(), String> {
        let pool = &self.0.memory.0;
        let own = self.0.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let all = pool.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if own <= MEMORY_SURE || (own <= pool.each_max && all <= pool.all_max) {
            return Ok(());
        }
        let why = format!(
            "Query needs more than {} MiB of memory, or all queries together more than {} MiB: select \
             fewer series with where, use order-by series, or choose a wider step or a shorter range",
            pool.each_max >> 20,
            pool.all_max >> 20
        );
        Err(self.end(why))
    }

    fn give(&self, bytes: usize) {
        self.0.held.fetch_sub(bytes, Ordering::Relaxed);
        self.0.memory.0.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Memory that a query holds until this is dropped.
pub struct HeldMemory {
    budget: Budget,
    bytes: usize,
}

impl HeldMemory {
    /// Sets the number of bytes held.
    ///
    /// # Errors
    /// Returns an error if the query must end.
    pub fn set(&mut self, bytes: usize) -> Result<(), String> {
        let before = std::mem::replace(&mut self.bytes, bytes);
        if bytes < before {
            self.budget.give(before - bytes);
            return Ok(());
        }
        self.budget.reserve(bytes - before)
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.budget.give(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_stopped_by_time_client_or_memory_reports_the_cause() {
        let late = Budget::new(Duration::ZERO, Memory::default(), || false);
        assert!(late.check().unwrap_err().contains("took longer"));
        let lonely = Budget::new(QUERY_TIME_MAX, Memory::default(), || true);
        assert!(lonely.check().unwrap_err().contains("gone"));
        let greedy = Budget::new(QUERY_TIME_MAX, Memory::default(), || false);
        let mut held = greedy.nothing();
        held.set(MEMORY_MAX_DEFAULT).unwrap();
        assert!(held.set(MEMORY_MAX_DEFAULT + 1).unwrap_err().contains("memory"));
        assert!(greedy.check().is_err(), "what was too much once ends the query");
    }

    #[test]
    fn limits_of_a_pool_are_those_it_was_created_with() {
        let memory = Memory::new(32 << 20, 48 << 20);
        let budget = || Budget::new(QUERY_TIME_MAX, memory.clone(), || false);
        let (one, other) = (budget(), budget());
        let (mut held, mut further) = (one.nothing(), other.nothing());
        held.set(32 << 20).unwrap();
        further.set(16 << 20).unwrap();
        let why = further.set((16 << 20) + 1).unwrap_err();
        assert!(why.contains("more than 32 MiB") && why.contains("more than 48 MiB"), "{why}");
        assert!(held.set((32 << 20) + 1).is_err());
    }

    #[test]
    fn small_query_gets_its_guaranteed_memory_under_load() {
        let memory = Memory::default();
        let large: Vec<Budget> =
            (0..2).map(|_| Budget::new(QUERY_TIME_MAX, memory.clone(), || false)).collect();
        let mut held: Vec<HeldMemory> = large.iter().map(Budget::nothing).collect();
        for held in &mut held {
            held.set(MEMORY_MAX_DEFAULT).unwrap();
        }
        let small = Budget::new(QUERY_TIME_MAX, memory.clone(), || false);
        let mut own = small.nothing();
        own.set(MEMORY_SURE).unwrap();
        assert!(own.set(MEMORY_SURE + 1).is_err());
        drop((own, held));
        assert_eq!(memory.held_bytes(), 0, "everything was given back");
    }
}
