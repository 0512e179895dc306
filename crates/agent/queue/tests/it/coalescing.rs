//! Runs every sequence of operations on one item through the pure transitions and through the state
//! table of the reference queue (`data/reference-states.txt`). After a final successful cycle the
//! server must equal the disk. The pure transitions must never fail. The shortest sequences for
//! which the table fails are stored in `data/reference-losses.txt` (`BLESS=1` rewrites it).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use queue::transition::{HybridClock, ItemMarks, Marks, acknowledge, delete, put};

/// Most operations in a sequence.
const LENGTH_MAX: usize = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Op {
    Create,
    Modify,
    Delete,
    /// Lease the item for sending.
    Fetch,
    /// The session in flight was accepted.
    Success,
    /// The session did not arrive.
    Lost,
    /// The session was applied, but its answer was lost.
    Unanswered,
}

const OPS: [Op; 7] =
    [Op::Create, Op::Modify, Op::Delete, Op::Fetch, Op::Success, Op::Lost, Op::Unanswered];

impl Op {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Modify => "modify",
            Self::Delete => "delete",
            Self::Fetch => "fetch",
            Self::Success => "success",
            Self::Lost => "fail before the server",
            Self::Unanswered => "fail after the server",
        }
    }
}

/// The file: the number of its content while it exists.
#[derive(Default)]
struct Disk {
    content: Option<u32>,
    contents: u32,
}

impl Disk {
    /// Applies the operation. Returns false if it is impossible.
    fn apply(&mut self, op: Op) -> bool {
        match op {
            Op::Create | Op::Modify => {
                if self.content.is_some() != (op == Op::Modify) {
                    return false;
                }
                self.contents += 1;
                self.content = Some(self.contents);
            }
            Op::Delete => return self.content.take().is_some(),
            _ => {}
        }
        true
    }
}

/// The content of the item in a session.
#[derive(Debug, Clone, Copy)]
struct Sent {
    version: u64,
    content: Option<u32>,
}

/// The server. The highest version wins, and a delete leaves a tombstone.
#[derive(Default)]
struct Server {
    version: u64,
    content: Option<u32>,
}

impl Server {
    fn apply(&mut self, sent: Sent) {
        if sent.version >= self.version {
            self.version = sent.version;
            self.content = sent.content;
        }
    }
}

/// This queue, simulated by the pure transitions.
#[derive(Default)]
struct Ours {
    row: Option<ItemMarks>,
    marks: Marks,
    clock: HybridClock,
    flight: Option<Sent>,
    acknowledged: bool,
    /// True if a session has carried the item since its row was created.
    carried: bool,
    server: Server,
    /// True to end a cycle only when the next one begins, so that changes come in between.
    late_end: bool,
}

impl Ours {
    fn end(&mut self) {
        if self.marks.unfinished && self.flight.is_none() {
            self.marks = self.marks.end();
            self.acknowledged = false;
        }
    }

    fn apply(&mut self, op: Op, content: Option<u32>) {
        match op {
            Op::Create | Op::Modify => {
                let seen = self.clock.tick(0);
                self.row = Some(put(self.row, self.marks, seen));
            }
            Op::Delete => {
                let seen = self.clock.tick(0);
                self.row = delete(self.row, self.marks, seen);
                assert_eq!(self.row.is_some(), self.carried, "only what was told is told gone");
            }
            Op::Fetch => self.fetch(content),
            Op::Success => self.success(),
            Op::Lost => self.flight = None,
            Op::Unanswered => {
                if let Some(sent) = self.flight.take() {
                    self.server.apply(sent);
                }
            }
        }
    }

    fn success(&mut self) {
        let Some(sent) = self.flight.take() else { return };
        self.server.apply(sent);
        self.row = self.row.and_then(|row| acknowledge(row, sent.version));
        self.carried &= self.row.is_some();
        self.acknowledged = true;
        if !self.late_end {
            self.end();
        }
    }

    fn fetch(&mut self, content: Option<u32>) {
        if self.flight.is_some() {
            return;
        }
        if self.acknowledged {
            self.end();
        }
        self.marks = self.marks.begin_cycle(self.clock.last());
        match self.row.filter(|row| self.marks.is_due(*row)) {
            Some(row) => {
                assert!(row.deleted || content.is_some());
                self.carried = true;
                self.flight =
                    Some(Sent { version: row.version, content: content.filter(|_| !row.deleted) });
            }
            // Nothing is due, so the cycle is finished.
            None if self.late_end => self.acknowledged = true,
            None => self.end(),
        }
    }

    fn finish(&mut self, disk: Option<u32>) {
        self.flight = None;
        for _ in 0..3 {
            self.apply(Op::Fetch, disk);
            self.apply(Op::Success, disk);
            self.end();
        }
    }
}

/// The state table of the reference queue.
struct Table {
    states: BTreeMap<String, [String; 7]>,
}

const COLUMNS: [Op; 6] = [Op::Create, Op::Modify, Op::Delete, Op::Fetch, Op::Success, Op::Lost];

impl Table {
    fn load() -> Self {
        let mut states = BTreeMap::new();
        for line in include_str!("../data/reference-states.txt").lines() {
            if line.starts_with('#') {
                continue;
            }
            let cells: Vec<_> = line.split(" | ").map(String::from).collect();
            let [state, rest @ ..] = cells.as_slice() else { panic!("{line}") };
            states.insert(state.clone(), <[String; 7]>::try_from(rest.to_vec()).unwrap());
        }
        Self { states }
    }

    /// Columns: create, modify, delete, fetch, sent, success, fail.
    fn next(&self, state: &str, op: Op) -> (String, Option<&str>) {
        let row = &self.states[state];
        let at = COLUMNS.iter().position(|column| *column == op).unwrap_or(5);
        let cell = &row[if at > 3 { at + 1 } else { at }];
        let next = if cell == "-" { state.to_owned() } else { cell.clone() };
        assert!(self.states.contains_key(&next), "{next}");
        (next, (op == Op::Fetch && row[4] != "-").then_some(row[4].as_str()))
    }
}

struct Theirs<'a> {
    table: &'a Table,
    state: String,
    flight: Option<Sent>,
    stored: Option<u32>,
    server: Option<u32>,
}

impl Theirs<'_> {
    fn apply(&mut self, op: Op, content: Option<u32>) {
        if matches!(op, Op::Create | Op::Modify) {
            self.stored = content;
        }
        let (next, sent) = self.table.next(&self.state, op);
        self.state = next;
        if let Some(operation) = sent {
            let content = self.stored.filter(|_| operation != "delete");
            self.flight = Some(Sent { version: 0, content });
        }
        if matches!(op, Op::Success | Op::Lost | Op::Unanswered)
            && let Some(flight) = self.flight.take()
            && op != Op::Lost
        {
            self.server = flight.content;
        }
    }

    fn finish(&mut self) {
        self.apply(Op::Lost, None);
        for _ in 0..3 {
            self.apply(Op::Fetch, None);
            self.apply(Op::Success, None);
        }
    }
}

/// Runs one sequence; `None` if it is impossible on the disk. Returns true if the server of the
/// reference queue equals the disk.
fn run(table: &Table, sequence: &[Op]) -> Option<bool> {
    let mut disk = Disk::default();
    let mut ours = [Ours::default(), Ours { late_end: true, ..Ours::default() }];
    let mut theirs =
        Theirs { table, state: "absent".into(), flight: None, stored: None, server: None };
    for op in sequence {
        if !disk.apply(*op) {
            return None;
        }
        for one in &mut ours {
            one.apply(*op, disk.content);
        }
        theirs.apply(*op, disk.content);
    }
    for one in &mut ours {
        one.finish(disk.content);
        assert_eq!(one.server.content, disk.content, "{sequence:?}, late end {}", one.late_end);
        assert!(one.row.is_none_or(|row| !row.deleted), "{sequence:?} leaves a gone row");
    }
    theirs.finish();
    Some(theirs.server == disk.content)
}

fn sequences(length: usize) -> impl Iterator<Item = Vec<Op>> {
    (0..OPS.len().pow(length as u32)).map(move |mut number| {
        (0..length)
            .map(|_| {
                let op = OPS[number % OPS.len()];
                number /= OPS.len();
                op
            })
            .collect()
    })
}

fn contains(sequence: &[Op], part: &[Op]) -> bool {
    let mut rest = sequence.iter();
    part.iter().all(|op| rest.any(|other| other == op))
}

#[test]
fn server_equals_disk_and_reference_table_losses_are_unchanged() {
    let table = Table::load();
    assert_eq!(table.states.len(), 26);
    let mut losses: BTreeSet<(usize, Vec<Op>)> = BTreeSet::new();
    let (mut possible, mut lost) = (0, Vec::new());
    for length in 1..=LENGTH_MAX {
        for sequence in sequences(length) {
            let Some(right) = run(&table, &sequence) else { continue };
            possible += 1;
            if right {
                continue;
            }
            lost.push(sequence.clone());
            if !losses.iter().any(|(_, part)| contains(&sequence, part)) {
                losses.insert((length, sequence));
            }
        }
    }
    assert!(possible > 10_000, "{possible}");
    let mut text = format!(
        "# Sequences of up to {LENGTH_MAX} operations: {possible} possible ones. Ours: server = disk in all.\n\
         # The reference table: server <> disk in {}; those that contain no shorter one:\n",
        lost.len()
    );
    let mut line = |sequence: &[Op]| {
        let names: Vec<_> = sequence.iter().map(|op| op.name()).collect();
        writeln!(text, "{}", names.join(", ")).unwrap();
    };
    for (_, sequence) in &losses {
        line(sequence);
    }
    line(&[]);
    for sequence in &lost {
        line(sequence);
    }
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/reference-losses.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&golden, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&golden).unwrap_or_default(), text, "BLESS=1 rewrites it");
}
