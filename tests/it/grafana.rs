//! Grafana against the real binary: the requests of its data source, and the dashboards in
//! `packaging/grafana`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::grafana::{Grafana, Parameters};
use crate::common::mounted::folder_to_watch;
use crate::common::series::{Alone, post};
use crate::common::{Api, Running, eventually, folder};
use serde_json::{Value, json};

const DASHBOARDS: [&str; 2] = ["hosts.json", "fleet.json"];

/// Seconds of samples that [`stored`] writes.
const SECONDS: u64 = 600;

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Starts a store with the metrics `load.1` and `cpu.user` of two agents, a sample every 10 s until
/// now. The value of `load.1` is the agent's number. Returns the time of the last sample, seconds.
fn stored(name: &str) -> (Alone, u64) {
    let store = Alone::start(&folder(name).join("data"), &[]);
    let last = now_s() / 10 * 10;
    let mut lines = String::new();
    for agent in 1..=2 {
        for time in (last - SECONDS..=last).step_by(10) {
            let _ = writeln!(lines, "load.1,agent=00{agent},cpu=all f={agent} {time}");
            let _ = writeln!(lines, "cpu.user,agent=00{agent},cpu=all f={time} {time}");
        }
    }
    let (status, answer) = post(store.http, "/write?precision=s", &[], lines.as_bytes()).unwrap();
    assert_eq!(status, 204, "{answer}");
    (store, last)
}

/// Sends a request in both ways. Returns the data, which must be the same.
fn both_ways(grafana: &Grafana, path: &str, parameters: Parameters<'_>) -> Value {
    let data = grafana.data("POST", path, parameters);
    assert_eq!(grafana.data("GET", path, parameters), data, "{path}");
    data
}

#[test]
fn data_source_is_saved_and_tested() {
    let (store, _) = stored("grafana-health");
    let grafana = Grafana::of(store.http);
    let health = both_ways(&grafana, "query", &[("query", "1+1"), ("time", "4")]);
    assert_eq!(health, json!({"resultType": "scalar", "result": [4, "2"]}));
    let build = grafana.data("GET", "status/buildinfo", &[]);
    assert_eq!(build["version"], "3.16.0");
    assert!(build.get("features").is_none(), "Grafana takes a server with features for Mimir");
    // Milliseconds where seconds belong.
    let now_ms = (now_s() * 1000).to_string();
    let before_ms = ((now_s() - 1800) * 1000).to_string();
    let probe = [("query", "test"), ("start", &*before_ms), ("end", &*now_ms)];
    assert_eq!(both_ways(&grafana, "query_exemplars", &probe), json!([]));
    assert_eq!(grafana.data("GET", "rules", &[]), json!({"groups": []}));
    assert_eq!(grafana.data("GET", "alerts", &[]), json!({"alerts": []}));
    assert_eq!(grafana.data("GET", "metadata", &[("limit", "40000")]), json!({}));
}

#[test]
fn editor_and_variables_list_names_and_values() {
    let (store, last) = stored("grafana-names");
    let grafana = Grafana::of(store.http);
    let (start, end) = ((last - SECONDS).to_string(), last.to_string());
    let with = |selector: Option<&'static str>| {
        let mut all = vec![("end", &*end), ("limit", "40000"), ("start", &*start)];
        all.extend(selector.map(|selector| ("match[]", selector)));
        all
    };
    let labels = json!(["__name__", "agent", "cpu"]);
    let metrics = json!(["cpu.user_f", "load.1_f"]);
    for selector in [None, Some("{__name__!=\"\"}"), Some("{\"load.1_f\"}")] {
        assert_eq!(both_ways(&grafana, "labels", &with(selector)), labels, "{selector:?}");
    }
    for (label, selector, values) in [
        ("__name__", None, &metrics),
        ("__name__", Some("{__name__!=\"\"}"), &metrics),
        ("__name__", Some("{agent=\"001\"}"), &metrics),
        ("agent", Some("{\"load.1_f\"}"), &json!(["001", "002"])),
        ("agent", Some("{\"load.1_f\", agent!=\"002\"}"), &json!(["001"])),
    ] {
        let path = format!("label/{label}/values");
        assert_eq!(&grafana.data("GET", &path, &with(selector)), values, "{path} {selector:?}");
    }
    let all = both_ways(&grafana, "series", &with(Some("{__name__!=\"\"}")));
    assert_eq!(all.as_array().unwrap().len(), 4, "{all}");
    let one = both_ways(&grafana, "series", &with(Some("{\"load.1_f\", agent=\"002\"}")));
    assert_eq!(one, json!([{"__name__": "load.1_f", "agent": "002", "cpu": "all"}]));
}

#[test]
fn panels_of_a_dashboard_are_answered_at_once() {
    let (store, last) = stored("grafana-panels");
    let grafana = Grafana::of(store.http);
    // Grafana aligns the range to the step, and writes the rate interval as Go does.
    let end = last / 15 * 15;
    let (from, to) = ((end - 300).to_string(), end.to_string());
    let query = |panel: usize| match panel % 2 {
        0 => format!("sum({{\"load.1_f\", agent=~\"(001|002)\"}}) * {panel}"),
        _ => format!("sum(rate({{\"cpu.user_f\", agent=~\".+\"}}[1m0s])) * {panel}"),
    };
    let queries: Vec<String> = (0..40).map(query).collect();
    let mut requests = Vec::new();
    for query in &queries {
        let range = [("end", &*to), ("query", &**query), ("start", &*from), ("step", "15")];
        requests.push(("query_range", Vec::from(range)));
    }
    for (panel, (status, answer)) in grafana.send_at_once(&requests).into_iter().enumerate() {
        assert_eq!((status, &answer["data"]["resultType"]), (200, &json!("matrix")), "{answer}");
        let values = answer["data"]["result"][0]["values"].as_array().unwrap();
        assert_eq!(values.len(), 21, "{}: {answer}", queries[panel]);
        // Both agents' rates are 1, and their loads are 1 and 2.
        let expected = panel as f64 * if panel % 2 == 0 { 3.0 } else { 2.0 };
        for value in values {
            let value: f64 = value[1].as_str().unwrap().parse().unwrap();
            assert!((value - expected).abs() < 1e-9, "{}: {value}", queries[panel]);
        }
    }
}

/// A query of a panel or of a variable.
struct PanelQuery {
    /// Dashboard and panel.
    place: String,
    text: String,
    instant: bool,
}

/// Returns the text with Grafana's variables replaced.
fn interpolated(text: &str) -> String {
    let out = text.replace("$__rate_interval", "1m0s").replace("$__range", "10800s");
    let out = out.replace("$agent", ".+");
    assert!(!out.contains('$'), "unknown variable: {text}");
    out
}

/// Returns the queries of a dashboard.
fn queries(file: &str) -> Vec<PanelQuery> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/grafana").join(file);
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let mut found = Vec::new();
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let place = format!("{file}: variable {}", variable["name"]);
        if let Some(text) = variable["query"]["query"].as_str() {
            let text = text.strip_prefix("query_result(").unwrap().strip_suffix(')').unwrap();
            found.push(PanelQuery { place, text: interpolated(text), instant: true });
        }
    }
    let mut numbers = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let place = format!("{file}: {}", panel["title"]);
        assert!(numbers.insert(panel["id"].as_u64().unwrap()), "{place}: the id is not unique");
        if panel["type"] == "row" {
            continue;
        }
        assert!(panel["description"].as_str().is_some_and(|text| text.ends_with('.')), "{place}");
        for target in panel["targets"].as_array().unwrap() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{place}");
            let text = interpolated(target["expr"].as_str().unwrap());
            let (place, instant) = (place.clone(), target["instant"] == true);
            found.push(PanelQuery { place, text, instant });
        }
    }
    found
}

/// Adds the metrics that a tree of `parse_query` names.
fn add_metrics(tree: &Value, found: &mut BTreeSet<String>) {
    match tree {
        Value::Array(list) => list.iter().for_each(|part| add_metrics(part, found)),
        Value::Object(fields) => {
            if fields.get("name").is_some_and(|name| name == "__name__") && fields["type"] == "=" {
                found.insert(fields["value"].as_str().unwrap().to_owned());
            }
            fields.values().for_each(|part| add_metrics(part, found));
        }
        _ => {}
    }
}

/// Returns the metrics that are stored.
fn stored_metrics(grafana: &Grafana) -> BTreeSet<String> {
    let names = grafana.data("GET", "label/__name__/values", &[]);
    names.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// Sends the queries of a dashboard at once. Returns those without a value.
fn without_values(grafana: &Grafana, queries: &[PanelQuery]) -> Vec<String> {
    let end = now_s();
    let (from, to) = ((end - 10_800).to_string(), end.to_string());
    let mut requests = Vec::new();
    for query in queries {
        let text = ("query", &*query.text);
        requests.push(if query.instant {
            ("query", vec![text, ("time", &*to)])
        } else {
            ("query_range", vec![text, ("start", &*from), ("end", &*to), ("step", "15")])
        });
    }
    let mut empty = Vec::new();
    for (query, (status, answer)) in queries.iter().zip(grafana.send_at_once(&requests)) {
        let described = format!("{}: {}", query.place, query.text);
        assert_eq!(status, 200, "{described}: {answer}");
        if answer["data"]["result"].as_array().unwrap().is_empty() {
            empty.push(described);
        }
    }
    empty
}

#[test]
fn every_panel_has_values_of_a_new_server() {
    let base = folder("grafana-dashboards");
    let (data, tree) = (base.join("data"), folder_to_watch(base.join("tree")));
    let (data, tree) = (data.to_str().unwrap(), tree.to_str().unwrap());
    let words = ["up", "--data", data, "--watch", tree, "--api", "127.0.0.1:0", "--plain-http"];
    let up = Running::start(&[&words[..], &["--http", "127.0.0.1:0"]].concat(), &base.join("log"));
    let grafana = Grafana::of(up.line("listening: http ").parse().unwrap());
    eventually("the agent has a name", || {
        let found = grafana.data("GET", "query", &[("query", "agent_info{groups=\"default\"}")]);
        if found["result"].as_array().unwrap().len() == 1 { Ok(()) } else { Err(found.to_string()) }
    });
    let api = Api::of(Path::new(data));
    let body = "{\"group_id\": \"web\"}";
    assert_eq!(api.send("POST", "/groups", "application/json", body).0, 200);
    assert_eq!(api.request("PUT", "/agents/001/group/web").unwrap().0, 200);
    for file in DASHBOARDS {
        let queries = queries(file);
        assert!(queries.len() > 30, "{file}: {} queries", queries.len());
        let mut named = BTreeSet::new();
        for query in &queries {
            let tree = grafana.data("POST", "parse_query", &[("query", &query.text)]);
            add_metrics(&tree, &mut named);
        }
        eventually("every metric is stored", || {
            let stored = stored_metrics(&grafana);
            let has_disks = stored.iter().any(|name| name.starts_with("disk."));
            let mut missing: Vec<_> = named.difference(&stored).collect();
            missing.retain(|name| has_disks || !name.starts_with("disk."));
            if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?}")) }
        });
        eventually("every panel has a value", || {
            let mut empty = without_values(&grafana, &queries);
            // A machine may have no disk and no interface but the loopback.
            empty.retain(|query| !query.contains("\"disk.") && !query.contains("interface!="));
            if empty.is_empty() { Ok(()) } else { Err(empty.join("\n")) }
        });
    }
    let infos = grafana.data("GET", "query", &[("query", "agent_info")]);
    let infos = infos["result"].as_array().unwrap();
    assert_eq!(infos.len(), 1, "the series with the former groups has ended: {infos:?}");
    assert_eq!(infos[0]["metric"]["groups"], "default,web");
    assert_eq!(up.stop(), 0);
}
