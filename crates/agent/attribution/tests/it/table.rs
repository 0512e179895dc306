//! The table against a simulated system: random forks, execs, changes of users, exits and writes,
//! while the reader is late by random times. An answer may be incomplete, but never wrong.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use model::{Interval, Writer, WriterSeen};
use proptest::prelude::*;

use attribution::find::{FindOutcome, Found, Reason};
use attribution::image::{FileId, Image, Login, ObservedImage, Program, Start};
use attribution::limits;
use attribution::message::{Ids, Kind, Message, Task};
use attribution::table::{Executable, ProcReading, Reading, Table, Users};

/// Numbers that processes of the simulation have; so few that each is reused.
const PIDS: std::ops::Range<u32> = 10..16;

fn task(pid: u32) -> Task {
    Task { tid: pid, pid }
}

fn file(executable: u64) -> FileId {
    FileId { device: 1, inode: executable, ctime_ns: 0 }
}

fn ids(user: u32) -> Ids {
    Ids { real: user, effective: user }
}

/// A process of the simulation.
#[derive(Debug, Clone)]
struct Simulated {
    start_ns: u64,
    parent: u32,
    executable: u64,
    user: u32,
    /// True between the moment in which an exec replaces the image, and its message.
    in_exec: bool,
}

/// A write, and what the table has to say about it.
#[derive(Debug)]
struct Write {
    at_ns: u64,
    pid: u32,
    truth: Simulated,
}

#[derive(Debug)]
struct System {
    now_ns: u64,
    processes: BTreeMap<u32, Simulated>,
    queue: VecDeque<Message>,
    table: Table,
    writes: Vec<Write>,
    /// Last time at which the reader had received everything.
    empty_ns: u64,
    executables: u64,
}

impl System {
    fn new() -> Self {
        let first = Simulated { start_ns: 0, parent: 0, executable: 1, user: 0, in_exec: false };
        let mut system = Self {
            now_ns: 1,
            processes: BTreeMap::from([(1, first)]),
            queue: VecDeque::new(),
            table: Table::default(),
            writes: Vec::new(),
            empty_ns: 0,
            executables: 1,
        };
        system.restart();
        system
    }

    fn send(&mut self, kind: Kind) {
        self.queue.push_back(Message { cpu: 0, sequence: 0, at_ns: self.now_ns, kind });
    }

    fn read(&self, pid: u32) -> Option<Reading> {
        let process = self.processes.get(&pid)?;
        let program = Program {
            path: process.executable.to_string().into_bytes(),
            deleted: false,
            file: file(process.executable),
        };
        let image = Image { program: Some(program), read_ns: self.now_ns, ..Image::default() };
        let at_ns = Some(process.start_ns as i64);
        Some(Reading {
            start: Start { at_ns, ticks: Some(process.start_ns) },
            parent: process.parent,
            threads: 1,
            ids: ids(process.user),
            login: Login::default(),
            image: Some(Arc::new(image)),
        })
    }

    fn users(&self, pid: u32) -> Option<Users> {
        let Reading { start, ids, login, .. } = self.read(pid)?;
        Some(Users { start, ids, login, read_ns: self.now_ns })
    }

    /// Lets the reader handle one message.
    fn receive(&mut self) {
        let Some(message) = self.queue.pop_front() else {
            self.empty_ns = self.now_ns;
            return;
        };
        let fresh = match message.kind {
            Kind::Fork { parent, child } => {
                let process = self.processes.get(&child.pid).cloned();
                let file = process.as_ref().map(|process| file(process.executable));
                let executable = Executable { file, read_ns: self.now_ns };
                let needs_users = self.table.needs_users(parent.pid);
                let users = needs_users.then(|| self.users(child.pid)).flatten();
                ProcReading::Child(executable, users)
            }
            Kind::Exec(task) => ProcReading::Process(self.read(task.pid)),
            Kind::Uid(task, _) => ProcReading::Users(self.users(task.pid)),
            _ => ProcReading::Nothing,
        };
        self.table.apply(&message, fresh);
    }

    /// Loses all messages that the reader has not received.
    fn restart(&mut self) {
        self.queue.clear();
        let running: Vec<_> =
            self.processes.keys().map(|pid| (*pid, self.read(*pid).unwrap())).collect();
        self.table.restart(self.empty_ns, self.now_ns, &running);
        self.empty_ns = self.now_ns;
    }

    fn fork(&mut self, pid: u32, clone_parent: bool) {
        let Some(child) = PIDS.clone().find(|child| !self.processes.contains_key(child)) else {
            return;
        };
        let copied = self.processes[&pid].clone();
        let parent = if clone_parent { copied.parent } else { pid };
        if !self.processes.contains_key(&parent) {
            return;
        }
        self.processes.insert(child, Simulated { start_ns: self.now_ns, parent, ..copied });
        self.send(Kind::Fork { parent: task(parent), child: task(child) });
    }

    fn begin_exec(&mut self, pid: u32, executable: u64) {
        let process = self.processes.get_mut(&pid).unwrap();
        (process.executable, process.in_exec) = (executable, true);
    }

    fn end_exec(&mut self, pid: u32) {
        self.processes.get_mut(&pid).unwrap().in_exec = false;
        self.send(Kind::Exec(task(pid)));
    }

    fn set_user(&mut self, pid: u32, user: u32) {
        self.processes.get_mut(&pid).unwrap().user = user;
        self.send(Kind::Uid(task(pid), ids(user)));
    }

    fn exit(&mut self, pid: u32) {
        self.processes.remove(&pid);
        for child in self.processes.values_mut().filter(|child| child.parent == pid) {
            child.parent = 1;
        }
        self.send(Kind::Exit(task(pid)));
    }

    fn write(&mut self, pid: u32) {
        let truth = self.processes[&pid].clone();
        self.writes.push(Write { at_ns: self.now_ns, pid, truth });
    }

    fn step(&mut self, step: &Step) {
        self.now_ns += step.after_ns;
        let at = usize::from(step.process) % self.processes.len();
        let pid = *self.processes.keys().nth(at).unwrap();
        let in_exec = self.processes[&pid].in_exec;
        match step.kind {
            StepKind::Receive => self.receive(),
            StepKind::Lose => self.restart(),
            // A process inside an exec does nothing else.
            _ if in_exec => self.end_exec(pid),
            StepKind::Fork => self.fork(pid, false),
            StepKind::CloneParent => self.fork(pid, true),
            StepKind::Exec => self.begin_exec(pid, u64::from(step.value % 3)),
            StepKind::SetUser => self.set_user(pid, u32::from(step.value % 3)),
            StepKind::Exit if pid != 1 => self.exit(pid),
            StepKind::Write | StepKind::Exit => self.write(pid),
        }
    }

    fn finish(&mut self) {
        let inside: Vec<u32> = self.processes.keys().copied().collect();
        for pid in inside.into_iter().filter(|pid| self.processes[pid].in_exec).collect::<Vec<_>>()
        {
            self.now_ns += 1;
            self.end_exec(pid);
        }
        while !self.queue.is_empty() {
            self.now_ns += 1;
            self.receive();
        }
    }

    fn find(&self, write: &Write, width_ns: u64) -> FindOutcome {
        let from_ns = write.at_ns.saturating_sub(width_ns);
        let interval = Interval { from_ns, to_ns: write.at_ns + width_ns };
        self.table.find(&Writer::new(write.pid, WriterSeen::Changing, interval))
    }
}

#[derive(Debug, Clone, Copy)]
enum StepKind {
    Fork,
    CloneParent,
    Exec,
    SetUser,
    Exit,
    Write,
    Receive,
    Lose,
}

#[derive(Debug, Clone)]
struct Step {
    kind: StepKind,
    process: u8,
    value: u8,
    after_ns: u64,
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![
        4 => Just(StepKind::Fork),
        1 => Just(StepKind::CloneParent),
        6 => Just(StepKind::Exec),
        2 => Just(StepKind::SetUser),
        2 => Just(StepKind::Exit),
        6 => Just(StepKind::Write),
        12 => Just(StepKind::Receive),
        1 => Just(StepKind::Lose),
    ];
    let after_ns = prop_oneof![Just(1), Just(1_000), Just(2_000_000), Just(20_000_000)];
    (kind, any::<u8>(), any::<u8>(), after_ns).prop_map(|(kind, process, value, after_ns)| Step {
        kind,
        process,
        value,
        after_ns,
    })
}

/// Checks that what was found includes the truth or says that it is not known.
fn check(found: &Found, truth: &Simulated) -> Result<(), TestCaseError> {
    prop_assert_eq!(found.start.at_ns, Some(truth.start_ns as i64), "another process");
    let named = |seen: &&Arc<ObservedImage>| {
        seen.known_program().is_some_and(|program| program.file == file(truth.executable))
    };
    let known = found.images.iter().any(|seen| named(&seen));
    prop_assert!(known || found.unknown_image.is_some(), "{:?} is not {:?}", found, truth);
    let user = found.ids.is_empty() || found.ids.contains(&ids(truth.user));
    prop_assert!(user, "{:?} is not {:?}", found.ids, truth);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn late_reader_never_names_a_wrong_process(
        steps in prop::collection::vec(step(), 1..120),
        width_ns in prop_oneof![Just(0), Just(1_000), Just(10_000_000)],
    ) {
        let mut system = System::new();
        for step in &steps {
            system.step(step);
        }
        system.finish();
        for write in &system.writes {
            if let FindOutcome::Process(found) = system.find(write, width_ns) {
                check(&found, &write.truth)?;
            }
        }
    }

    /// With a reader that is never late, every executable and user is named.
    #[test]
    fn prompt_reader_names_every_writer(steps in prop::collection::vec(step(), 1..120)) {
        let mut system = System::new();
        // The interval of the start is incomplete.
        system.now_ns += 1_000_000_000;
        for step in steps {
            let kind = match step.kind {
                StepKind::CloneParent => StepKind::Fork,
                StepKind::Lose => StepKind::Receive,
                kind => kind,
            };
            system.executables += 1;
            let pids: Vec<u32> = system.processes.keys().copied().collect();
            if let StepKind::Exec = kind {
                system.now_ns += step.after_ns;
                let pid = pids[usize::from(step.process) % pids.len()];
                // An exec of the same file twice leaves a doubt.
                system.begin_exec(pid, system.executables);
                system.end_exec(pid);
            } else {
                system.step(&Step { kind, ..step });
            }
            system.receive();
        }
        for write in &system.writes {
            let found = match system.find(write, 0) {
                FindOutcome::Process(found) => found,
                FindOutcome::Uncertain(Reason::Reused) => continue,
                other => return Err(TestCaseError::fail(format!("{write:?}: {other:?}"))),
            };
            check(&found, &write.truth)?;
            prop_assert!(matches!(found.unknown_image, None | Some(Reason::ManyImages)));
            prop_assert!(!found.ids.is_empty() || found.unknown_image.is_some());
        }
    }
}

/// A table with process 1 at 100 s, and the time at which it is complete.
fn started() -> System {
    let mut system = System::new();
    system.now_ns += 100_000_000_000;
    system
}

fn reason(finding: FindOutcome) -> Reason {
    match finding {
        FindOutcome::Unknown(reason) | FindOutcome::Uncertain(reason) => reason,
        FindOutcome::Process(found) => found.unknown_image.unwrap(),
    }
}

#[test]
fn unread_exec_has_no_executable() {
    let mut system = started();
    system.fork(1, false);
    system.receive();
    system.now_ns += 10_000_000;
    system.begin_exec(10, 7);
    system.end_exec(10);
    system.now_ns += 10_000_000;
    system.write(10);
    system.now_ns += 1;
    system.processes.remove(&10);
    system.send(Kind::Exit(task(10)));
    system.finish();
    let FindOutcome::Process(found) = system.find(&system.writes[0], 0) else { panic!() };
    assert!(found.images.is_empty(), "the parent's executable is never used");
    assert_eq!(found.unknown_image, Some(Reason::Gone));
    assert_eq!(found.ids, [ids(0)]);
    assert_eq!(found.ancestors[0].pid, 1);
}

#[test]
fn ended_process_is_kept_for_a_minute() {
    let mut system = started();
    system.fork(1, false);
    system.now_ns += 1;
    system.write(10);
    system.receive();
    system.now_ns += 1;
    system.send(Kind::Exit(task(10)));
    system.receive();
    let end_ns = system.now_ns + limits::ENDED_KEPT_NS;
    assert!(system.table.due(end_ns - 1, 9).is_empty());
    assert!(matches!(system.find(&system.writes[0], 0), FindOutcome::Process(_)));
    for (ended, threaded) in system.table.due(end_ns, 9) {
        assert!(!threaded);
        system.table.remove(ended);
    }
    assert_eq!(reason(system.find(&system.writes[0], 0)), Reason::Gone);
    assert_eq!(system.table.processes(), 1);
}

#[test]
fn process_goes_on_after_its_first_thread_ended() {
    let mut system = started();
    system.fork(1, false);
    let thread = Task { tid: 99, pid: 10 };
    system.send(Kind::Fork { parent: task(10), child: thread });
    system.send(Kind::Exit(task(10)));
    system.now_ns += limits::ENDED_KEPT_NS;
    system.write(10);
    system.finish();
    assert!(matches!(system.find(&system.writes[0], 0), FindOutcome::Process(_)));
    let due = system.table.due(system.now_ns, 9);
    assert!(matches!(due[..], [(_, true)]));
    system.table.keep(due[0].0, system.now_ns);
    assert!(matches!(system.find(&system.writes[0], 0), FindOutcome::Process(_)));
}

#[test]
fn users_of_single_threads_are_candidates() {
    let mut system = started();
    system.send(Kind::Uid(Task { tid: 99, pid: 1 }, ids(5)));
    system.finish();
    system.write(1);
    let FindOutcome::Process(found) = system.find(&system.writes[0], 0) else { panic!() };
    assert_eq!(found.ids, [ids(0), ids(5)]);
    // A child has the users of the thread that created it, so its own are read.
    system.fork(1, false);
    system.finish();
    system.now_ns += 10_000_000;
    system.write(10);
    let FindOutcome::Process(found) = system.find(&system.writes[1], 0) else { panic!() };
    assert_eq!(found.ids, [ids(0)]);
}

#[test]
fn full_table_drops_ended_processes_first() {
    let mut system = started();
    let fork = |system: &mut System, pid| {
        let kind = Kind::Fork { parent: task(1), child: task(pid) };
        let message = Message { cpu: 0, sequence: 0, at_ns: system.now_ns, kind };
        let executable = Executable { file: Some(file(1)), read_ns: system.now_ns };
        system.table.apply(&message, ProcReading::Child(executable, None));
    };
    let limit = limits::PROCESSES_MAX as u32;
    (2..=limit).for_each(|pid| fork(&mut system, pid));
    assert_eq!(system.table.processes(), limits::PROCESSES_MAX);
    fork(&mut system, limit + 1);
    assert_eq!((system.table.processes(), system.table.refused()), (limits::PROCESSES_MAX, 1));
    let message = Message { cpu: 0, sequence: 0, at_ns: system.now_ns, kind: Kind::Exit(task(2)) };
    system.table.apply(&message, ProcReading::Nothing);
    fork(&mut system, limit + 2);
    assert_eq!((system.table.processes(), system.table.refused()), (limits::PROCESSES_MAX, 1));
    let now = Interval { from_ns: system.now_ns, to_ns: system.now_ns };
    let writer = |pid| Writer::new(pid, WriterSeen::Changing, now);
    assert_eq!(reason(system.table.find(&writer(2))), Reason::Gone);
    assert_eq!(reason(system.table.find(&writer(limit + 1))), Reason::Gone);
    assert!(matches!(system.table.find(&writer(limit + 2)), FindOutcome::Process(_)));
    assert_eq!(reason(system.table.find(&writer(0))), Reason::OtherNamespace);
}

#[test]
fn ancestor_that_ended_before_a_write_does_not_run() {
    let mut system = started();
    system.fork(1, false);
    system.finish();
    system.fork(10, false);
    system.finish();
    system.now_ns += 10_000_000;
    system.write(11);
    system.now_ns += 1_000_000_000;
    system.send(Kind::Exit(task(10)));
    system.finish();
    system.now_ns += 1_000_000_000;
    system.write(11);
    let running = |write| match system.find(write, 0) {
        FindOutcome::Process(found) => {
            let pids = found.ancestors.iter().map(|ancestor| (ancestor.pid, ancestor.user));
            pids.zip(found.ancestors_running).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    let (parent, first) = ((10, Some(0)), (1, Some(0)));
    assert_eq!(running(&system.writes[0]), [(parent, true), (first, true)]);
    assert_eq!(running(&system.writes[1]), [(parent, false), (first, true)]);
}
