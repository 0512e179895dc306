//! Canonical names, and lists of names in pages.

use crate::common::open;
use env::files::SimDisk;
use series::{NAME_BYTES_MAX, NameError, RowName, Selector, Series, Store, TAGS_MAX, Test, Wal};

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
