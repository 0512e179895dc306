//! Scans a path twice with a baseline in memory and prints the counts:
//! `cargo run --release -p holdfast-detect --example scan -- /usr [scans]`.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;

use detect::{Cancel, Progress, Rules, ScanOptions, Scanner};
use env::clock::SystemClock;
use model::traits::PortError;
use model::{Baseline, BaselineItem, ChangeBatch, Observation, Op, Sink, SinkOutcome};

type Directories = HashMap<Vec<u8>, Vec<(Vec<u8>, Observation)>>;

#[derive(Clone, Default)]
struct Memory(Arc<std::sync::Mutex<Directories>>);

fn poisoned<T>(_: T) -> PortError {
    PortError("the store is poisoned".into())
}

impl Baseline for Memory {
    fn directory(&mut self, at: &[u8], into: &mut Vec<BaselineItem>) -> Result<(), PortError> {
        into.clear();
        let kept = self.0.lock().map_err(poisoned)?;
        into.extend(
            kept.get(at)
                .into_iter()
                .flatten()
                .map(|(name, o)| BaselineItem { name: name.clone(), observation: o.clone() }),
        );
        Ok(())
    }

    fn directories_below(&mut self, at: &[u8]) -> Result<Vec<Vec<u8>>, PortError> {
        let prefix = model::path::join(at, b"x");
        let prefix = prefix.strip_suffix(b"x").unwrap_or(&prefix);
        let kept = self.0.lock().map_err(poisoned)?;
        Ok(kept.keys().filter(|k| k.starts_with(prefix) && *k != at).cloned().collect())
    }
}

impl Sink for Memory {
    fn apply(&mut self, batch: &mut ChangeBatch) -> Result<SinkOutcome, PortError> {
        let mut kept = self.0.lock().map_err(poisoned)?;
        for op in batch.drain(..) {
            let (key, now) = match op {
                Op::Put { key, observation, .. } | Op::Touch { key, observation } => {
                    (key, Some(observation))
                }
                Op::Delete { key, .. } => (key, None),
                Op::Coverage(coverage) => {
                    eprintln!("{}: {}: {}", coverage.path, coverage.kind.name(), coverage.detail);
                    continue;
                }
            };
            let items = kept.entry(key.directory).or_default();
            let place = items.binary_search_by(|(name, _)| name.cmp(&key.name));
            match (place, now) {
                (Ok(i), now) => drop(items.splice(i..=i, now.map(|now| (key.name, now)))),
                (Err(i), Some(now)) => items.insert(i, (key.name, now)),
                (Err(_), None) => {}
            }
        }
        Ok(SinkOutcome::default())
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(path) = arguments.next() else {
        eprintln!("usage: scan PATH [SCANS]");
        return ExitCode::from(2);
    };
    let scans = arguments.next().and_then(|n| n.to_str()?.parse().ok()).unwrap_or(2);
    let rules = Rules::of_paths([path]);
    let clock = Arc::new(SystemClock::new());
    let scanner = match Scanner::new(rules, ScanOptions::default(), clock) {
        Ok(scanner) => scanner,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let memory = Memory::default();
    for _ in 0..scans {
        let cpu = cpu_seconds();
        let (mut baseline, mut sink) = (memory.clone(), memory.clone());
        match scanner.scan(&mut baseline, &mut sink, &Progress::new(), &Cancel::new()) {
            Ok(report) => {
                println!("{:.3} s, {:.2} cpu s", report.seconds, cpu_seconds() - cpu);
                println!("{:#?}", report.counts);
            }
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::from(2);
            }
        }
    }
    ExitCode::SUCCESS
}

/// Returns the CPU time of the process so far, including readers that have ended.
fn cpu_seconds() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}
