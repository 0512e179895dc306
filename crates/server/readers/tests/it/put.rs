//! Data points of `OpenTSDB` in JSON.

use crate::common::{after, store};
use readers::{RowCollector, RowRefusal, put};
use series::Selector;

fn points(text: &str) -> (Vec<String>, Vec<RowRefusal>) {
    after(|collector| put::read(text.as_bytes(), collector).unwrap())
}

#[test]
fn one_data_point_or_an_array_is_stored() {
    let one = r#" {"metric": "sys.cpu", "timestamp": 7, "value": 18, "tags": {"host": "a"}} "#;
    assert_eq!(points(one), (vec!["sys.cpu host=a 7000000000 18".into()], Vec::new()));
    let (found, refusals) = points(
        r#"[{"metric": "m", "timestamp": 1427040405123, "value": "1.5", "tags": {"b": 80, "a": true}},
            {"value": -2e3, "timestamp": "8", "metric": "m", "other": [{}]}]"#,
    );
    assert_eq!(found, ["m 8000000000 -2000", "m a=true b=80 1427040405123000000 1.5"]);
    assert_eq!(refusals, []);
}

#[test]
fn json_texts_are_escaped_in_names() {
    let (found, refusals) =
        points(r#"{"metric": "a|b c", "timestamp": 7, "value": 1, "tags": {"x=y": "\u0041\n\\"}}"#);
    assert_eq!((found, refusals), (vec![r"a\|b\ c x\=y=A\n\\ 7000000000 1".into()], Vec::new()));
}

#[test]
fn bad_data_point_is_refused_alone_with_its_json() {
    let bad = [
        ("7", "not a data point"),
        (r#"{"timestamp": 7, "value": 1}"#, "no metric"),
        (r#"{"metric": "", "timestamp": 7, "value": 1}"#, "no metric"),
        (r#"{"metric": "m", "value": 1}"#, "no timestamp"),
        (r#"{"metric": "m", "timestamp": 7.5, "value": 1}"#, "no timestamp"),
        (r#"{"metric": "m", "timestamp": 7}"#, "no value"),
        (r#"{"metric": "m", "timestamp": 7, "value": null}"#, "no value"),
        (r#"{"metric": "m", "timestamp": 7, "value": "much"}"#, "no value"),
        (r#"{"metric": "m", "timestamp": 7, "value": 1e400}"#, "no value"),
        (r#"{"metric": "m", "timestamp": 7, "value": 1, "tags": {"a": ""}}"#, "without a value"),
        (r#"{"metric": "m", "timestamp": 7, "value": 1, "tags": {"a": []}}"#, "tag a"),
        (r#"{"metric": "m", "timestamp": 7, "value": 1, "tags": ["a"]}"#, "not a data point"),
        (r#"{"metric": "!m", "timestamp": 7, "value": 1}"#, "events"),
        (r#"{"metric": "m", "timestamp": 9223372036854775806, "value": 1}"#, "ahead"),
    ];
    let good = r#"{"metric": "ok", "timestamp": 7, "value": 1}"#;
    for (point, reason) in bad {
        let (found, refusals) = points(&format!("[{point}, {good}]"));
        assert_eq!(found, ["ok 7000000000 1"], "{point}");
        assert_eq!((refusals[0].line, &*refusals[0].text), (1, point));
        assert!(refusals[0].reason.contains(reason), "{point}: {}", refusals[0].reason);
    }
    let long = format!(r#"{{"metric": "{}"}}"#, "m".repeat(readers::LINE_BYTES_MAX));
    let (_, refusals) = points(&long);
    assert!(refusals[0].reason.contains("over the limit") && refusals[0].text.len() == 200);
}

#[test]
fn broken_body_is_refused_whole_and_leaves_no_series() {
    let (_folder, store) = store();
    let good = r#"{"metric": "ok", "timestamp": 7, "value": 1}"#;
    for body in ["", "[]", " [ ] ", "{", "[7", &format!("[{good}, "), &format!("{good}{good}")] {
        let mut collector = RowCollector::new(&store);
        let refused = put::read(body.as_bytes(), &mut collector);
        assert!(refused.unwrap_err().starts_with("body: "), "{body}");
        assert_eq!(collector.finish().samples, 0);
        assert_eq!(store.find(&Selector::default()), []);
    }
    let mut collector = RowCollector::new(&store);
    assert!(put::read(b"[\"\xff\"]", &mut collector).is_err());
}
