//! The queries to every subject, each in its own language.

use crate::generate::{BEGIN_NS, COLUMNS, STEP_S};

/// A query in the language of each subject.
#[derive(Default)]
pub struct Question {
    pub name: &'static str,
    /// Path and body.
    pub ours: (&'static str, String),
    /// Paths of one or several requests.
    pub prom: Vec<String>,
    /// Paths for Prometheus where it lacks a function of the other one; empty if they are the same.
    pub plain: Vec<String>,
    /// SQL for a table of rows; empty if it cannot express the query.
    pub sql: &'static str,
}

/// Returns the queries over N rows of each series.
pub fn questions(times: i64) -> Vec<Question> {
    let end = BEGIN_NS + times * STEP_S * 1_000_000_000;
    let range = format!("\"range\":{{\"from\":{BEGIN_NS},\"to\":{end}}}");
    let (from_s, end_s) = (BEGIN_NS / 1_000_000_000, end / 1_000_000_000);
    let whole = end_s - from_s;
    let racks = "\"where\":{\"rack\":[\"0\",\"1\",\"2\",\"3\",\"4\"]}";
    let csv = "\"output\":{\"format\":\"csv\",\"timestamp\":\"raw\"}";
    let metrics: Vec<String> = (0..COLUMNS).map(|c| format!("\"cpu_m{c}\"")).collect();
    let metrics = metrics.join(",");
    let lasts: Vec<String> = (0..COLUMNS).map(|c| format!("\"cpu_m{c}\":\"last\"")).collect();
    let lasts = lasts.join(",");
    let instant = |q: &str| format!("/api/v1/query?nocache=1&time={end_s}&query={}", escaped(q));
    let ranged = |q: &str, step: i64| {
        format!(
            "/api/v1/query_range?nocache=1&start={from_s}&end={end_s}&step={step}&query={}",
            escaped(q)
        )
    };
    let query = |text: String| ("/api/query", text);
    vec![
        Question {
            name: "query all samples of one series",
            ours: query(format!(
                "{{\"select\":\"cpu_m0\",\"where\":{{\"host\":\"host_7\"}},{range},{csv}}}"
            )),
            prom: vec![instant(&format!("cpu_m0{{host=\"host_7\"}}[{whole}s]"))],
            sql: "select timestamp, m0 from cpu where host = 'host_7'",
            ..Question::default()
        },
        Question {
            name: "query max over 1000 series",
            ours: query(format!("{{\"aggregate\":{{\"cpu_m1\":\"max\"}},{range},{csv}}}")),
            prom: vec![instant(&format!("max_over_time(cpu_m1[{whole}s])"))],
            sql: "select host, max(m1) from cpu group by host",
            ..Question::default()
        },
        Question {
            name: "query mean and max by minute over 100 series",
            ours: query(format!(
                "{{\"group-aggregate\":{{\"metric\":\"cpu_m2\",\"func\":[\"mean\",\"max\"],\"step\":\"1m\"}},{racks},{range},{csv}}}"
            )),
            prom: ["avg", "max"]
                .iter()
                .map(|f| ranged(&format!("{f}_over_time(cpu_m2{{rack=~\"0|1|2|3|4\"}}[1m])"), 60))
                .collect(),
            sql: "select timestamp, host, avg(m2), max(m2) from cpu \
                  where rack in ('0', '1', '2', '3', '4') sample by 1m",
            ..Question::default()
        },
        Question {
            name: "query names of 10000 series",
            ours: ("/api/search", "{\"select\":\"\"}".into()),
            prom: vec![format!(
                "/api/v1/series?start={from_s}&end={end_s}&match[]={}",
                escaped("{__name__=~\"cpu_.*\"}")
            )],
            sql: "select distinct arch, dc, host, os, rack, team from cpu",
            ..Question::default()
        },
        Question {
            name: "query last of 1000 series",
            ours: query(format!("{{\"aggregate\":{{\"cpu_m3\":\"last\"}},{range},{csv}}}")),
            prom: vec![instant(&format!("last_over_time(cpu_m3[{whole}s])"))],
            sql: "select host, last(m3) from cpu group by host",
            ..Question::default()
        },
        Question {
            name: "query last of 10000 series",
            ours: query(format!("{{\"aggregate\":{{{lasts}}},{range},{csv}}}")),
            prom: vec![instant(&format!("last_over_time({{__name__=~\"cpu_.*\"}}[{whole}s])"))],
            sql: "select host, last(m0), last(m1), last(m2), last(m3), last(m4), last(m5), last(m6), \
                  last(m7), last(m8), last(m9) from cpu group by host",
            ..Question::default()
        },
        Question {
            name: "query top 5 of 1000 series",
            ours: query(format!(
                "{{\"aggregate\":{{\"cpu_m5\":\"sum\"}},\"apply\":[{{\"name\":\"top\",\"N\":5}}],{range},{csv}}}"
            )),
            prom: vec![instant(&format!("topk(5, sum_over_time(cpu_m5[{whole}s]))"))],
            sql: "select host, sum(m5) s from cpu group by host order by s desc limit 5",
            ..Question::default()
        },
        Question {
            name: "query 1-h max by tag over 10000 series",
            ours: query(format!(
                "{{\"group-aggregate\":{{\"metric\":[{metrics}],\"func\":\"max\",\"step\":\"1h\"}},\"pivot-by-tag\":[\"dc\"],{range},{csv}}}"
            )),
            prom: vec![ranged(
                "max by (__name__, dc) (max_over_time({__name__=~\"cpu_.*\"}[1h]) keep_metric_names)",
                3600,
            )],
            plain: (0..COLUMNS)
                .map(|c| ranged(&format!("max by (dc) (max_over_time(cpu_m{c}[1h]))"), 3600))
                .collect(),
            sql: "select timestamp, dc, max(m0), max(m1), max(m2), max(m3), max(m4), max(m5), max(m6), \
                  max(m7), max(m8), max(m9) from cpu sample by 1h",
        },
        Question {
            name: "query rate over 100 series",
            ours: query(format!(
                "{{\"select\":\"cpu_m4\",\"apply\":[{{\"name\":\"rate\"}}],{racks},\"range\":{{\"from\":{},\"to\":{end}}},{csv}}}",
                end - 300_000_000_000
            )),
            prom: vec![format!(
                "/api/v1/query_range?nocache=1&start={}&end={end_s}&step=10&query={}",
                end_s - 300,
                escaped("rate(cpu_m4{rack=~\"0|1|2|3|4\"}[1m])")
            )],
            sql: "",
            ..Question::default()
        },
    ]
}

/// Returns text escaped for the query of a URL.
pub fn escaped(text: &str) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric();
    text.bytes()
        .map(|b| if plain(&b) { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}
