//! Types and matchers that are refused, and the meaning of regular expressions.

use promql_syntax::{Regexp, limits, parse, parse_duration, quote, show_number};

#[test]
fn wrong_types_are_refused_with_their_place() {
    for (text, expected) in [
        (
            "sum(1)",
            "1:5: parse error: expected type instant vector in aggregation expression, got scalar",
        ),
        ("1 == 1", "1:3: parse error: comparisons between scalars must use BOOL modifier"),
        (
            "a +\n bool b",
            "1:3: parse error: bool modifier can only be used on comparison operators",
        ),
        (
            "1 and b",
            "1:1: parse error: set operator \"and\" not allowed in binary scalar expression",
        ),
        ("a and on(x) group_left b", "1:1: parse error: no grouping allowed for \"and\" operation"),
        (
            "rate(a)",
            "1:6: parse error: expected type range vector in call to function \"rate\", got instant vector",
        ),
        ("clamp(a)", "1:1: parse error: expected 3 argument(s) in call to \"clamp\", got 1"),
        (
            "round(a, 1, 2)",
            "1:1: parse error: expected at most 2 argument(s) in call to \"round\", got 3",
        ),
        (
            "{a=\"\"}",
            "1:1: parse error: vector selector must contain at least one non-empty matcher",
        ),
        (
            "a{__name__=\"b\"}",
            "1:1: parse error: metric name must not be set twice: \"a\" or \"b\"",
        ),
        (
            "-\"s\"",
            "1:1: parse error: unary expression only allowed on expressions of type scalar or instant vector, got \"string\"",
        ),
    ] {
        assert_eq!(parse(text).unwrap_err().to_string(), expected, "{text}");
    }
}

#[test]
fn selector_has_a_matcher_that_is_not_empty() {
    assert!(parse("{a!=\"\"}").is_ok());
    assert!(parse("sum{a=~\"x\"}").is_ok());
    assert!(parse("{a=~\".*\"}").is_err());
}

#[test]
fn expression_has_the_meaning_that_it_has_in_go() {
    for (text, yes, no) in [
        ("a|b", "b", "ab"),
        ("a.c", "a\nc", "xabc"),
        (r"\d+", "12", "١٢"),
        (r"[\w&&x]+", "a&x", "é"),
        (r"[^\s]", "é", " "),
        (r"\Qa.b\E+\Q[\", "a.bb[\\", "axb"),
        ("a{,2}", "a{,2}", "aa"),
        ("a{2}", "aa", "a"),
        ("[[:alpha:]-]+", "a-", "1"),
        ("[]a]", "]", "b"),
        ("[a[]", "[", "b"),
        (r"\012", "\n", "12"),
        ("(?i)AB", "ab", "b"),
        (r"\x{e9}\pL", "éé", "e"),
        ("", "", "a"),
    ] {
        let regexp = Regexp::new(text).unwrap();
        assert!(regexp.is_match(yes), "{text} matches {yes}");
        assert!(!regexp.is_match(no), "{text} does not match {no}");
    }
    for bad in ["(", "a)|(b", "[a", "\\", "*", r"\y", "x{2000}", "(?x)a b"] {
        assert!(Regexp::new(bad).is_err(), "{bad}");
    }
    // Each brace is looked at once.
    assert!(Regexp::new(&"{".repeat(10_000)).is_ok());
}

#[test]
fn regular_expressions_of_a_text_are_limited() {
    let most = limits::REGEXPS_MAX;
    let text = |count: usize| format!("{{{}}}", vec!["a=~\"x\""; count].join(","));
    assert!(parse(&text(most)).is_ok());
    let error = parse(&text(most + 1)).unwrap_err();
    assert_eq!(error.message, format!("the expression has more than {most} regular expressions"));
}

#[test]
fn duration_has_units_in_order() {
    for (text, milliseconds) in [("5m", 300_000), ("1h30m", 5_400_000), ("4d500ms", 345_600_500)] {
        assert_eq!(parse_duration(text), Ok(milliseconds));
        assert_eq!(parse(text).unwrap().to_string(), text);
    }
    assert_eq!(parse("8d").unwrap().to_string(), "8d", "no whole weeks");
    for (text, error) in [
        ("5m1h", "not a valid duration string: \"5m1h\""),
        ("5hs", "unknown unit \"hs\" in duration \"5hs\""),
        ("300y", "duration out of range"),
    ] {
        assert_eq!(parse_duration(text).unwrap_err(), error);
    }
}

#[test]
fn numbers_and_strings_are_written_as_go_writes_them() {
    assert_eq!(show_number(1e21), "1000000000000000000000");
    assert_eq!(show_number(-0.0), "-0");
    assert_eq!(quote(b"a\n\"\xff\x00\x7f"), r#""a\n\"\xff\x00\x7f""#);
}
