//! Compares two sides in memory, and counts requests and bytes.

use std::collections::BTreeMap;

use link::DigestPart;
use proptest::prelude::*;
use sha1::{Digest as _, Sha1};

use super::*;

type Side = BTreeMap<String, String>;

fn id(n: u32) -> String {
    match n % 5 {
        0 => format!("package-{n}"),
        _ => hex::encode(Sha1::digest(n.to_string())),
    }
}

fn own(side: &Side) -> OwnDocuments {
    let mut own = OwnDocuments::default();
    for (id, checksum) in side {
        own.add(id, checksum);
    }
    own.sort();
    own
}

/// A server's documents by key.
struct ServerDocuments<'a>(Vec<(u64, u64, &'a str, &'a str)>);

impl<'a> ServerDocuments<'a> {
    fn new(side: &'a Side) -> Self {
        let one = |(id, sum): (&'a String, &'a String)| (key(id), hash(id, sum), &**id, &**sum);
        let mut held: Vec<_> = side.iter().map(one).collect();
        held.sort_unstable();
        Self(held)
    }

    fn answer(&self, asked: &DigestRequest) -> DigestAnswer {
        let mut answer = DigestAnswer { store: "s".into(), ..DigestAnswer::default() };
        for range in &asked.ranges {
            let range = KeyRange::parse(range).unwrap();
            let from = self.0.partition_point(|h| h.0 < range.first);
            let to = self.0.partition_point(|h| h.0 <= range.last());
            let within = &self.0[from..to];
            answer.ranges += 1;
            if asked.split == 0 {
                answer.items.extend(within.iter().map(|(_, _, id, checksum)| DigestItem {
                    id: (*id).to_owned(),
                    version: 1_700_000_000_000_000,
                    checksum: (*checksum).to_owned(),
                    body: String::new(),
                }));
                continue;
            }
            let mut sums: Vec<Sum> = range.split(asked.split).map(|_| Sum::default()).collect();
            for (key, hash, ..) in within {
                sums[range.part_index(*key, asked.split)].add(*hash);
            }
            answer.parts.extend(sums.into_iter().map(DigestPart::from));
        }
        answer
    }
}

/// Returns the ids that differ, the number of requests, and the bytes of requests and answers.
fn compare(ours: &Side, theirs: &Side) -> (Vec<String>, usize, usize) {
    compare_by(SPLIT_DIGITS_MAX, ours, theirs)
}

/// Like [`compare`], but splits by at most `widest` digits.
fn compare_by(widest: u8, ours: &Side, theirs: &Side) -> (Vec<String>, usize, usize) {
    let (own, held) = (own(ours), ServerDocuments::new(theirs));
    let mut descent = Descent::new(&own, "wazuh-states-fim-files".into());
    descent.widest = widest;
    let (mut questions, mut bytes) = (0, 0);
    while let Some(question) = descent.question() {
        let answer = held.answer(&question);
        questions += 1;
        bytes += serde_json::to_vec(&question).unwrap().len();
        bytes += serde_json::to_vec(&answer).unwrap().len();
        descent.apply_answer(&question, answer).unwrap();
    }
    let mut found = descent.finish();
    let mut differ = Vec::new();
    for (id, checksum) in ours {
        let held = found.theirs.remove(id);
        if found.covers(id) && held.is_none_or(|h| h.checksum != *checksum) {
            differ.push(id.clone());
        }
    }
    differ.extend(found.theirs.into_keys());
    differ.sort();
    (differ, questions, bytes)
}

fn expected(ours: &Side, theirs: &Side) -> Vec<String> {
    let ids: std::collections::BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    ids.into_iter().filter(|id| ours.get(*id) != theirs.get(*id)).cloned().collect()
}

fn side(numbers: impl Iterator<Item = u32>) -> Side {
    numbers.map(|n| (id(n), hex::encode(Sha1::digest(n.to_le_bytes())))).collect()
}

proptest! {
    #[test]
    fn comparison_finds_exactly_the_differing_documents(
        all in 0u32..4_000,
        missing in prop::collection::vec(0u32..4_000, 0..40),
        surplus in prop::collection::vec(4_000u32..5_000, 0..40),
        changed in prop::collection::vec(0u32..4_000, 0..40),
    ) {
        let ours = side(0..all);
        let mut theirs = ours.clone();
        for n in &missing {
            theirs.remove(&id(*n));
        }
        theirs.extend(side(surplus.into_iter()));
        for n in changed {
            theirs.entry(id(n)).and_modify(|c| c.push('0'));
        }
        let (found, ..) = compare(&ours, &theirs);
        prop_assert_eq!(found, expected(&ours, &theirs));
    }
}

#[test]
fn comparison_with_empty_side_takes_few_requests() {
    let all = side(0..20_000);
    let (found, questions, bytes) = compare(&all, &Side::new());
    assert_eq!((found.len(), questions), (all.len(), 1));
    assert!(bytes < 16_000, "{bytes}");
    let (found, questions, _) = compare(&Side::new(), &all);
    assert_eq!(found.len(), all.len());
    assert!(questions <= 6, "{questions}");
}

#[test]
fn comparison_takes_few_small_requests() {
    let ours = side(0..100_000);
    for differing in [1, 10, 100, 1_000] {
        let mut theirs = ours.clone();
        for n in 0..differing {
            theirs.remove(&id(n * 97 + 1));
        }
        let (found, narrow, narrow_bytes) = compare_by(1, &ours, &theirs);
        assert_eq!(found, expected(&ours, &theirs));
        let (found, questions, bytes) = compare(&ours, &theirs);
        assert_eq!(found, expected(&ours, &theirs));
        println!(
            "{differing} of 100000 missing: {questions} questions, {bytes} bytes; by one digit \
             {narrow} questions, {narrow_bytes} bytes"
        );
        if differing == 1 {
            assert!(questions <= 3 && bytes <= 16_000, "{questions} questions, {bytes} bytes");
        }
    }
}
