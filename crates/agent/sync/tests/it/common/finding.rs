//! Simulated scans: one that never pauses, and one that finds a change at a given point.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use env::clock::ManualClock;
use model::document::NoNames;
use model::{ItemKey, Names, Op, Sink as _};
use queue::Queue;

use super::{Agent, file, files};

/// A thread that finds new files without a pause between its start and end signals. Their names
/// sort after those of `base`.
pub(crate) struct Finding {
    /// State: 0 waiting, 1 running, 2 ending.
    told: Arc<AtomicU8>,
    thread: JoinHandle<u64>,
}

impl Finding {
    pub(crate) fn start_thread(agent: &Agent) -> Self {
        let told = Arc::new(AtomicU8::new(0));
        let (queue, clock, flag) = (agent.queue.clone(), agent.clock.clone(), Arc::clone(&told));
        let thread = std::thread::spawn(move || find_files(&queue, &clock, &flag));
        Self { told, thread }
    }

    pub(crate) fn go(&self) {
        self.told.store(1, Ordering::SeqCst);
    }

    /// Returns the number of items found.
    pub(crate) fn end(self) -> u64 {
        self.told.store(2, Ordering::SeqCst);
        self.thread.join().unwrap()
    }
}

/// Adds files while the flag is 1. Returns their number.
fn find_files(queue: &Queue, clock: &ManualClock, flag: &AtomicU8) -> u64 {
    let mut sink = queue.sink(&files(), Arc::new(NoNames)).unwrap();
    let mut found = 0;
    loop {
        match flag.load(Ordering::SeqCst) {
            0 => std::thread::yield_now(),
            1 => {
                found += 1;
                clock.advance(Duration::from_millis(1));
                let key = ItemKey::of_path(format!("/etc/new{found:09}").as_bytes());
                let op = Op::Put { key, observation: file(found), change: None };
                sink.apply(&mut vec![op]).unwrap();
            }
            _ => return found,
        }
    }
}

/// A scan that finds a change after `after` user names were requested, which is while a document is
/// made.
pub(crate) struct Finds {
    queue: Queue,
    op: Op,
    after: u64,
    asked: AtomicU64,
}

impl Finds {
    pub(crate) fn after(after: u64, agent: &Agent, op: Op) -> Arc<Self> {
        Arc::new(Self { queue: agent.queue.clone(), op, after, asked: AtomicU64::new(0) })
    }
}

impl Names for Finds {
    fn user(&self, _: u32) -> Option<String> {
        if self.asked.fetch_add(1, Ordering::SeqCst) == self.after {
            let mut sink = self.queue.sink(&files(), Arc::new(NoNames)).unwrap();
            sink.apply(&mut vec![self.op.clone()]).unwrap();
        }
        None
    }

    fn group(&self, _: u32) -> Option<String> {
        None
    }
}
