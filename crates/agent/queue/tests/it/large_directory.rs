//! One directory with many items. After any writes and removals with interrupted cycles, the server
//! equals the disk in the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{base, delete_op, files, open, open_new, paths};
use env::random::{Random as _, SeededRandom};
use model::document::NoNames;
use model::{Op, Sink as _};
use queue::Queue;

const NAMES: u64 = 9_000;
const ROUNDS: u64 = 14;

type ServerVersions = BTreeMap<String, u64>;

fn write(queue: &Queue, mut ops: Vec<Op>) {
    let mut sink = queue.scan_sink(&files(), Arc::new(NoNames)).unwrap();
    sink.apply(&mut ops).unwrap();
    sink.flush().unwrap();
}

/// Runs at most `sessions` sessions of a cycle. Returns true if it ended.
fn run_sessions(queue: &Queue, sessions: u64, server: &mut ServerVersions) -> bool {
    queue.begin_cycle(&files()).unwrap();
    for _ in 0..sessions {
        let Some(lease) = queue.lease(&files(), 500_000).unwrap() else {
            queue.end_cycle(&files()).unwrap();
            return true;
        };
        for (path, size) in paths(&lease) {
            match size {
                Some(size) => server.insert(path, size),
                None => server.remove(&path),
            };
        }
        queue.ack(lease, &[]).unwrap();
    }
    false
}

#[test]
fn large_directory_is_sent_completely_despite_interruptions() {
    let (_folder, path, clock, mut queue) = open_new();
    let random = SeededRandom::new(5);
    let number = |below: u64| random.next_u64().unwrap() % below;
    let (mut disk, mut server) = (ServerVersions::new(), ServerVersions::new());
    for round in 1..=ROUNDS {
        let (start, count, step) = (number(NAMES), number(3_000), 1 + number(3));
        let names = (start..start + count * step).step_by(step as usize);
        let names = names.map(|n| format!("/flat/{:05}", n % NAMES));
        let ops = if round % 3 == 0 {
            names.filter(|name| disk.remove(name).is_some()).map(|name| delete_op(&name)).collect()
        } else {
            let put = |name: String| {
                disk.insert(name.clone(), round);
                base(&name, round)
            };
            names.map(put).collect()
        };
        write(&queue, ops);
        run_sessions(&queue, number(5), &mut server);
        if round % 5 == 0 {
            queue.close().unwrap();
            queue = open(&path, &clock).0;
        }
    }
    // A change before the cursor of a continued cycle is sent by the next one.
    while !run_sessions(&queue, u64::MAX, &mut server)
        || queue.status().unwrap().datasets[0].pending > 0
    {}
    assert_eq!(server, disk);
    assert_eq!(queue.status().unwrap().datasets[0].items, disk.len() as u64);
}
