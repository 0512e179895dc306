//! Attribution: which process and user made a change.
//!
//! [`Attribution::start`] subscribes to the kernel's process connector and keeps a table of every
//! process with its executables and users, and the times at which they were in force.
//! [`Attribution::resolve`] returns the [`Actor`] of each [`Writer`]: a process that the kernel
//! reported for a change, with the interval in which the change was made. The answer is exact only
//! if one executable and one user were in force in the whole interval; otherwise it lists the
//! candidates, or says why the process is not known. It never guesses.
//!
//! The numbers in notifications must be of processes, not of threads. fanotify reports processes
//! unless `FAN_REPORT_TID` is requested.
//!
//! **Limits.**
//! - The connector exists only in the first user, process and network namespaces.
//! - Messages can be lost; a loss is an interval for which every answer is uncertain. A message that
//!   the kernel could not allocate is noticed at the next one of its CPU.
//! - A process that acts with another `fsuid` than its effective user is named with the latter.
//! - The login user is read when a process executes or changes its users.
//! - The table, [`limits`], is in memory and starts with what `/proc` lists: before its start,
//!   every answer is uncertain.
//!
//! **Locking.** The table has one lock, see `reader.rs`. `resolve` holds it for a lookup per
//! writer, and not while it waits, hashes or looks up names. Any thread may call it.

mod clock;
mod connector;
mod container;
mod describe;
mod error;
pub mod find;
mod hash;
pub mod image;
mod life;
pub mod limits;
mod losses;
mod mask;
pub mod message;
mod priority;
mod read;
mod reader;
pub mod table;
mod tokens;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use model::{Actor, Attribution as Certainty, Origin, Writer};

use crate::connector::Connector;
use crate::describe::Describer;
pub use crate::error::AttributionError;
use crate::find::{FindOutcome, Reason};
pub use crate::priority::Priority;
pub use crate::read::{Identity, IdentityPaths, IsAltered};
use crate::reader::{Reader, Shared};

/// Settings of the attribution.
#[derive(Debug, Clone)]
pub struct Options {
    /// Texts after which a command line has a secret, besides the known ones.
    pub mask: Vec<String>,
    /// Bytes of the connector's receive buffer.
    pub buffer_bytes: usize,
    /// Judges programs that are to be what their path says.
    pub identity: Identity,
}

impl Default for Options {
    fn default() -> Self {
        let identity = Identity::of_none();
        Self { mask: Vec::new(), buffer_bytes: limits::BUFFER_BYTES, identity }
    }
}

/// State of the attribution, and counts since its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub priority: Priority,
    /// Processes in the table, running and ended.
    pub processes: u64,
    /// Times at which messages were lost.
    pub losses: u64,
    /// Processes that were not entered because the table was full.
    pub refused: u64,
    pub exact: u64,
    pub ambiguous: u64,
    pub uncertain: u64,
    pub unknown: u64,
    /// Error that ended the attribution, if one did.
    pub failure: Option<String>,
}

/// The process table and the thread that keeps it. Dropping it ends the thread.
#[derive(Debug)]
pub struct Attribution {
    shared: Arc<Shared>,
    describer: Describer,
    priority: Priority,
    /// Answers by certainty, see [`counter`].
    counts: [AtomicU64; 4],
    thread: Option<JoinHandle<()>>,
}

impl Attribution {
    /// Subscribes to the process connector, reads `/proc` and starts the thread.
    pub fn start(options: Options) -> Result<Self, AttributionError> {
        let connector = Connector::open(options.buffer_bytes)?;
        let (woken, wake) = io::pipe()?;
        // A resolver that wakes the thread must not wait for it.
        rustix::fs::fcntl_setfl(&wake, rustix::fs::OFlags::NONBLOCK).map_err(io::Error::from)?;
        let shared = Arc::new(Shared::new(wake));
        let reader = Reader::new(shared.clone(), connector, woken, options.identity);
        let (send, raised) = mpsc::channel();
        let thread = thread::Builder::new().name("attribution".into()).spawn(move || {
            // The receiver waits for it.
            let _ = send.send(priority::raise());
            reader.run();
        })?;
        let priority = raised.recv().unwrap_or(Priority::Normal);
        let attribution = Self {
            shared,
            describer: Describer::new(options.mask),
            priority,
            counts: Default::default(),
            thread: Some(thread),
        };
        attribution.shared.wait_until_passed(clock::monotonic_ns());
        Ok(attribution)
    }

    /// Returns the actor of each writer, in their order. Waits until the table has passed the last
    /// interval and the last reading of `/proc` has settled, at most [`limits::PASS_WAIT_MAX`];
    /// usually it need not wait. Blocks on the disk to hash an executable for the first time.
    pub fn resolve(&self, writers: &[Writer]) -> Vec<Actor> {
        let Some(last_ns) = writers.iter().map(|writer| writer.last.to_ns).max() else {
            return Vec::new();
        };
        // A time in the future would be waited for in vain.
        let mut passed = self.shared.wait_until_passed(last_ns.min(clock::monotonic_ns()));
        let read_ns = writers.iter().filter_map(|writer| self.read_ns(writer)).max();
        if let Some(read_ns) = read_ns {
            passed &= self.shared.wait_until_passed(read_ns + limits::SETTLE_NS);
        }
        writers.iter().map(|writer| self.describe(writer, passed)).collect()
    }

    /// Returns a function that looks up the origin of a process in the table. It does not wait for
    /// messages that are still to come.
    pub fn origins(&self) -> impl Fn(u32) -> Option<Origin> + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move |pid| shared.table.lock().origin(pid)
    }

    /// Sets the function that is called after each exec, before `/proc` is read: by the thread of the
    /// table, which must not wait. Notifications that are still to be sent when it is called were
    /// caused by the new program, or by a later one of the process. Only the first function counts.
    pub fn on_exec(&self, callback: impl Fn() + Send + Sync + 'static) {
        let _ = self.shared.on_exec.set(Box::new(callback));
    }

    /// Returns the time at which the last candidate of a writer was read.
    fn read_ns(&self, writer: &Writer) -> Option<u64> {
        match self.shared.table.lock().find(writer) {
            FindOutcome::Process(found) => Some(found.read_ns),
            FindOutcome::Unknown(_) | FindOutcome::Uncertain(_) => None,
        }
    }

    fn describe(&self, writer: &Writer, passed: bool) -> Actor {
        let finding = if passed {
            self.shared.table.lock().find(writer)
        } else {
            FindOutcome::Unknown(Reason::Behind)
        };
        let actor = self.describer.actor(writer, &finding);
        if let Some(count) = self.counts.get(counter(actor.attribution)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        actor
    }

    /// Returns the state of the table and counts of answers.
    pub fn status(&self) -> Status {
        let (processes, refused) = {
            let table = self.shared.table.lock();
            (table.processes() as u64, table.refused())
        };
        let (losses, failure) = {
            let progress = self.shared.progress.lock();
            (progress.losses, progress.failure.clone())
        };
        let count = |certainty| {
            self.counts.get(counter(certainty)).map_or(0, |count| count.load(Ordering::Relaxed))
        };
        Status {
            priority: self.priority,
            processes,
            losses,
            refused,
            exact: count(Certainty::Exact),
            ambiguous: count(Certainty::Ambiguous),
            uncertain: count(Certainty::Uncertain),
            unknown: count(Certainty::Unknown),
            failure,
        }
    }
}

impl Drop for Attribution {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// Returns the index of a certainty's count.
fn counter(certainty: Certainty) -> usize {
    match certainty {
        Certainty::Exact => 0,
        Certainty::Ambiguous => 1,
        Certainty::Uncertain => 2,
        Certainty::Unknown => 3,
    }
}
