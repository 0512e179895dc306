//! Types and matchers that are refused, and the meaning of regular expressions.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use promql_syntax::{Regexp, parse, parse_selector};

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
    assert_eq!(parse_selector("{a!=\"\"}").unwrap().matchers.len(), 1);
    assert_eq!(parse_selector("sum{a=~\"x\"}").unwrap().name.as_deref(), Some("sum"));
    assert!(parse_selector("{a=~\".*\"}").is_err());
    assert!(parse_selector("a + b").is_err());
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
    for bad in ["(", "a)|(b", "[a", r"\", "*", r"\y", "a{1001}b{"] {
        let result = Regexp::new(bad);
        assert_eq!(result.is_err(), bad != "a{1001}b{", "{bad}: {result:?}");
    }
}
