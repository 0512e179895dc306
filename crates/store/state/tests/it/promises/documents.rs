//! Queries for documents.

use model::{AgentId, Dataset, Kind, Write};
use sha1::{Digest, Sha1};

use super::{apply, open, path_of};
use records::{document, session};
use state::limits::{CONDITION_DEPTH_MAX, CONDITION_TESTS_MAX, PAGE_ITEMS_MAX};
use state::{
    Comparison, Condition, DocumentField as F, DocumentQuery, Reader, SortDirection, StateError,
    StateStore,
};

fn query() -> DocumentQuery {
    DocumentQuery::new(AgentId(1), Dataset::fim_files())
}

fn found(store: &StateStore, condition: Condition) -> Vec<String> {
    let page = store.documents(&Reader::server(), &DocumentQuery { condition, ..query() }).unwrap();
    assert_eq!(page.total, page.items.len() as u64);
    page.items.iter().map(path_of).collect()
}

#[test]
fn documents_are_sorted_by_path_and_paged_by_cursor() {
    let store = open();
    assert_eq!(
        store.documents(&Reader::server(), &query()).unwrap(),
        state::DocumentPage::default()
    );
    let names: Vec<String> = (0..25).map(|n| format!("/d/{n:02}")).collect();
    let writes = names.iter().rev().map(|p| document(p, 1, |_| ())).collect();
    apply(&store, session(1, 1, writes));
    apply(&store, session(2, 2, vec![document("/d/000", 1, |_| ())]));
    let mut seen = Vec::new();
    let mut q = DocumentQuery { limit: 10, ..query() };
    loop {
        let page = store.documents(&Reader::server(), &q).unwrap();
        assert_eq!(page.total, 25);
        seen.extend(page.items.iter().map(path_of));
        if page.next.is_none() {
            break;
        }
        q.after = page.next;
        // A document that arrives before the cursor does not shift later pages.
        apply(&store, session(1, seen.len() as u64, vec![document("/d/00", 2, |o| o.size = 1)]));
    }
    assert_eq!(seen, names);
    q.after = Some("nonsense".into());
    assert!(matches!(store.documents(&Reader::server(), &q), Err(StateError::Cursor)));
}

#[test]
fn documents_are_sorted_by_fields_and_paged_by_offset() {
    use SortDirection::{Ascending, Descending};
    let store = open();
    let writes = (0..6u64)
        .map(|n| {
            document(&format!("/{n}"), n + 1, |o| {
                o.size = n % 3;
                o.uid = 9 - n as u32;
                o.mtime_ns = n as i64 * 1_000_000;
                if n != 4 {
                    o.hashes.sha256 = Some([n as u8; 32]);
                }
            })
        })
        .collect();
    apply(&store, session(1, 1, writes));
    let by = |sort: &[(F, SortDirection)], offset| {
        let q = DocumentQuery { sort: sort.to_vec(), offset, limit: 4, ..query() };
        let page = store.documents(&Reader::server(), &q).unwrap();
        assert_eq!((page.total, page.next), (6, None));
        page.items.iter().map(path_of).collect::<String>().replace('/', "")
    };
    assert_eq!(by(&[(F::Size, Descending)], 0), "2514");
    assert_eq!(by(&[(F::Size, Descending)], 4), "03");
    assert_eq!(by(&[(F::Size, Ascending), (F::Path, Descending)], 0), "3041");
    assert_eq!(by(&[(F::Uid, Ascending)], 0), "5432");
    assert_eq!(by(&[(F::Mtime, Descending)], 0), "5432");
    assert_eq!(by(&[(F::Version, Descending)], 5), "0");
    assert_eq!(by(&[(F::Sha256, Descending)], 0), "5321");
    assert_eq!(by(&[(F::Path, Descending)], 0), "5432");
}

fn sample(store: &StateStore) {
    let writes = vec![
        document("/etc/passwd", 1, |o| {
            o.mode = 0o644;
            o.hashes.sha256 = Some([0xab; 32]);
            o.hashes.md5 = Some([0xcd; 16]);
        }),
        document("/etc/ssh/sshd_config", 2, |o| o.uid = 7),
        document("/etcetera", 3, |_| ()),
        document("/srv/100%_sure\\x", 4, |_| ()),
        document("/srv/ÄRGER", 5, |o| o.size = 1000),
        document("/usr", 6, |o| o.kind = Kind::Directory),
    ];
    apply(store, session(1, 1, writes));
}

#[test]
fn document_conditions_select_matching_documents() {
    let store = open();
    sample(&store);
    let one = |field, test, value: &str| found(&store, Condition::field(field, test, value));
    let number = |field, test, value: i64| found(&store, Condition::field(field, test, value));
    assert_eq!(one(F::Path, Comparison::Equal, "/usr"), ["/usr"]);
    assert_eq!(one(F::Path, Comparison::Prefix, "/etc/"), ["/etc/passwd", "/etc/ssh/sshd_config"]);
    assert_eq!(one(F::Path, Comparison::Prefix, "/etc").len(), 3);
    assert_eq!(one(F::Path, Comparison::Prefix, "").len(), 6);
    assert_eq!(one(F::Path, Comparison::Contains, "PASS"), ["/etc/passwd"]);
    assert_eq!(one(F::Path, Comparison::Contains, "%_s"), ["/srv/100%_sure\\x"]);
    assert_eq!(one(F::Path, Comparison::Contains, "e\\x"), ["/srv/100%_sure\\x"]);
    assert_eq!(one(F::Path, Comparison::Contains, "ÄR"), ["/srv/ÄRGER"]);
    assert_eq!(one(F::Directory, Comparison::Equal, "/etc"), ["/etc/passwd"]);
    assert_eq!(one(F::Name, Comparison::Prefix, "sshd"), ["/etc/ssh/sshd_config"]);
    assert_eq!(one(F::Kind, Comparison::Equal, Kind::Directory.name()), ["/usr"]);
    assert_eq!(one(F::Mode, Comparison::Equal, "0644"), ["/etc/passwd"]);
    assert_eq!(one(F::Sha256, Comparison::Equal, &"ab".repeat(32)), ["/etc/passwd"]);
    assert_eq!(one(F::Sha256, Comparison::Prefix, "abab"), ["/etc/passwd"]);
    assert_eq!(one(F::Md5, Comparison::Contains, "cdcd"), ["/etc/passwd"]);
    assert_eq!(one(F::Sha256, Comparison::NotEqual, &"ab".repeat(32)), [""; 0], "no other has one");
    assert_eq!(one(F::Sha256, Comparison::NotEqual, &"cd".repeat(32)), ["/etc/passwd"]);
    assert_eq!(number(F::Uid, Comparison::Equal, 7), ["/etc/ssh/sshd_config"]);
    assert_eq!(number(F::Size, Comparison::Greater, 999), ["/srv/ÄRGER"]);
    assert_eq!(number(F::Size, Comparison::Less, 10), ["/etcetera"]);
    let not = |c| Condition::Not(Box::new(c));
    let etc = || Condition::field(F::Path, Comparison::Prefix, "/etc");
    let sized = || Condition::field(F::Size, Comparison::Greater, 11);
    assert_eq!(found(&store, not(sized())), ["/etc/passwd", "/etcetera", "/usr"]);
    let both =
        Condition::All(vec![etc(), not(Condition::field(F::Path, Comparison::Contains, "ssh"))]);
    assert_eq!(found(&store, both), ["/etc/passwd", "/etcetera"]);
    let usr = Condition::field(F::Path, Comparison::Equal, "/usr");
    assert_eq!(found(&store, Condition::Any(vec![usr, sized()])).len(), 4);
    assert_eq!(found(&store, Condition::Any(vec![])), [""; 0]);
    assert_eq!(found(&store, not(Condition::Any(vec![]))).len(), 6);
}

#[test]
fn query_text_is_never_run_as_sql() {
    let store = open();
    sample(&store);
    for text in ["' OR 1=1 --", "\"; DROP TABLE document; --", "%", "?1"] {
        for test in [Comparison::Equal, Comparison::Contains, Comparison::Prefix] {
            let hits = found(&store, Condition::field(F::Path, test, text));
            assert!(hits.len() < 6, "{text:?} {test:?}");
        }
    }
    assert_eq!(found(&store, Condition::default()).len(), 6);
}

#[test]
fn document_query_above_a_limit_is_refused() {
    let store = open();
    sample(&store);
    let refused = |q: &DocumentQuery| {
        matches!(store.documents(&Reader::server(), q), Err(StateError::Query(_)))
    };
    let test = || Condition::field(F::Path, Comparison::Equal, "/a");
    assert!(refused(&DocumentQuery { limit: PAGE_ITEMS_MAX + 1, ..query() }));
    let many = Condition::Any((0..=CONDITION_TESTS_MAX).map(|_| test()).collect());
    assert!(refused(&DocumentQuery { condition: many, ..query() }));
    let enough = Condition::Any((0..CONDITION_TESTS_MAX).map(|_| test()).collect());
    assert!(!refused(&DocumentQuery { condition: enough, ..query() }));
    let deep = (0..=CONDITION_DEPTH_MAX).fold(test(), |c, _| Condition::Not(Box::new(c)));
    assert!(refused(&DocumentQuery { condition: deep, ..query() }));
    let long = Condition::field(F::Path, Comparison::Contains, "x".repeat(10_000).as_str());
    assert!(refused(&DocumentQuery { condition: long, ..query() }));
    let nul = Condition::field(F::Path, Comparison::Contains, "\0");
    assert!(refused(&DocumentQuery { condition: nul, ..query() }));
    let number = Condition::field(F::Path, Comparison::Equal, 1);
    assert!(refused(&DocumentQuery { condition: number, ..query() }));
}

#[test]
fn dataset_checksum_hashes_sorted_document_checksums() {
    let store = open();
    let empty = store.checksum(&Reader::server(), AgentId(1), &Dataset::fim_files()).unwrap();
    assert_eq!(empty, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    sample(&store);
    let page = store.documents(&Reader::server(), &query()).unwrap();
    let mut sums: Vec<_> = page.items.iter().map(|d| d.checksum.clone()).collect();
    sums.sort();
    let expected = hex::encode(Sha1::digest(sums.concat().as_bytes()));
    assert_eq!(
        store.checksum(&Reader::server(), AgentId(1), &Dataset::fim_files()).unwrap(),
        expected
    );
    let odd = |id: &str, sum: &str| Write::Upsert {
        dataset: Dataset::new("sca"),
        id: id.into(),
        version: 1,
        body: format!("{{\"checksum\":{{\"hash\":{{\"sha1\":\"{sum}\"}}}}}}").into_bytes(),
    };
    apply(&store, session(1, 2, vec![odd("1", "zz"), odd("2", "aa"), odd("3", "zz")]));
    let expected = hex::encode(Sha1::digest(b"aazzzz"));
    assert_eq!(
        store.checksum(&Reader::server(), AgentId(1), &Dataset::new("sca")).unwrap(),
        expected
    );
}

#[test]
fn id_ranges_visit_matching_documents_and_other_ids_once() {
    let store = open();
    let packages = Dataset::new("inventory-packages");
    let named = |id: String, dataset: &Dataset| Write::Upsert {
        dataset: dataset.clone(),
        id,
        version: 7,
        body: br#"{"checksum":{"hash":{"sha1":"c"}}}"#.to_vec(),
    };
    let hex = |first: u64| format!("{first:016x}{:024x}", 0);
    let firsts = [0, 1, 0x7fff, 0x8000 << 48, u64::MAX - 1, u64::MAX];
    let mut writes: Vec<Write> = firsts.iter().map(|f| named(hex(*f), &packages)).collect();
    writes.push(named("bash".into(), &packages));
    writes.push(named(hex(5), &Dataset::new("inventory-ports")));
    apply(&store, session(1, 1, writes));
    apply(&store, session(2, 2, vec![named(hex(5), &packages)]));
    let of = |ranges: &[(u64, u64)]| {
        let mut found = Vec::new();
        let mut visit = |id: &str, version: u64, checksum: &str| {
            assert_eq!((version, checksum), (7, "c"));
            found.push(id.to_owned());
            true
        };
        store.each_in_ranges(&Reader::server(), AgentId(1), &packages, ranges, &mut visit).unwrap();
        found.sort();
        found
    };
    let expected = |ranges: &[(u64, u64)]| {
        let within =
            |key: &&u64| ranges.iter().any(|(first, last)| (*first..=*last).contains(*key));
        let within = firsts.iter().filter(within).map(|key| hex(*key));
        let mut ids: Vec<_> = within.chain(["bash".to_owned()]).collect();
        ids.sort();
        ids
    };
    let bounds = [0, 1, 2, 0x7fff, 0x8000, 0x8000 << 48, u64::MAX - 1, u64::MAX];
    for first in bounds {
        for last in bounds.into_iter().filter(|l| *l >= first) {
            let one = [(first, last)];
            assert_eq!(of(&one), expected(&one), "{first:x} to {last:x}");
            let next = bounds.into_iter().filter(|next| *next > last);
            for two in next.map(|next| [(next, u64::MAX), (first, last)]) {
                assert_eq!(of(&two), expected(&two), "{two:x?}");
            }
        }
    }
    let mut visits = 0;
    let mut once = |_: &str, _: u64, _: &str| {
        visits += 1;
        false
    };
    for ranges in [&[(0, u64::MAX)][..], &[(0, 7), (8, 9)]] {
        store.each_in_ranges(&Reader::server(), AgentId(1), &packages, ranges, &mut once).unwrap();
    }
    assert_eq!(visits, 2);
    let (nobody, all) = (Dataset::new("inventory-none"), [(0, u64::MAX)]);
    store
        .each_in_ranges(&Reader::server(), AgentId(9), &nobody, &all, &mut |_, _, _| panic!())
        .unwrap();
}

#[test]
fn document_counts_higher_versions_with_another_checksum() {
    let store = open();
    let size = |size: u64| move |o: &mut model::Observation| o.size = size;
    let of = |version, s| document("/a", version, size(s));
    let changes = |condition| {
        let page = store.documents(&Reader::server(), &DocumentQuery { condition, ..query() });
        page.unwrap().items.iter().map(|item| item.changes).collect::<Vec<_>>()
    };
    let mut session_us = 0;
    let mut after = |writes: Vec<Write>| {
        session_us += 1;
        apply(&store, session(1, session_us, writes));
        changes(Condition::default())
    };
    assert_eq!(after(vec![of(3, 1)]), [0]);
    assert_eq!(after(vec![of(3, 2)]), [0], "a repair replaces the same version");
    assert_eq!(after(vec![of(4, 3), of(5, 1)]), [2]);
    assert_eq!(after(vec![of(6, 1)]), [2], "the same state");
    assert_eq!(after(vec![of(5, 9)]), [2], "a lower version is skipped");
    assert_eq!(changes(Condition::field(F::Changes, Comparison::Greater, 1)), [2]);
    assert_eq!(changes(Condition::field(F::Changes, Comparison::Greater, 2)), [0_u64; 0]);
    let clean = Write::Clean { dataset: Dataset::fim_files() };
    assert_eq!(after(vec![clean, of(7, 5)]), [0]);
    assert_eq!(after(vec![of(8, 6)]), [1]);
    assert_eq!(after(vec![records::removal("/a", 9), of(10, 7)]), [0]);
}
