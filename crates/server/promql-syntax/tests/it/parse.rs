//! Parses expressions, prints them, and parses what was printed.

use promql_syntax::{ExprKind, ParseError, TextSpan, limits, parse, pretty, to_json};
use proptest::prelude::*;
use serde_json::{Value, json};

fn error(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

/// Returns the tree with the matchers of each selector in order: printing sorts them.
fn tree(text: &str) -> Result<Value, ParseError> {
    fn sort(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::Array(matchers)) = fields.get_mut("matchers") {
                    matchers.sort_by_key(ToString::to_string);
                    // A name that needs quotes is printed within the braces.
                    fields.remove("name");
                }
                fields.values_mut().for_each(sort);
            }
            Value::Array(items) => items.iter_mut().for_each(sort),
            _ => {}
        }
    }
    let mut tree = to_json(&parse(text)?);
    sort(&mut tree);
    Ok(tree)
}

#[test]
fn expression_is_printed_in_the_usual_form() {
    for (text, printed) in [
        ("a+b*c^-d", "a + b * c ^ -d"),
        ("-a^2", "-a ^ 2"),
        ("- 5", "-5"),
        ("SUM(a)BY(x,y)", "sum by (x, y) (a)"),
        ("topk without() (3,a)", "topk without () (3, a)"),
        ("a/on(x)group_left(y,)b", "a / on (x) group_left (y) b"),
        ("a > bool 1", "a > bool 1"),
        ("a{x='1',b!~`c+`}[90s] offset -1m", "a{b!~\"c+\",x=\"1\"}[1m30s] offset -1m"),
        ("rate(a[5m:])[1h:30s] @ end()", "rate(a[5m:])[1h:30s] @ end()"),
        ("a @ 1.5 offset 2w", "a @ 1.500 offset 2w"),
        ("a offset 5m + b", "a offset 5m + b"),
        ("a[step()*2 - (1m)]", "a[step() * 2 - (1m)]"),
        ("a offset -max_of(1m, range())", "a offset -max_of(1m, range())"),
        ("a[5m] anchored", "a[5m] anchored"),
        ("cpu.user{host.name=\"a b\"}", "{\"cpu.user\",\"host.name\"=\"a b\"}"),
        ("sum by (\"a b\", größe) (x)", "sum by (\"a b\", \"größe\") (x)"),
        ("1_000 + 0x1F + Inf", "1000 + 31 + +Inf"),
        ("fill + by + start # comment", "fill + by + start"),
    ] {
        let expr = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(expr.to_string(), printed, "{text}");
        assert_eq!(tree(printed), tree(text), "{text}");
    }
}

#[test]
fn tree_has_the_form_of_parse_query() {
    let expr = parse("sum by (job) (rate(m{a=~\"x|y\"}[5m] offset 1m)) / 2").unwrap();
    let selector = json!({
        "type": "matrixSelector", "name": "m", "range": 300_000, "rangeExpr": null,
        "offset": 60_000, "offsetExpr": null, "timestamp": null, "startOrEnd": null,
        "anchored": false, "smoothed": false,
        "matchers": [
            {"name": "a", "value": "x|y", "type": "=~"},
            {"name": "__name__", "value": "m", "type": "="},
        ],
    });
    let rate = json!({
        "type": "call", "args": [selector],
        "func": {"name": "rate", "argTypes": ["matrix"], "variadic": 0, "returnType": "vector"},
    });
    let sum = json!({
        "type": "aggregation", "op": "sum", "param": null, "grouping": ["job"], "without": false,
        "expr": rate,
    });
    let expected = json!({
        "type": "binaryExpr", "op": "/", "lhs": sum, "bool": false, "matching": null,
        "rhs": {"type": "numberLiteral", "val": "2"},
    });
    assert_eq!(to_json(&expr), expected);
}

#[test]
fn every_node_knows_its_place() {
    let text = "1 + sum(a{x=\"1\"}[5m] offset 1m)";
    let wrong = parse(text).unwrap_err();
    assert_eq!(wrong.span, TextSpan { start: 8, end: 30 });
    let expr = parse("sum(a offset 1m) by (x) + 2").unwrap();
    let ExprKind::Binary(binary) = &expr.kind else { panic!("{expr}") };
    assert_eq!(binary.left.span, TextSpan { start: 0, end: 23 });
    assert_eq!(binary.right.span, TextSpan { start: 26, end: 27 });
}

#[test]
fn errors_have_the_texts_of_prometheus() {
    for (text, expected) in [
        ("", "unknown position: parse error: no expression found in input"),
        ("a +", "1:4: parse error: unexpected end of input"),
        ("a\n+ )", "2:3: parse error: unexpected right parenthesis ')'"),
        ("(a", "1:3: parse error: unclosed left parenthesis"),
        (
            "a{b}",
            "1:4: parse error: unexpected \"}\" in label matching, expected label matching operator",
        ),
        (
            "a{b=c}",
            "1:5: parse error: unexpected identifier \"c\" in label matching, expected string",
        ),
        (
            "a{b='c' d='e'}",
            "1:9: parse error: unexpected identifier \"d\" in label matching, expected \",\" or \"}\"",
        ),
        (
            "sum by a (b)",
            "1:8: parse error: unexpected identifier \"a\" in grouping opts, expected \"(\"",
        ),
        ("foo(a,)", "1:1: parse error: unknown function with name \"foo\""),
        ("abs(a,)", "1:6: parse error: trailing commas not allowed in function call args"),
        ("a[5m", "1:5: parse error: unclosed left bracket"),
        ("a[0]", "1:3: parse error: duration must be greater than 0"),
        ("(a + b)[5m]", "1:8: parse error: ranges only allowed for vector selectors"),
        ("a offset 1m offset 2m", "1:1: parse error: offset may not be set multiple times"),
        ("a @ 1 @ 2", "1:1: parse error: @ <timestamp> may not be set multiple times"),
        ("a @ Inf", "1:1: parse error: timestamp out of bounds for @ modifier: +Inf"),
        ("a[1m / 0]", "1:6: parse error: division by zero"),
        ("a{b=~'('}", "1:3: parse error: error parsing regexp: unclosed group: `(`"),
        ("sum()", "1:1: parse error: no arguments for aggregate expression provided"),
        ("info(a)", "1:1: parse error: unknown function with name \"info\""),
        (
            "a + fill(0) b",
            "1:5: parse error: binop fill modifiers are experimental and not enabled",
        ),
        ("a ! b", "1:3: parse error: unexpected character after '!': ' '"),
        ("\"\\q\"", "1:1: parse error: error unquoting string \"\\\"\\\\q\\\"\": invalid syntax"),
    ] {
        assert_eq!(error(text), expected, "{text}");
    }
}

#[test]
fn deep_and_long_texts_are_refused() {
    with_stack(deep_and_long_texts);
}

fn deep_and_long_texts() {
    let most = usize::from(limits::DEPTH_MAX);
    assert!(parse(&vec!["a"; most].join("+")).is_ok());
    for deep in [
        vec!["a"; most + 1].join("+"),
        "(".repeat(100_000) + "a",
        "-".repeat(60_000) + "a",
        format!("a[{}1m]", "(".repeat(60_000)),
        format!("a[{}]", vec!["1m"; 10_000].join("+")),
        format!("a{}", "[1m:]".repeat(10_000)),
    ] {
        let error = error(&deep);
        let known = error.contains("more than 256 levels") || error.contains("bytes, at most");
        assert!(known, "{error}");
    }
    let long = format!("a{{b=\"{}\"}}", "x".repeat(limits::TEXT_BYTES_MAX));
    assert!(error(&long).contains("at most 65536 are read"));
}

/// Runs a test on a thread with the stack that is asked for.
fn with_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(limits::STACK_BYTES);
    thread.spawn(test).unwrap().join().unwrap();
}

/// Returns an expression of repeated parts, with the parentheses that they open closed.
fn nested(part: &str, depth: usize) -> String {
    let close = if part.ends_with('(') { ")" } else { "" };
    format!("{}a{}", part.repeat(depth), close.repeat(depth))
}

#[test]
fn deepest_trees_are_read_and_written_within_the_stack() {
    with_stack(|| {
        for part in ["(", "abs(", "sum(", "-", "a+", "a^", "a+("] {
            let is_refused = |depth: &usize| parse(&nested(part, *depth)).is_err();
            let deepest = usize::from(limits::DEPTH_MAX);
            let depth = (1..=deepest).rev().find(|depth| !is_refused(depth)).unwrap();
            assert!(depth > 80, "{part} {depth}");
            let expr = parse(&nested(part, depth)).unwrap();
            assert!(!pretty(&expr).is_empty() && to_json(&expr).is_object());
        }
        assert!(parse(&format!("{}a[{}", "(".repeat(250), "(".repeat(200))).is_err());
    });
}

#[test]
fn long_expression_is_split_over_lines() {
    let name = "a".repeat(60);
    let text = format!("sum by (x) (rate({name}[5m])) / on (x) topk(3, {name})");
    let split = format!("  sum by (x) (rate({name}[5m]))\n/ on (x)\n  topk(3, {name})");
    assert_eq!(pretty(&parse(&text).unwrap()), split);
    let call = format!("abs(({name} + {name}))");
    let split = format!("abs(\n  (\n      {name}\n    +\n      {name}\n  )\n)");
    assert_eq!(pretty(&parse(&call).unwrap()), split);
}

/// Parts of expressions, so that many of their sequences are expressions.
const PARTS: &[&str] = &[
    "a",
    "b{x=\"1\"}",
    "{y!=\"\"}",
    "1",
    "5m",
    "'s'",
    "(",
    ")",
    "+",
    "-",
    "*",
    "^",
    "/",
    "==",
    "bool",
    "and",
    "or",
    "unless",
    "on (x)",
    "ignoring ()",
    "group_left",
    "sum",
    "by (x)",
    "topk(2, ",
    "rate(",
    "[5m]",
    "[1h:]",
    "[step() * 2]",
    "offset 1m",
    "offset -(1m)",
    "@ 3",
    "@ start()",
    "max(",
    "anchored",
    "time()",
    ",",
    "max_of(1m, 2)",
    "[",
    "]",
    ":",
    "{",
    "}",
    "\u{e9}.\u{e9}",
    "#",
    "\n",
];

proptest! {
    #[test]
    fn printed_expression_has_the_same_tree(
        parts in prop::collection::vec(prop::sample::select(PARTS), 1..12),
    ) {
        let text = parts.join(" ");
        if let Ok(expr) = parse(&text) {
            prop_assert_eq!(tree(&expr.to_string()), tree(&text), "{}", text);
            prop_assert_eq!(tree(&pretty(&expr)), tree(&text), "{}", text);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,60}") {
        if let Err(error) = parse(&text) {
            prop_assert!(error.span.start <= text.len() && !error.message.is_empty());
        }
    }
}
