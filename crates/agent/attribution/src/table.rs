//! The process table: which images and users each process had, and when. Pure: what was read from
//! `/proc` arrives with the message that caused the reading.
//!
//! A process has *phases*, spans of time with one image and one pair of users. FORK copies the
//! parent's phase if `/proc` shows the same executable for the child; EXEC and UID begin phases.
//! [`Table::find`] returns everything that was in force in an interval, and never picks one of
//! several.
//!
//! **Why an image can be trusted.** `/proc` is read after the message of the exec; the process may
//! already run its next image. The next exec's message proves it or not:
//! - It was sent before the reading had ended: the reading may be of the next image.
//! - It was sent within [`limits::EXEC_WINDOW_NS`] after the reading: the process may have been
//!   inside that exec, which replaces what `/proc` shows before its message is sent. The reading is
//!   of the next image only if both have the same executable, because the executable is read last.
//!
//! In both cases the image becomes doubtful: its executable counts as unknown. The same applies to an
//! inherited image, which was compared when the message of the fork arrived, and to every image that
//! was read shortly before messages were lost. A reading of another process that reused the number is
//! recognised by its start time.
//!
//! **`CLONE_PARENT`.** The message of a fork names the child's parent, which need not be the process
//! that the child is a copy of. Hence the comparison of the executable; the users are read if the
//! parent has, or may adopt, children with other users.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::image::{Ancestor, FileId, Image, Login, ObservedImage, Start};
use crate::life::{Life, Phase, is_inside_exec};
use crate::limits;
use crate::losses::LossIntervals;
use crate::message::{Ids, Kind, Message, Task};

/// A process as `/proc` describes it.
#[derive(Debug, Clone)]
pub struct Reading {
    pub start: Start,
    pub parent: u32,
    pub threads: u32,
    pub ids: Ids,
    pub login: Login,
    /// `None` if the process had ended.
    pub image: Option<Arc<Image>>,
}

/// A reading of `/proc` for a message.
#[derive(Debug, Clone, Default)]
pub enum ProcReading {
    #[default]
    Nothing,
    /// EXEC: the process; `None` if it was gone.
    Process(Option<Reading>),
    /// FORK: the child's executable; `None` if it was gone or is a thread of the kernel. The users
    /// are read only if [`Table::needs_users`] says so.
    Child(Executable, Option<Users>),
    /// UID: the users, of which the login counts; `None` if the process was gone.
    Users(Option<Users>),
}

/// The executable of a child.
#[derive(Debug, Clone, Copy)]
pub struct Executable {
    /// `None` if the child was gone or is a thread of the kernel.
    pub file: Option<FileId>,
    /// Time at which it had been read, nanoseconds of `CLOCK_MONOTONIC`.
    pub read_ns: u64,
}

/// The users of a process as `/proc` describes them.
#[derive(Debug, Clone, Copy)]
pub struct Users {
    pub start: Start,
    pub ids: Ids,
    pub login: Login,
    /// Time at which they had been read, nanoseconds of `CLOCK_MONOTONIC`.
    pub read_ns: u64,
}

/// An ended process that is due for removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedProcess {
    pub pid: u32,
    serial: u64,
    at_ns: u64,
}

/// The table.
#[derive(Debug, Default)]
pub struct Table {
    pub(crate) lives: HashMap<u32, Vec<Life>>,
    pub(crate) losses: LossIntervals,
    count: usize,
    serial: u64,
    ended: VecDeque<EndedProcess>,
    refused: u64,
}

impl Table {
    /// Returns the number of processes, running and ended.
    pub fn processes(&self) -> usize {
        self.count
    }

    /// Returns the number of processes that were not entered because the table was full.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns true if the users of this process's next child must be read. The message of a fork
    /// names the child's parent. With `CLONE_PARENT` the child is a copy of another child of that
    /// parent, so its users are known without reading only if all of them have the same.
    pub fn needs_users(&mut self, parent: u32) -> bool {
        self.current(parent).is_some_and(|life| life.needs_users())
    }

    /// Returns the users of a running process, if messages have named them.
    pub fn users(&mut self, pid: u32) -> Option<Ids> {
        self.current(pid).and_then(|life| life.last()?.ids)
    }

    /// Applies a message, with what was read from `/proc` for it.
    pub fn apply(&mut self, message: &Message, fresh: ProcReading) {
        match (message.kind, fresh) {
            (Kind::Fork { parent, child }, ProcReading::Child(executable, users))
                if child.is_leader() =>
            {
                self.fork(parent, child.pid, message.at_ns, executable, users);
            }
            (Kind::Fork { child, .. }, _) if !child.is_leader() => {
                if let Some(life) = self.current(child.pid) {
                    life.threaded = true;
                }
            }
            (Kind::Exec(task), ProcReading::Process(reading)) => {
                self.exec(task.pid, message.at_ns, reading);
            }
            (Kind::Uid(task, ids), ProcReading::Users(users)) => {
                self.set_ids(task, message.at_ns, ids, users);
            }
            (Kind::Exit(task), _) => self.exit(task, message.at_ns),
            _ => {}
        }
    }

    /// Enters the processes that `/proc` lists, after the start and after losses. The messages of
    /// the interval up to `to_ns` were lost; later ones are applied after this call.
    ///
    /// Images are doubted before new ones are entered: all of those are read after `from_ns` and
    /// would be doubted too. Missing processes end before the listed ones are entered, because a
    /// full table removes ended ones to make room. Parents are marked after all are entered: a mark
    /// on an older process of the same number would be lost, and a child could get wrong users.
    pub fn restart(&mut self, from_ns: u64, to_ns: u64, running: &[(u32, Reading)]) {
        self.losses.add(from_ns, to_ns);
        // The message that would have shown that an image was read too late may be lost.
        for life in self.lives.values().filter_map(|lives| lives.last()) {
            if life.last_image().is_some_and(|seen| is_inside_exec(seen, from_ns)) {
                life.doubt();
            }
        }
        let listed: HashMap<u32, &Reading> = running.iter().map(|(pid, r)| (*pid, r)).collect();
        let missing: Vec<u32> =
            self.lives.keys().copied().filter(|pid| !listed.contains_key(pid)).collect();
        for pid in missing {
            if self.current(pid).is_some_and(|life| life.ended_ns.is_none()) {
                self.exit(Task { tid: pid, pid }, to_ns);
            }
        }
        for (pid, reading) in running {
            self.restart_one(*pid, from_ns, to_ns, reading);
        }
        for (pid, reading) in running {
            let ancestors = ancestors_listed(*pid, &listed);
            let users = listed.get(&reading.parent).map(|parent| (parent.ids, parent.login));
            if users != Some((reading.ids, reading.login)) {
                self.mark_parents(&ancestors);
            }
            if let Some(parent) = self.current(reading.parent) {
                parent.has_children = true;
            }
            if let Some(life) = self.current(*pid).filter(|life| life.ancestors.is_empty()) {
                life.ancestors = ancestors;
            }
        }
    }

    fn restart_one(&mut self, pid: u32, from_ns: u64, to_ns: u64, reading: &Reading) {
        let same = self.current(pid).is_some_and(|life| {
            life.start.ticks.is_some() && life.start.ticks == reading.start.ticks
        });
        if !same && !self.add(pid, from_ns, reading.start) {
            return;
        }
        if let Some(life) = self.current(pid) {
            life.ended_ns = None;
            life.threaded |= reading.threads > 1;
            life.push(Phase {
                from_ns: to_ns,
                image: reading.image.clone().map(ObservedImage::of_reading).map(Arc::new),
                ids: Some(reading.ids),
                ids_read_ns: 0,
                login: Some(reading.login),
            });
        }
    }

    fn fork(
        &mut self,
        parent: Task,
        pid: u32,
        at_ns: u64,
        executable: Executable,
        users: Option<Users>,
    ) {
        if let Some(life) = self.current(pid)
            && life.last_image().is_some_and(|seen| at_ns < seen.at_ns)
        {
            life.doubt();
        }
        let start = Start { at_ns: i64::try_from(at_ns).ok(), ticks: None };
        let users = users.filter(|users| is_same_process(start, users.start, at_ns));
        let inherited = self.current(parent.pid).map(|life| {
            life.has_children = true;
            let node = life.node(parent.pid);
            let older = life.ancestors.iter().take(limits::ANCESTORS_MAX - 1).cloned();
            let ancestors: Arc<[_]> = std::iter::once(node).chain(older).collect();
            let mut phase = life.last().cloned().unwrap_or_default();
            if life.needs_users() {
                phase.ids = users.map(|users| users.ids);
                phase.login = users.map(|users| users.login);
            } else if at_ns < phase.ids_read_ns {
                phase.ids = None;
            }
            (phase, ancestors)
        });
        if !self.add(pid, at_ns, start) {
            return;
        }
        let Some(life) = self.current(pid) else { return };
        let (phase, ancestors) = inherited.unwrap_or_default();
        life.ancestors = ancestors;
        // The parent of a process that was cloned with CLONE_PARENT is not the process that it is
        // a copy of, and the message names only the parent.
        let image = phase.image.filter(|seen| seen.has_file(executable.file));
        let inherit = |seen: Arc<ObservedImage>| {
            Arc::new(ObservedImage::inherited(seen.image.clone(), executable.read_ns))
        };
        let image = image.map(inherit);
        let ids_read_ns = users.map_or(0, |users| users.read_ns);
        life.push(Phase { from_ns: at_ns, image, ids_read_ns, ..phase });
    }

    fn exec(&mut self, pid: u32, at_ns: u64, reading: Option<Reading>) {
        if self.current(pid).is_none() && !self.add(pid, 0, Start::default()) {
            return;
        }
        let Some(life) = self.current(pid) else { return };
        let reading = reading.filter(|reading| is_same_process(life.start, reading.start, at_ns));
        if let Some(before) = life.last_image() {
            let next = reading.as_ref().and_then(|reading| reading.image.as_ref());
            let next = next.and_then(|image| image.program.as_ref());
            let same = next.is_none_or(|next| before.has_file(Some(next.file)));
            if at_ns < before.at_ns || (same && is_inside_exec(before, at_ns)) {
                life.doubt();
            }
        }
        // An exec by another thread than the first one is reported after the first one's EXIT.
        life.ended_ns = None;
        life.threaded = false;
        life.thread_ids.clear();
        let before = life.last();
        let ids = before.and_then(|phase| phase.ids);
        let ids_read_ns = before.map_or(0, |phase| phase.ids_read_ns);
        let login = before.and_then(|phase| phase.login);
        let image = reading.as_ref().and_then(|reading| reading.image.clone());
        let read_ns = image.as_ref().map_or(u64::MAX, |image| image.read_ns);
        let phase = Phase {
            from_ns: at_ns,
            image: image.map(ObservedImage::of_reading).map(Arc::new),
            ids: ids.or(reading.as_ref().map(|reading| reading.ids)),
            ids_read_ns: if ids.is_none() { read_ns } else { ids_read_ns },
            login: reading.as_ref().map(|reading| reading.login).or(login),
        };
        if let Some(reading) = reading {
            life.start.ticks = reading.start.ticks;
            life.start.at_ns = life.start.at_ns.or(reading.start.at_ns);
        }
        life.push(phase);
    }

    fn set_ids(&mut self, task: Task, at_ns: u64, ids: Ids, users: Option<Users>) {
        let Some(life) = self.current(task.pid) else { return };
        let users = users.filter(|users| is_same_process(life.start, users.start, at_ns));
        let login = users.map(|users| users.login);
        if !task.is_leader() {
            if !life.thread_ids.contains(&ids) && life.thread_ids.len() <= limits::THREAD_IDS_MAX {
                life.thread_ids.push(ids);
            }
            return;
        }
        // The reading from /proc may have contained these users already.
        for phase in life.phases.iter_mut().filter(|phase| at_ns < phase.ids_read_ns) {
            phase.ids = None;
        }
        let Some(last) = life.last() else { return };
        let next = Phase {
            from_ns: at_ns,
            ids: Some(ids),
            ids_read_ns: 0,
            login: login.or(last.login),
            ..last.clone()
        };
        life.push(next);
        life.children_differ |= life.has_children;
        let ancestors = life.ancestors.clone();
        self.mark_parents(&ancestors);
    }

    /// Notes that a process with these ancestors may have other users than they. One of them, or
    /// process 1, adopts it when its parent ends.
    fn mark_parents(&mut self, ancestors: &[Arc<Ancestor>]) {
        for pid in ancestors.iter().map(|ancestor| ancestor.pid).chain([1]) {
            if let Some(life) = self.current(pid) {
                life.children_differ = true;
            }
        }
    }

    fn exit(&mut self, task: Task, at_ns: u64) {
        let Some(life) = self.current(task.pid) else { return };
        // A thread that ends after the first one shows that the process went on.
        if !task.is_leader() && life.ended_ns.is_none() {
            return;
        }
        let ended = EndedProcess { pid: task.pid, serial: life.serial, at_ns };
        if life.ended_ns.replace(at_ns).is_none() {
            self.ended.push_back(ended);
        }
    }

    /// Returns the ended processes that are due for removal, at most `most`. The caller checks
    /// those that were threaded against `/proc` and passes each to [`Table::remove`] or
    /// [`Table::keep`].
    pub fn due(&mut self, now_ns: u64, most: usize) -> Vec<(EndedProcess, bool)> {
        let mut due = Vec::new();
        while let Some(ended) = self.ended.front().copied()
            && ended.at_ns + limits::ENDED_KEPT_NS <= now_ns
            && due.len() < most
        {
            self.ended.pop_front();
            let Some(life) = self.ended_life(ended) else { continue };
            let (last_ns, threaded) = (life.ended_ns.unwrap_or(0), life.threaded);
            if last_ns > ended.at_ns {
                self.ended.push_back(EndedProcess { at_ns: last_ns, ..ended });
            } else {
                due.push((ended, threaded));
            }
        }
        due
    }

    /// Removes an ended process.
    pub fn remove(&mut self, ended: EndedProcess) {
        if self.ended_life(ended).is_none() {
            return;
        }
        let Some(lives) = self.lives.get_mut(&ended.pid) else { return };
        lives.retain(|life| life.serial != ended.serial);
        if lives.is_empty() {
            self.lives.remove(&ended.pid);
        }
        self.count -= 1;
    }

    /// Keeps a process that goes on after the end of its first thread.
    pub fn keep(&mut self, ended: EndedProcess, now_ns: u64) {
        if self.ended_life(ended).is_some() {
            self.ended.push_back(EndedProcess { at_ns: now_ns, ..ended });
        }
    }

    /// Returns the process that an entry of the queue refers to, unless it went on.
    fn ended_life(&self, ended: EndedProcess) -> Option<&Life> {
        let lives = self.lives.get(&ended.pid)?;
        lives.iter().find(|life| life.serial == ended.serial && life.ended_ns.is_some())
    }

    /// Returns the process that has this number now, or had it last.
    fn current(&mut self, pid: u32) -> Option<&mut Life> {
        self.lives.get_mut(&pid)?.last_mut()
    }

    /// Adds a process without phases. Returns false if the table is full of running processes; an
    /// older process with this number is then removed, so that it is not taken for the new one.
    fn add(&mut self, pid: u32, from_ns: u64, start: Start) -> bool {
        if self.count >= limits::PROCESSES_MAX {
            self.remove_oldest();
        }
        if self.count >= limits::PROCESSES_MAX {
            self.refused += 1;
            self.count -= self.lives.remove(&pid).map_or(0, |lives| lives.len());
            return false;
        }
        let lives = self.lives.entry(pid).or_default();
        // A process that was entered from /proc, and whose FORK arrives later.
        if lives.last().is_some_and(|life| life.from_ns >= from_ns) {
            lives.pop();
            self.count -= 1;
        }
        if let Some(before) = lives.last_mut()
            && before.ended_ns.is_none()
        {
            before.ended_ns = Some(from_ns);
            self.ended.push_back(EndedProcess { pid, serial: before.serial, at_ns: from_ns });
        }
        self.serial += 1;
        self.count += 1;
        lives.push(Life {
            serial: self.serial,
            from_ns,
            start,
            ended_ns: None,
            has_children: false,
            children_differ: false,
            threaded: false,
            phases: VecDeque::with_capacity(2),
            thread_ids: Vec::new(),
            ancestors: Arc::default(),
            node: None,
        });
        true
    }

    /// Removes the process that ended first.
    fn remove_oldest(&mut self) {
        while let Some(ended) = self.ended.pop_front() {
            if self.ended_life(ended).is_some() {
                self.remove(ended);
                return;
            }
        }
    }
}

/// Returns false if another process, which reused the number later, was read. The process ran at
/// `at_ns`, so that one started later.
fn is_same_process(known: Start, read: Start, at_ns: u64) -> bool {
    match (known.ticks, read.at_ns) {
        (Some(ticks), _) => read.ticks == Some(ticks),
        (None, Some(start_ns)) => i128::from(start_ns) <= i128::from(at_ns),
        (None, None) => false,
    }
}

/// Returns the ancestors of a process by the parents that `/proc` names.
fn ancestors_listed(pid: u32, listed: &HashMap<u32, &Reading>) -> Arc<[Arc<Ancestor>]> {
    let mut ancestors = Vec::new();
    let mut child = listed.get(&pid);
    while let Some(pid) = child.map(|reading| reading.parent)
        && let Some(parent) = listed.get(&pid)
        && ancestors.len() < limits::ANCESTORS_MAX
    {
        let image = parent.image.clone().map(ObservedImage::of_reading).map(Arc::new);
        let user = Some(parent.ids.effective);
        ancestors.push(Arc::new(Ancestor { pid, start: parent.start, image, user }));
        child = Some(parent);
    }
    ancestors.into()
}
