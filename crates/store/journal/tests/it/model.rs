//! Random operations and reopens compared with a list.

use crate::common::open;
use env::files::SimDisk;
use journal::{Durability, Journal, Layout};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<usize>, bool),
    Trim(u64),
    Persist,
    Checkpoint(u64),
    ReadFrom(u64),
    Reopen(Layout),
    Kill(Layout),
}

fn layouts() -> impl Strategy<Value = Layout> {
    prop_oneof![Just(Layout::Packed), Just(Layout::Sparse), Just(Layout::Ring)]
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![4 => 0usize..40, 1 => 4050usize..4110, 1 => 0usize..9000];
    prop_oneof![
        8 => (proptest::collection::vec(bytes, 1..4), any::<bool>())
            .prop_map(|(sizes, persist)| Step::Append(sizes, persist)),
        1 => (0u64..100).prop_map(Step::Trim),
        1 => Just(Step::Persist),
        1 => (0u64..100).prop_map(Step::Checkpoint),
        1 => (0u64..100).prop_map(Step::ReadFrom),
        1 => layouts().prop_map(Step::Reopen),
        1 => layouts().prop_map(Step::Kill),
    ]
}

struct Run {
    disk: SimDisk,
    journal: Option<Journal>,
    records: Vec<Vec<u8>>,
    persisted: usize,
    trimmed: u64,
    pin: Option<u64>,
}

impl Run {
    fn journal(&self) -> &Journal {
        self.journal.as_ref().unwrap()
    }

    /// Returns a position, given as a percentage of the records.
    fn position(&self, percent: u64) -> u64 {
        1 + self.persisted as u64 * percent / 100
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Append(sizes, persist) => {
                let fill = self.records.len() as u8;
                let batch: Vec<Vec<u8>> = sizes.iter().map(|n| vec![fill; *n]).collect();
                let refs: Vec<&[u8]> = batch.iter().map(Vec::as_slice).collect();
                let durability = if persist { Durability::Persist } else { Durability::Flush };
                let outcome = self.journal().append_all(&refs, durability).unwrap();
                self.records.extend(batch);
                assert_eq!(outcome.position, self.records.len() as u64);
                if persist {
                    self.persisted = self.records.len();
                }
            }
            Step::Trim(percent) => {
                let below = self.position(percent);
                let first = self.journal().trim(below).unwrap().first_position;
                let bound = self.pin.map_or(below, |pin| below.min(pin + 1));
                self.trimmed = self.trimmed.max(bound);
                assert!(first <= self.trimmed.max(1));
            }
            Step::Persist => {
                self.journal().persist().unwrap();
                self.persisted = self.records.len();
            }
            Step::Checkpoint(percent) => {
                let consumer = self.journal().consumer("one").unwrap();
                let position = self.position(percent) - 1;
                if position >= consumer.position() {
                    consumer.checkpoint(position).unwrap();
                }
                self.pin = Some(consumer.position());
            }
            Step::ReadFrom(percent) => self.read(self.position(percent)),
            Step::Reopen(layout) => {
                self.journal.take().unwrap().close().unwrap();
                self.journal = Some(open(&self.disk, layout, "reopened").0);
                self.persisted = self.records.len();
            }
            Step::Kill(layout) => {
                let disk = self.disk.kill();
                self.disk = disk;
                self.journal = Some(open(&self.disk, layout, "killed").0);
                self.persisted = self.records.len();
            }
        }
        // Starting a segment persists more than was requested.
        let persisted = self.journal().persisted_position() as usize;
        assert!((self.persisted..=self.records.len()).contains(&persisted));
        self.persisted = persisted;
    }

    fn read(&self, from: u64) {
        let Ok(reader) = self.journal().read_from(from) else {
            assert!(from < self.trimmed, "position {from} was never given up");
            return;
        };
        let found: Vec<_> = reader.map(Result::unwrap).collect();
        assert_eq!(found.len(), (self.persisted + 1).saturating_sub(from as usize));
        for (i, (position, record)) in found.iter().enumerate() {
            assert_eq!(*position, from + i as u64);
            assert_eq!(record, &self.records[*position as usize - 1]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn random_operations_match_a_list_of_records(
        layout in layouts(),
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let disk = SimDisk::new(3);
        let journal = Some(open(&disk, layout, "new").0);
        let (records, persisted) = (Vec::new(), 0);
        let mut run = Run { disk, journal, records, persisted, trimmed: 0, pin: None };
        for step in steps {
            run.take(step);
        }
        run.read(run.journal().first_position().max(1));
    }
}
