//! Kills the process at random moments and checks that every acknowledged submit is stored once.
//!
//! `HOLDFAST_KILLS` sets the number of rounds (the soak uses more).

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::process::{Child, Stdio};
use std::sync::Arc;

use env::clock::{Clock, SystemClock};

use super::{DataFolder, event_ids, one};
use crate::{Commit, CommitOptions};

const CHILD: &str = "HOLDFAST_COMMIT_CHILD";
const ROUNDS: u64 = 6;

/// Submits from several tasks until killed, and prints each acknowledged record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by the test that kills it"]
async fn submit_until_killed() {
    let dir = std::env::var_os(CHILD).unwrap();
    let round = std::env::var("HOLDFAST_ROUND").unwrap();
    let dir = std::path::PathBuf::from(dir);
    let options = CommitOptions { checkpoint_records: 200, ..CommitOptions::default() };
    let open =
        super::open(&dir.join("journal"), &dir.join("state.db"), super::small_segments(), options)
            .unwrap();
    let tasks: Vec<_> = (0..8)
        .map(|task| tokio::spawn(submit_for_ever(open.commit.clone(), format!("{round}-{task}"))))
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

async fn submit_for_ever(commit: Arc<Commit>, prefix: String) {
    for n in 0.. {
        let name = format!("{prefix}-{n}");
        commit.submit(one(&name)).await.unwrap();
        std::io::stdout().write_all(format!("ACK {name}\n").as_bytes()).unwrap();
    }
}

fn start(folder: &DataFolder, round: u64) -> Child {
    needs::own_process(module_path!(), "submit_until_killed")
        .env(CHILD, &folder.dir)
        .env("HOLDFAST_ROUND", round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn acknowledged(text: &str, into: &mut BTreeSet<String>) -> usize {
    // A line that the kill cut off has no newline and does not count.
    let whole = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    let mut found = 0;
    for name in whole.filter_map(|line| line.split("ACK ").nth(1)) {
        into.insert(name.to_owned());
        found += 1;
    }
    found
}

#[test]
fn acknowledged_records_survive_sigkill() {
    let rounds =
        std::env::var("HOLDFAST_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(ROUNDS);
    let folder = DataFolder::new();
    let seed = SystemClock::new().now_us();
    println!("seed={seed}");
    let mut known = BTreeSet::new();
    for round in 0..rounds {
        let mut child = start(&folder, round);
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let wanted = (seed.wrapping_mul(round * 2 + 1) >> 3) % 700;
        let mut seen = 0;
        while seen as u64 <= wanted {
            let mut line = String::new();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "the child ended by itself");
            seen += acknowledged(&line, &mut known);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        acknowledged(&rest, &mut known);

        let open = folder.open();
        assert_eq!(open.state.log_bytes(), 0, "the log of the killed process was truncated");
        let ids = event_ids(&open.state);
        let stored: BTreeSet<_> = ids.iter().cloned().collect();
        assert_eq!(stored.len(), ids.len(), "no event twice");
        let missing: Vec<_> = known.difference(&stored).collect();
        assert!(missing.is_empty(), "round={round} missing={missing:?}");
        assert_eq!(open.commit.stats().applied.0 as usize, ids.len());
    }
    assert!(known.len() as u64 >= rounds);
}
