//! Canonical names, and lists of names in pages.

use std::path::Path;

use crate::common::{Samples, contents, open, options};
use env::files::SimDisk;
use series::{
    Ack, Batch, LABELS_MAX_DEFAULT, NAME_BYTES_MAX, NameError, RowLookup, RowName, Selector,
    Series, Store, StoreOptions, TAGS_MAX, Test, Wal,
};

fn canonical(raw: &str) -> String {
    RowName::parse(raw.as_bytes()).unwrap().text()
}

#[test]
fn canonical_name_sorts_tags_and_collapses_spaces() {
    assert_eq!(canonical("cpu.user|cpu.sys  host=b   dc=1 "), "cpu.user|cpu.sys dc=1 host=b");
    assert_eq!(canonical(r"a\ b|c x=p\ q\=r"), r"a\ b|c x=p\ q\=r");
}

#[test]
fn control_characters_are_escaped_reversibly() {
    let value = "a\nb\r\tc\u{0}\u{1b}\u{7f}\u{85}\u{9f}\\n\\x1fé";
    let name = RowName::new(vec!["m".into()], vec![("t".into(), value.into())]).unwrap();
    let text = name.text();
    assert_eq!(text, r"m t=a\nb\r\tc\x00\x1b\x7f\x85\x9f\\n\\x1fé");
    assert_eq!(RowName::parse(text.as_bytes()).unwrap(), name);
    // Only control characters have such an escape.
    for (raw, read) in
        [(r"m t=\x41", "x41"), (r"m t=\x+1", "x+1"), (r"m t=\xé", "xé"), (r"m t=\q", "q")]
    {
        assert_eq!(RowName::parse(raw.as_bytes()).unwrap().tags[0].1, read, "{raw}");
    }
}

#[test]
fn invalid_name_is_refused_with_its_text() {
    for raw in ["", "m tag", "m =x", "m a=b=c", "m a=1 a=2", "m|m a=1", "m|!e a=1", "m\u{1} a=1"] {
        assert!(RowName::parse(raw.as_bytes()).is_err(), "{raw:?}");
    }
    for (raw, why) in [
        (" a=1", "no metric before the tags"),
        ("a=1 b=2", "no metric before the tags"),
        ("m a=1 b=", "a tag without a value"),
    ] {
        let told = RowName::parse(raw.as_bytes()).unwrap_err().to_string();
        assert!(told.contains(why) && told.contains(raw), "{told}");
    }
    let long = format!("m a={}", "x".repeat(NAME_BYTES_MAX));
    assert!(matches!(RowName::parse(long.as_bytes()), Err(NameError::TooLong { .. })));
    let many: Vec<String> = (0..=TAGS_MAX).map(|i| format!(" t{i}=v")).collect();
    assert!(RowName::parse(format!("m{}", many.concat()).as_bytes()).is_err());
    assert!(RowName::parse(b"\xff a=1").is_err());
}

/// Returns a name with this number of tags, in another order than the canonical one.
fn tagged(metric: &str, count: usize) -> String {
    let tags = (0..count).rev().map(|i| format!(" t{i:03}=v"));
    metric.to_owned() + &tags.collect::<String>()
}

#[test]
fn labels_max_limits_the_tags_of_new_names_alone() {
    let disk = SimDisk::new(1);
    let open = |labels_max| {
        let options = StoreOptions { labels_max, ..options(&disk, Wal::Always) };
        Store::open(Path::new("/series"), options).unwrap().0
    };
    let write = |store: &Store, time_ns| {
        let row = store.row(tagged("wide", TAGS_MAX).as_bytes()).unwrap();
        let mut batch = Batch::new();
        batch.push(row, time_ns, &[1.0]).unwrap();
        store.write(batch, Ack::Persisted).unwrap();
    };
    let store = open(TAGS_MAX);
    write(&store, 1);
    // The first restart reads the name from the log, the second one from the catalogue.
    drop(store);
    let store = open(LABELS_MAX_DEFAULT);
    write(&store, 2);
    store.seal().unwrap();
    store.close().unwrap();
    let store = open(LABELS_MAX_DEFAULT);
    write(&store, 3);
    let found = contents(&store);
    assert_eq!(found.values().map(Samples::len).collect::<Vec<_>>(), [3]);

    store.row(tagged("m", LABELS_MAX_DEFAULT).as_bytes()).unwrap();
    let (value, max) = (LABELS_MAX_DEFAULT + 1, LABELS_MAX_DEFAULT);
    let refused = NameError::TooManyTags { value, max };
    let name = tagged("n", value);
    assert_eq!(store.row(name.as_bytes()).unwrap_err(), refused);
    let names = ["o a=1", &*name].map(|raw| match store.look_up(raw.as_bytes()).unwrap() {
        RowLookup::New(new) => *new,
        RowLookup::Known(row) => panic!("{row:?}"),
    });
    assert_eq!(store.register_row(&names[1]).unwrap_err(), refused);
    assert_eq!(store.register(&names.each_ref()).unwrap_err(), refused);
    assert_eq!(store.find(&Selector::metric("o")), [], "all or none");
}

/// Returns all names in pages of at most this size, and the number of pages.
fn listed(store: &Store, selectors: &[Selector], bytes_max: usize) -> (Vec<String>, usize) {
    let (mut names, mut pages) = (Vec::<String>::new(), 0);
    loop {
        let after = names.last().cloned().unwrap_or_default();
        let page = store.names_after(selectors, &after, bytes_max);
        if page.is_empty() {
            return (names, pages);
        }
        names.extend(page);
        pages += 1;
    }
}

#[test]
fn names_are_listed_once_and_in_order_whatever_the_page() {
    let (store, _) = open(&SimDisk::new(1), Wal::Always);
    for i in (0..300).rev() {
        store.row(format!(r"cpu|cpu.sys dc={} host=h{i}\ \|x", i % 3).as_bytes()).unwrap();
        // The same series in another row.
        store.row(format!(r"mem|cpu dc={} host=h{i}\ \|x", i % 3).as_bytes()).unwrap();
    }
    store.row(br"a\ b x=1").unwrap();
    store.row(b"!log x=1").unwrap();
    let tagged = |dc: &str| Selector::metric("cpu").with("dc", dc);
    let without = Selector { metric: Test::Any, tags: vec![("dc".into(), Test::is(""))] };
    for selectors in [
        vec![Selector::default()],
        vec![tagged("1")],
        vec![tagged("1"), tagged("2"), tagged("1")],
        vec![without],
        vec![],
    ] {
        let found = selectors.iter().flat_map(|selector| store.find(selector));
        let mut expected: Vec<String> = found.map(|series: Series| series.name()).collect();
        expected.sort();
        expected.dedup();
        for bytes_max in [1, 1000, 10_000, 1 << 20] {
            let (names, pages) = listed(&store, &selectors, bytes_max);
            assert_eq!(names, expected, "{selectors:?} in {bytes_max} bytes");
            assert!(bytes_max > 1 || pages == names.len(), "a page has at least one name");
        }
    }
}
