//! Measures the queue: `cargo run --release -p holdfast-queue --example measure [DIR]`.
//!
//! It writes 100,000 items in directories of 50, in groups of 8,192 or as printed, on the file
//! system of DIR (default: the temporary directory). Bytes are those that the process wrote to the
//! block layer (`/proc/self/io`), including the checkpoint at close. CPU is user and system time.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for measuring")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use env::clock::SystemClock;
use env::random::{Random as _, SeededRandom, SystemRandom};
use model::document::NoNames;
use model::{
    Baseline as _, Change, ChangeKind, Dataset, Fields, ItemKey, Kind, Observation, Op, Sink as _,
};
use queue::{Queue, QueueDurability, QueueOptions, Transaction};

const ITEMS: u64 = 100_000;

struct Cost {
    seconds: f64,
    cpu_us: f64,
    written: u64,
}

fn written() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap();
    line.parse().unwrap()
}

/// Returns user and system time so far, microseconds (in clock ticks of 10 ms).
fn cpu_us() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields.iter().skip(11).take(2).map(|f| f.parse::<u64>().unwrap()).sum();
    ticks as f64 * 10_000.0
}

fn measure(work: impl FnOnce()) -> Cost {
    let (before, cpu, start) = (written(), cpu_us(), Instant::now());
    work();
    Cost {
        seconds: start.elapsed().as_secs_f64(),
        cpu_us: cpu_us() - cpu,
        written: written() - before,
    }
}

fn print(case: &str, count: u64, cost: &Cost) {
    let n = count as f64;
    println!(
        "{case:44} {:>9.0}/s {:>7.2} us CPU {:>7.3} kB {:>7.3} s",
        n / cost.seconds,
        cost.cpu_us / n,
        cost.written as f64 / n / 1000.0,
        cost.seconds,
    );
}

fn observation(number: u64, round: u64) -> Observation {
    let mut o = Observation::empty(Kind::File);
    o.device = 0xfe00;
    o.inode = 8_000_000 + number;
    o.mode = 0o644;
    o.uid = 1000;
    o.gid = 1000;
    o.size = 1000 + number * 7 + round;
    o.mtime_ns = 1_700_000_000_000_000_000 + (number * 1_000_003 + round) as i64;
    o.ctime_ns = o.mtime_ns + 5_123_456;
    o.verified_at_s = 1_795_000_000;
    let mut hash = [0; 32];
    SeededRandom::new(number * 31 + round).fill_bytes(&mut hash).unwrap();
    o.hashes.sha256 = Some(hash);
    o
}

fn put_op(number: u64, round: u64, event: bool) -> Op {
    let key = ItemKey::new(
        format!("/usr/share/application-{:05}/data", number / 50).into_bytes(),
        format!("file-{number:08}.bin").into_bytes(),
    );
    let observation = observation(number, round);
    let change = event.then(|| {
        Box::new(Change {
            key: key.clone(),
            kind: ChangeKind::Created,
            before: None,
            after: Some(observation.clone()),
            fields: Fields::default(),
            found_at_us: 1,
            from: None,
            seen: None,
            cause: None,
        })
    });
    Op::Put { key, observation, change }
}

fn open(path: &Path, options: &QueueOptions) -> Queue {
    let clock = Arc::new(SystemClock::new());
    Queue::open(path, options.clone(), clock, Arc::new(SystemRandom)).unwrap().0
}

fn insert(queue: &Queue, groups: Vec<Vec<Op>>) {
    let mut sink = queue.sink(&Dataset::fim_files(), Arc::new(NoNames)).unwrap();
    for mut group in groups {
        sink.apply(&mut group).unwrap();
    }
}

fn groups(order: &[u64], size: usize, round: u64, event: bool) -> Vec<Vec<Op>> {
    order.chunks(size).map(|c| c.iter().map(|n| put_op(*n, round, event)).collect()).collect()
}

fn lease_and_ack(queue: &Queue) -> u64 {
    let files = Dataset::fim_files();
    let mut count = 0;
    queue.begin_cycle(&files).unwrap();
    while let Some(lease) = queue.lease(&files, model::limits::SESSION_BYTES_TARGET).unwrap() {
        count += lease.items().len() as u64;
        queue.ack(lease, &[]).unwrap();
    }
    queue.end_cycle(&files).unwrap();
    count
}

fn rescan(queue: &Queue) -> u64 {
    let mut baseline = queue.baseline(&Dataset::fim_files()).unwrap();
    let mut items = Vec::new();
    let mut count = 0;
    for directory in baseline.directories_below(b"/").unwrap() {
        baseline.directory(&directory, &mut items).unwrap();
        count += items.len() as u64;
    }
    count
}

fn whole(path: &Path, name: &str, options: &QueueOptions, group: usize) {
    let ordered: Vec<u64> = (0..ITEMS).collect();
    let ops = groups(&ordered, group, 0, false);
    let queue = open(path, options);
    let cost = measure(|| {
        insert(&queue, ops);
        queue.close().unwrap();
    });
    print(&format!("insert, {name}"), ITEMS, &cost);
    let bytes = std::fs::metadata(path).unwrap().len();
    println!("{:44} {:>9.1} B of database an item", "", bytes as f64 / ITEMS as f64);

    let queue = open(path, options);
    let cost = measure(|| assert_eq!(lease_and_ack(&queue), ITEMS));
    print(&format!("lease + ack, {name}"), ITEMS, &cost);
    let cost = measure(|| assert_eq!(rescan(&queue), ITEMS));
    print(&format!("read the baseline, {name}"), ITEMS / 50, &cost);
    queue.close().unwrap();

    let ops = groups(&ordered, group, 1, false);
    let queue = open(path, options);
    let cost = measure(|| {
        insert(&queue, ops);
        queue.close().unwrap();
    });
    print(&format!("coalesce, same order, {name}"), ITEMS, &cost);

    let random = SeededRandom::new(7);
    let mut shuffled: Vec<(u64, u64)> =
        ordered.iter().map(|n| (random.next_u64().unwrap(), *n)).collect();
    shuffled.sort_unstable();
    let shuffled: Vec<u64> = shuffled.into_iter().map(|(_, n)| n).collect();
    let ops = groups(&shuffled, group, 2, false);
    let queue = open(path, options);
    let cost = measure(|| {
        insert(&queue, ops);
        queue.close().unwrap();
    });
    print(&format!("coalesce, random order, {name}"), ITEMS, &cost);
}

fn few_pending(path: &Path) {
    let options = QueueOptions::default();
    let queue = open(path, &options);
    lease_and_ack(&queue);
    insert(&queue, vec![(0..10).map(|n| put_op(n * 9_999, 9, false)).collect()]);
    let cost = measure(|| assert_eq!(lease_and_ack(&queue), 10));
    println!("{:44} {:>9.2} ms", "lease + ack of 10 among 100,000", cost.seconds * 1000.0);
    queue.close().unwrap();
    let cost = measure(|| open(path, &options).close().unwrap());
    println!("{:44} {:>9.2} ms", "open and close", cost.seconds * 1000.0);
}

fn with_events(path: &Path) {
    let ordered: Vec<u64> = (0..ITEMS).collect();
    let ops = groups(&ordered, 1000, 0, true);
    let queue = open(path, &QueueOptions::default());
    let cost = measure(|| {
        insert(&queue, ops);
        queue.close().unwrap();
    });
    print("insert with an event each, groups of 1,000", ITEMS, &cost);
}

fn writers(path: &Path) {
    let options = QueueOptions { durability: QueueDurability::Power, ..QueueOptions::default() };
    let queue = open(path, &options);
    let write = &|writer: u64| {
        let mine: Vec<u64> = (0..500).map(|n| writer * 500 + n).collect();
        insert(&queue, groups(&mine, 1, 0, false));
    };
    let cost = measure(|| {
        std::thread::scope(|scope| (0..16).for_each(|n| drop(scope.spawn(move || write(n)))));
    });
    print("power, 16 writers, one change at a time", 8_000, &cost);
    queue.close().unwrap();
}

fn main() {
    let folder = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("queue-measure-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let process = QueueOptions::default();
    let power = QueueOptions { durability: QueueDurability::Power, ..process.clone() };
    let per_event = QueueOptions { transaction: Transaction::PerEvent, ..process.clone() };
    whole(&folder.join("a.db"), "groups of 8,192", &process, 8192);
    few_pending(&folder.join("a.db"));
    whole(&folder.join("b.db"), "groups of 65,536", &process, 65_536);
    whole(&folder.join("c.db"), "groups of 1,000", &process, 1000);
    whole(&folder.join("d.db"), "power, groups of 100", &power, 100);
    whole(&folder.join("e.db"), "one by one", &per_event, 1000);
    with_events(&folder.join("f.db"));
    writers(&folder.join("g.db"));
    std::fs::remove_dir_all(&folder).unwrap();
}
