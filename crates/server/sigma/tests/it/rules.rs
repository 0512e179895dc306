//! Valid and invalid rules, each invalid one with the text of its error.

use std::fmt::Write as _;

use proptest::prelude::*;
use sigma::Rule;

const FINE: &str = "title: A file changed
id: 1C6DDC5F-33ef-4b69-8e41-906ce0c34f7b
status: stable
level: high
tags:
  - attack.persistence
logsource:
  product: linux
detection:
  file:
    file.path|startswith:
      - /etc/
    file.size|gt: 10
    file.owner: null
  words:
    - passwd
    - 17
  either:
    - file.name: a
    - file.name|re|i: '^b'
  condition: file and not (words or 1 of either*)
";

#[test]
fn valid_rules_of_every_form_parse() {
    let rule = Rule::read(FINE.as_bytes()).unwrap();
    assert_eq!(rule.id, "1c6ddc5f-33ef-4b69-8e41-906ce0c34f7b");
    assert_eq!(
        (rule.status, rule.level, rule.title.as_str()),
        ("stable", "high", "A file changed")
    );
    assert_eq!(rule.whole["detection"]["file"]["file.size|gt"], 10);
    let plain = FINE.replace("status: stable\nlevel: high\n", "");
    let plain = Rule::read(plain.as_bytes()).unwrap();
    assert_eq!((plain.status, plain.level), ("experimental", "medium"));
    let old = Rule::read(FINE.replace("stable", "deprecated").as_bytes()).unwrap();
    assert!(!old.is_enabled() && rule.is_enabled());
}

#[test]
fn invalid_rule_error_names_the_field() {
    for (from, to, part) in [
        ("title: A file changed\n", "", "title is missing"),
        ("A file changed", "[a]", "title: a text"),
        ("A file changed", "\"\"", "title: 1 to 256"),
        ("id: 1C6DDC5F-33ef-4b69-8e41-906ce0c34f7b\n", "", "id is missing"),
        ("1C6DDC5F-", "", "id: a UUID"),
        ("status: stable", "status: new", "status: one of stable"),
        ("level: high", "level: 7", "level: a text"),
        ("level: high", "level: huge", "level: one of informational"),
        ("  - attack.persistence", "  - [a]", "tags: a list of texts"),
        ("logsource:\n  product: linux\n", "", "logsource is missing"),
        ("  product: linux", "  product: \"\"", "logsource: at least one"),
        ("  product: linux", "  product: [linux]", "logsource.product: a text"),
        (
            "  condition: file and not (words or 1 of either*)\n",
            "",
            "detection.condition is missing",
        ),
        ("file and not", "files and not", "names \"files\""),
        ("1 of either*", "1 of other*", "names \"other*\""),
        ("|startswith", "|beginswith", "there is no modifier \"beginswith\""),
        ("    file.size|gt: 10", "    file.size: {a: b}", "detection.file.file.size: a value"),
        ("    file.size|gt: 10", "    file.size: []", "detection.file.file.size: a value"),
        ("  words:\n    - passwd\n    - 17\n", "  words: {}\n", "detection.words: no field"),
        ("  words:\n    - passwd\n    - 17\n", "  words: 3\n", "detection.words: fields"),
        ("  words:\n", "  them:\n", "detection.them: a selection is named"),
        ("  words:\n", "  timeframe: 5m\n  words:\n", "detection.timeframe: not supported"),
        ("level: high", "level: high\nlevel: low", "not one YAML document"),
        ("level: high", "level: *nobody", "not one YAML document"),
        ("level: high", "\tlevel: high", "not one YAML document"),
    ] {
        assert!(FINE.contains(from), "{from}");
        let error = Rule::read(FINE.replacen(from, to, 1).as_bytes()).unwrap_err().to_string();
        assert!(error.contains(part), "{from:?} -> {to:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn rule_must_be_a_yaml_map() {
    for (text, part) in [
        ("", "empty"),
        (" \n", "empty"),
        ("- a\n", "not a rule"),
        ("just text", "not a rule"),
        ("a: 1\n---\nb: 2\n", "not one YAML document"),
    ] {
        let error = Rule::read(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(part), "{text:?}: {error}");
    }
    let error = Rule::read(b"title: \xff").unwrap_err().to_string();
    assert!(error.contains("UTF-8"), "{error}");
    let error = Rule::read(&vec![b' '; 70_000]).unwrap_err().to_string();
    assert!(error.contains("too many"), "{error}");
}

#[test]
fn alias_bomb_is_rejected_before_expansion() {
    let mut text = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for n in 1..12 {
        let refs = vec![format!("*a{}", n - 1); 10].join(",");
        writeln!(text, "a{n}: &a{n} [{refs}]").unwrap();
    }
    let error = Rule::read(text.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("not one YAML document"), "{error}");
    let deep = format!("a: {}{}", "[".repeat(30_000), "]".repeat(30_000));
    assert!(Rule::read(deep.as_bytes()).is_err());
}

proptest! {
    #[test]
    fn random_rule_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Rule::read(&bytes);
    }

    #[test]
    fn mutated_rule_never_panics(at in 0..FINE.len(), with in "[ -~\\n]{0,6}") {
        let mut text = FINE.to_owned();
        text.insert_str(at, &with);
        let _ = Rule::read(text.as_bytes());
    }
}
