//! Tests sums and lists of ranges of documents, with which an agent repairs differences.

use crate::common::{FILES, Server, document};
use link::digest::{KeyRange, Sum, hash, key};
use link::{DigestAnswer, DigestRequest, SessionValue};

#[tokio::test(flavor = "multi_thread")]
async fn ranges_are_summed_and_listed() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    let values = (0..25).map(|n| document(&format!("f{n:02}"), n + 1, 'a')).collect();
    assert_eq!(agent.send(&agent.delta(values)).await.status, 200);
    let ask = |ranges: Vec<String>, split| DigestRequest {
        index: FILES.into(),
        ranges,
        split,
        bodies: false,
    };
    let sums: DigestAnswer = agent.json("/digest", &ask(vec![String::new()], 1)).await;
    assert_eq!((sums.ranges, sums.parts.len(), sums.items.len()), (1, 16, 0));
    assert_eq!(sums.store, server.state.store_id());
    let documents: u64 = sums.parts.iter().map(|p| p.0).sum();
    assert_eq!(documents, 25);
    let ranges = (0..16).map(|n| format!("{n:x}")).collect();
    let list: DigestAnswer = agent.json("/digest", &ask(ranges, 0)).await;
    assert_eq!((list.ranges, list.parts.len()), (16, 0));
    for (n, part) in sums.parts.iter().enumerate() {
        let within = list.items.iter().filter(|i| key(&i.id) >> 60 == n as u64);
        let mut sum = Sum::default();
        within.for_each(|i| sum.add(hash(&i.id, &i.checksum)));
        assert_eq!(Some(sum), part.sum());
    }
    let mut seen: Vec<_> =
        list.items.into_iter().map(|i| (i.id, i.version, i.checksum.len())).collect();
    seen.sort();
    let expected: Vec<_> = (0..25).map(|n| (format!("f{n:02}"), n + 1, 40)).collect();
    assert_eq!(seen, expected);
    for (index, ranges, split) in [
        ("holdfast-events", vec![String::new()], 1),
        ("x", vec![String::new()], 1),
        (FILES, vec![], 1),
        (FILES, vec!["X".into()], 1),
        (FILES, vec![String::new()], 3),
        (FILES, vec!["a".into(); 2_000], 2),
        (FILES, vec![String::new(); 2_048], 1),
        (FILES, vec!["a1".into(), "b".into(), "a".into()], 0),
        (FILES, vec!["0123456789abcdef".into(); 2], 0),
    ] {
        let request = DigestRequest { index: index.into(), ranges, split, bodies: false };
        let body = serde_json::to_vec(&request).unwrap();
        assert_eq!(agent.post("/digest", body).await.status, 400, "{index}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn range_sums_are_returned_in_request_order() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    // Both kinds of ids: an id in hex is its own key, any other id has a digest as its key.
    let id = |n: u64| {
        if n.is_multiple_of(2) { format!("{:040x}", u128::from(n) << 92) } else { format!("f{n}") }
    };
    let values =
        (0..200).map(|n| SessionValue { id: id(n), ..document("a", n + 1, 'a') }).collect();
    assert_eq!(agent.send(&agent.delta(values)).await.status, 200);
    let names: Vec<String> = ["f", "00", "3", "01", "8"].map(String::from).to_vec();
    let ranges: Vec<_> = names.iter().map(|n| KeyRange::parse(n).unwrap()).collect();
    let all: Vec<_> = server.documents(agent.id);
    assert_eq!(all.len(), 200);
    let expected: Vec<Sum> = ranges
        .iter()
        .flat_map(|range| range.split(1))
        .map(|part| {
            let mut sum = Sum::default();
            let within = all.iter().filter(|d| part.contains(key(&d.id)));
            within.for_each(|d| sum.add(hash(&d.id, &d.checksum)));
            sum
        })
        .collect();
    let ask =
        |split, bodies| DigestRequest { index: FILES.into(), ranges: names.clone(), split, bodies };
    let sums: DigestAnswer = agent.json("/digest", &ask(1, false)).await;
    let sums: Vec<_> = sums.parts.iter().map(|p| p.sum().unwrap()).collect();
    assert_eq!(sums, expected);
    let listed: DigestAnswer = agent.json("/digest", &ask(0, true)).await;
    assert_eq!(listed.ranges, 5);
    let places: Vec<_> = listed
        .items
        .iter()
        .map(|item| ranges.iter().position(|r| r.contains(key(&item.id))).unwrap())
        .collect();
    assert!(places.is_sorted(), "{places:?}");
    let within = |d: &&state::StoredDocument| ranges.iter().any(|r| r.contains(key(&d.id)));
    assert_eq!(listed.items.len(), all.iter().filter(within).count());
    for item in listed.items {
        let stored = all.iter().find(|d| d.id == item.id).unwrap();
        assert_eq!(item.body.as_bytes(), stored.body);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn range_listing_stops_before_a_range_that_does_not_fit() {
    let server = Server::start();
    let agent = server.enroll("web").await;
    // 6,000 documents whose keys begin with 1, as many with 2, one with 3.
    for (digit, documents) in [(1, 6_000), (2, 6_000), (3, 1)] {
        for first in (0..documents).step_by(1_000) {
            let id = |n: u64| format!("{digit:x}{n:039x}");
            let numbers = first..documents.min(first + 1_000);
            let values =
                numbers.map(|n| SessionValue { id: id(n), ..document("a", 1, 'a') }).collect();
            assert_eq!(agent.send(&agent.delta(values)).await.status, 200);
        }
    }
    let ask = |ranges: &[&str]| DigestRequest {
        index: FILES.into(),
        ranges: ranges.iter().map(ToString::to_string).collect(),
        split: 0,
        bodies: false,
    };
    for (ranges, answered, items) in [
        (&["3", "1", "2"][..], 2, 6_001),
        (&["2", "1", "3"], 1, 6_000),
        (&["1", "3", "0"], 3, 6_001),
    ] {
        let list: DigestAnswer = agent.json("/digest", &ask(ranges)).await;
        assert_eq!((list.ranges, list.items.len()), (answered, items), "{ranges:?}");
    }
    let body = serde_json::to_vec(&ask(&[""])).unwrap();
    let whole = agent.post("/digest", body).await;
    assert_eq!((whole.status, whole.error().as_str()), (413, "too_large"));
    server.stop().await;
}
