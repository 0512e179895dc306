//! The thread that keeps the table: it receives messages, and reads `/proc` for them.
//!
//! **Locking.** `shared.table` guards the table, `shared.progress` how far it has come. No code
//! holds both. The thread never holds a lock while it reads `/proc` or the socket: a resolver that
//! is preempted with the table's lock delays an entry, but not the reading of `/proc`.
//!
//! **Passing a time.** The thread reads the clock, then receives until the socket is empty. Every
//! message that the kernel sent before that reading of the clock is in the table then, because the
//! kernel queues a message on the socket before the process goes on. A resolver that needs a later
//! time requests it and wakes the thread; so an idle machine needs no heartbeat.

use std::fmt;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::clock;
use crate::connector::{Connector, Received};
use crate::limits;
use crate::losses::Sequences;
use crate::message::{Kind, Message};
use crate::read::{self, Identity};
use crate::table::{Executable, ProcReading, Table};

/// Most ended processes that are removed before the socket is read again.
const REMOVED_AT_ONCE: usize = 256;
/// Longest sleep of the thread.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// The time up to which the table is complete, and what is asked of the thread.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Every message up to this time is in the table, nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) passed_ns: u64,
    /// Latest time that a resolver waits for.
    wanted_ns: u64,
    pub(crate) losses: u64,
    /// Error that ended the thread.
    pub(crate) failure: Option<String>,
    stop: bool,
}

/// A function that the thread calls for each exec, before it reads `/proc`. It must not wait.
pub(crate) type ExecCallback = Box<dyn Fn() + Send + Sync>;

/// State that the thread and the resolvers share.
pub(crate) struct Shared {
    pub(crate) table: Mutex<Table>,
    pub(crate) progress: Mutex<Progress>,
    advanced: Condvar,
    wake: PipeWriter,
    pub(crate) on_exec: OnceLock<ExecCallback>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("progress", &self.progress).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(wake: PipeWriter) -> Self {
        Self {
            table: Mutex::default(),
            progress: Mutex::default(),
            advanced: Condvar::new(),
            wake,
            on_exec: OnceLock::new(),
        }
    }

    /// Waits until the table has passed a time, at most [`limits::PASS_WAIT_MAX`]. Returns false if
    /// it has not.
    pub(crate) fn wait_until_passed(&self, at_ns: u64) -> bool {
        let deadline = Instant::now() + limits::PASS_WAIT_MAX;
        let mut progress = self.progress.lock();
        while progress.passed_ns < at_ns {
            if progress.failure.is_some() {
                return false;
            }
            if progress.wanted_ns < at_ns {
                progress.wanted_ns = at_ns;
                // A full pipe wakes the thread as well.
                let _ = (&self.wake).write(&[0]);
            }
            if self.advanced.wait_until(&mut progress, deadline).timed_out() {
                return progress.passed_ns >= at_ns;
            }
        }
        true
    }

    /// Asks the thread to end.
    pub(crate) fn stop(&self) {
        self.progress.lock().stop = true;
        let _ = (&self.wake).write(&[0]);
    }
}

/// The thread's own state.
#[derive(Debug)]
pub(crate) struct Reader {
    shared: Arc<Shared>,
    connector: Connector,
    woken: PipeReader,
    sequences: Sequences,
    /// Start of the interval in which messages were lost, if any were.
    lost_since_ns: Option<u64>,
    identity: Identity,
}

impl Reader {
    /// Returns a reader whose table is empty until [`Reader::run`] has read `/proc`.
    pub(crate) fn new(
        shared: Arc<Shared>,
        connector: Connector,
        woken: PipeReader,
        identity: Identity,
    ) -> Self {
        let (sequences, lost_since_ns) = (Sequences::default(), Some(0));
        Self { shared, connector, woken, sequences, lost_since_ns, identity }
    }

    /// Runs until [`Shared::stop`] or an error.
    pub(crate) fn run(mut self) {
        while let Err(error) = self.serve() {
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            tracing::error!("process connector: {error}; changes are no longer attributed");
            self.shared.progress.lock().failure = Some(error.to_string());
            break;
        }
        self.shared.advanced.notify_all();
    }

    /// Serves until the stop.
    fn serve(&mut self) -> io::Result<()> {
        loop {
            let (stop, wanted_ns) = {
                let progress = self.shared.progress.lock();
                (progress.stop, progress.wanted_ns)
            };
            if stop {
                return Ok(());
            }
            let now_ns = clock::monotonic_ns();
            self.drain()?;
            if self.lost_since_ns.is_some() {
                self.restart()?;
                continue;
            }
            self.advance(now_ns);
            self.remove_ended(now_ns);
            if wanted_ns > now_ns {
                self.wait(Duration::from_nanos(wanted_ns - now_ns))?;
            } else {
                self.wait(IDLE_MAX)?;
            }
        }
    }

    /// Receives until the socket is empty.
    fn drain(&mut self) -> io::Result<()> {
        loop {
            match self.connector.receive()? {
                Received::Empty => return Ok(()),
                Received::Lost => self.lose(),
                Received::Messages(messages) => {
                    self.take(&messages);
                }
            }
        }
    }

    /// Notes that messages were lost since the socket was last seen empty.
    fn lose(&mut self) {
        if self.lost_since_ns.is_none() {
            let mut progress = self.shared.progress.lock();
            progress.losses += 1;
            self.lost_since_ns = Some(progress.passed_ns);
        }
    }

    fn take(&mut self, messages: &[Message]) {
        for message in messages {
            self.take_one(message);
        }
    }

    fn take_one(&mut self, message: &Message) {
        if !self.sequences.follows(message) {
            self.lose();
        }
        let fresh = match message.kind {
            Kind::Fork { parent, child } if child.is_leader() => {
                let file = read::executable(child.pid);
                let executable = Executable { file, read_ns: clock::monotonic_ns() };
                let needs_users = self.shared.table.lock().needs_users(parent.pid);
                let users = needs_users.then(|| read::users(child.pid)).flatten();
                ProcReading::Child(executable, users)
            }
            Kind::Exec(task) => {
                if let Some(on_exec) = self.shared.on_exec.get() {
                    on_exec();
                }
                let known = self.shared.table.lock().users(task.pid);
                ProcReading::Process(read::process(task.pid, known, self.identity))
            }
            Kind::Uid(task, _) => ProcReading::Users(read::users(task.pid)),
            Kind::Fork { .. } | Kind::Exit(_) => ProcReading::Nothing,
            Kind::Gid(_) | Kind::Sid(_) | Kind::Comm(_) | Kind::Acknowledged(_) | Kind::Other => {
                return;
            }
        };
        self.shared.table.lock().apply(message, fresh);
    }

    /// Reads all of `/proc`, at the start and after losses. The socket has been seen empty since
    /// the loss, so the kernel queues messages again: nothing after `to_ns` is missing.
    fn restart(&mut self) -> io::Result<()> {
        let Some(from_ns) = self.lost_since_ns.take() else { return Ok(()) };
        let running = read::all(self.identity)?;
        // Changes while /proc was read count as lost too: what was read is in force only later.
        let to_ns = clock::monotonic_ns();
        self.shared.table.lock().restart(from_ns, to_ns, &running);
        Ok(())
    }

    fn advance(&self, passed_ns: u64) {
        self.shared.progress.lock().passed_ns = passed_ns;
        self.shared.advanced.notify_all();
    }

    fn remove_ended(&self, now_ns: u64) {
        let due = self.shared.table.lock().due(now_ns, REMOVED_AT_ONCE);
        for (ended, threaded) in due {
            let goes_on = threaded && read::exists(ended.pid);
            let mut table = self.shared.table.lock();
            if goes_on {
                table.keep(ended, now_ns);
            } else {
                table.remove(ended);
            }
        }
    }

    /// Waits for a message or a wake-up.
    fn wait(&mut self, most: Duration) -> io::Result<()> {
        let fd = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = [fd(self.connector.as_fd().as_raw_fd()), fd(self.woken.as_raw_fd())];
        let timeout = i32::try_from(most.as_millis()).unwrap_or(i32::MAX).saturating_add(1);
        #[expect(unsafe_code, reason = "the workspace's rustix has no poll")]
        // SAFETY: the pointer is to two entries that outlive the call.
        let ready = unsafe { libc::poll(fds.as_mut_ptr(), 2, timeout) };
        if ready < 0 {
            return Err(io::Error::last_os_error());
        }
        if fds[1].revents != 0 {
            let mut bytes = [0; 64];
            let _ = self.woken.read(&mut bytes)?;
        }
        Ok(())
    }
}
