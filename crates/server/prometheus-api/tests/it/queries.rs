//! Requests to the operations, over a real store.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use budget::Memory;
use env::files::SimDisk;
use serde_json::{Value, json};
use series::{Ack, Batch, Store, StoreOptions, Wal};
use tower::ServiceExt as _;

/// Returns the operations over a store with a counter of two jobs, every 10 s for 10 min, and a series
/// whose end is marked.
fn served() -> Router {
    served_within(Memory::default())
}

fn served_within(memory: Memory) -> Router {
    let files = Arc::new(SimDisk::new(1));
    let options =
        StoreOptions { wal: Wal::Off, background: false, files, ..StoreOptions::default() };
    let store = Store::open(Path::new("/series"), options.keeping_all()).unwrap().0;
    let mut batch = Batch::new();
    for (name, slope) in [("hits_total job=a", 1.0), ("hits_total job=b", 2.0)] {
        let row = store.row(name.as_bytes()).unwrap();
        for step in 0..=60_i64 {
            batch.push(row, step * 10_000_000_000, &[slope * step as f64]).unwrap();
        }
    }
    let row = store.row(b"gone job=a").unwrap();
    batch.push(row, 0, &[7.0]).unwrap();
    batch.push(row, 60_000_000_000, &[f64::from_bits(series::END_OF_SERIES)]).unwrap();
    let events = store.row(b"!log job=a").unwrap();
    batch.push_event(events, 0, b"text").unwrap();
    store.write(batch, Ack::Persisted).unwrap();
    store.note_refused_histogram("latency");
    prometheus_api::routes::<()>(store, memory).with_state(())
}

/// Returns status and body of an answer.
async fn send(
    router: Router,
    method: &str,
    path: &str,
    form: &'static str,
) -> (u16, axum::body::Bytes) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from(form))
        .unwrap();
    let answer = router.oneshot(request).await.unwrap();
    let status = answer.status().as_u16();
    assert_eq!(answer.headers()["content-type"], "application/json");
    (status, to_bytes(answer.into_body(), 1 << 20).await.unwrap())
}

async fn ask(method: &str, path: &str, form: &'static str) -> (u16, Value) {
    let (status, body) = send(served(), method, path, form).await;
    (status, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn query_is_formatted_from_the_query_and_from_a_form() {
    let expected = (200, json!({"status": "success", "data": "sum by (job) (rate(a[5m]))"}));
    let query = "sum(rate(a%5B5m%5D))by(job)";
    assert_eq!(ask("GET", &format!("/format_query?query={query}"), "").await, expected);
    assert_eq!(ask("POST", "/format_query", "query=sum(rate(a%5B5m%5D))by(job)").await, expected);
}

#[tokio::test]
async fn query_is_answered_as_a_tree() {
    let (status, answer) = ask("GET", "/parse_query?query=1%2Btime()", "").await;
    assert_eq!((status, &answer["status"]), (200, &json!("success")));
    assert_eq!(answer["data"]["lhs"], json!({"type": "numberLiteral", "val": "1"}));
    assert_eq!(answer["data"]["rhs"]["func"]["name"], "time");
}

#[tokio::test]
async fn deepest_queries_leave_the_stack_intact() {
    let router = served();
    let mut paths = Vec::new();
    for (open, close) in [("sum(", ")"), ("abs(", ")"), ("(", ")"), ("-", ""), ("a%2B", "")] {
        for depth in [84, 100, 125, 250, 255, 5000] {
            let query = format!("{}a{}", open.repeat(depth), close.repeat(depth));
            let operations = ["parse_query", "format_query", "query"];
            paths.extend(operations.map(|operation| format!("/{operation}?query={query}")));
        }
    }
    for path in paths {
        let (status, _) = send(router.clone(), "GET", &path, "").await;
        assert!(status == 200 || status == 400, "{path} {status}");
    }
}

#[tokio::test]
async fn instant_query_answers_each_type() {
    let (_, vector) = ask("GET", "/query?time=600&query=hits_total", "").await;
    let of = |job: &str, value: &str| json!({"metric": {"__name__": "hits_total", "job": job}, "value": [600, value]});
    let expected = json!({"resultType": "vector", "result": [of("a", "60"), of("b", "120")]});
    assert_eq!(vector["data"], expected);
    let (_, scalar) = ask("GET", "/query?time=4.5&query=1%2B1", "").await;
    assert_eq!(scalar["data"], json!({"resultType": "scalar", "result": [4.500, "2"]}));
    let (_, string) = ask("GET", "/query?time=4&query=%22x%22", "").await;
    assert_eq!(string["data"], json!({"resultType": "string", "result": [4, "x"]}));
    let query = "hits_total%7Bjob=%22a%22%7D%5B20s%5D";
    let (_, matrix) = ask("GET", &format!("/query?time=20&query={query}"), "").await;
    assert_eq!(matrix["data"]["result"][0]["values"], json!([[10, "1"], [20, "2"]]));
    let (_, rate) = ask("GET", "/query?time=600&query=sum(rate(hits_total%5B5m%5D))", "").await;
    let value = rate["data"]["result"][0]["value"][1].as_str().unwrap();
    assert!((value.parse::<f64>().unwrap() - 0.3).abs() < 1e-12, "{rate}");
}

#[tokio::test]
async fn series_ends_at_its_marker_or_after_the_lookback() {
    for (time, query, series) in [
        (59, "gone", 1),
        (60, "gone", 0),
        (900, "count(hits_total)", 0),
        (899, "count(hits_total)", 1),
        (0, "%7B__name__=~%22.%2B%22%7D", 3),
    ] {
        let (_, answer) = ask("GET", &format!("/query?time={time}&query={query}"), "").await;
        let found = answer["data"]["result"].as_array().unwrap().len();
        assert_eq!(found, series, "{query} at {time}: {answer}");
    }
    let (_, zero) = ask("GET", "/query?time=630&lookback_delta=0&query=hits_total", "").await;
    assert_eq!(zero["data"]["result"].as_array().unwrap().len(), 2, "0 is the default");
    let (_, short) = ask("GET", "/query?time=630&lookback_delta=10s&query=hits_total", "").await;
    assert_eq!(short["data"]["result"], json!([]));
}

#[tokio::test]
async fn range_query_has_a_value_at_each_step() {
    let form = "query=sum%20by%20(job)(hits_total)&start=0&end=20&step=10s&limit=1";
    let (status, answer) = ask("POST", "/query_range", form).await;
    let values = json!([[0, "0"], [10, "1"], [20, "2"]]);
    let result = json!([{"metric": {"job": "a"}, "values": values}]);
    let expected = json!({"resultType": "matrix", "result": result});
    assert_eq!((status, &answer["data"]), (200, &expected));
    assert_eq!(answer["warnings"], json!(["results truncated due to limit"]));
}

#[tokio::test]
async fn notes_name_their_place_in_the_query() {
    let (_, answer) =
        ask("GET", "/query?time=30&query=quantile(2,%20rate(gone%5B5m%5D))", "").await;
    let warning = "PromQL warning: quantile value should be between 0 and 1, got 2 (1:10)";
    assert_eq!((&answer["warnings"], &answer["infos"]), (&json!([warning]), &Value::Null));
    let query = "rate(%7Bjob=%22a%22%7D%5B1m%5D)";
    let (_, answer) = ask("GET", &format!("/query?time=60&query=sum({query})"), "").await;
    assert_eq!(answer["infos"], Value::Null, "a counter has the right name: {answer}");
}

#[tokio::test]
async fn query_of_refused_histograms_has_a_warning() {
    for (query, warned) in [
        ("latency", true),
        ("rate(latency%5B5m%5D)", true),
        ("%7B__name__=~%22lat.*%22%7D", true),
        ("hits_total", false),
        ("%7Bjob=%22a%22%7D", false),
    ] {
        let (_, answer) = ask("GET", &format!("/query?time=60&query={query}"), "").await;
        let text = answer["warnings"].to_string();
        assert_eq!(text.contains("histograms of \\\"latency\\\" were refused"), warned, "{answer}");
    }
}

#[tokio::test]
async fn labels_and_series_are_listed() {
    for (path, data) in [
        ("/labels", json!(["__name__", "job"])),
        ("/label/job/values", json!(["a", "b"])),
        ("/label/__name__/values?match[]=%7Bjob=%22b%22%7D", json!(["hits_total"])),
        ("/label/U__job/values?match[]=gone&match[]=hits_total&limit=40000", json!(["a", "b"])),
        ("/series?match[]=gone", json!([{"__name__": "gone", "job": "a"}])),
        ("/metadata", json!({})),
        ("/rules", json!({"groups": []})),
    ] {
        let (status, answer) = ask("GET", path, "").await;
        assert_eq!((status, &answer["data"]), (200, &data), "{path}");
    }
    let (_, cut) = ask("GET", "/labels?limit=1", "").await;
    assert_eq!(cut["data"], json!(["__name__"]));
    assert_eq!(cut["warnings"], json!(["results truncated due to limit"]));
    let (_, build) = ask("GET", "/status/buildinfo", "").await;
    assert_eq!(build["data"]["version"], "3.16.0");
    for path in ["/series", "/series?match[]=a%2Bb", "/labels?match[]=%7B%7D"] {
        assert_eq!(ask("GET", path, "").await.0, 400, "{path}");
    }
}

#[tokio::test]
async fn labels_are_those_of_series_in_the_range() {
    let both = json!(["gone", "hits_total"]);
    for (range, data) in [
        ("start=0&end=0", both.clone()),
        ("start=60&end=1970-01-01T00:01:00Z", both.clone()),
        ("end=60", both.clone()),
        ("start=-1e300&end=1e300", both),
        ("start=60.001", json!(["hits_total"])),
        ("start=600&end=700", json!(["hits_total"])),
        ("start=600.001", json!([])),
        ("end=-0.001", json!([])),
    ] {
        let (status, answer) = ask("GET", &format!("/label/__name__/values?{range}"), "").await;
        assert_eq!((status, &answer["data"]), (200, &data), "{range}");
    }
    let form = "match[]=gone&match[]=hits_total&start=100&end=200";
    let (_, series) = ask("POST", "/series", form).await;
    let jobs =
        json!([{"__name__": "hits_total", "job": "a"}, {"__name__": "hits_total", "job": "b"}]);
    assert_eq!(series["data"], jobs);
    assert_eq!(ask("GET", "/labels?start=700", "").await.1["data"], json!([]));
    let (status, refused) = ask("GET", "/labels?end=soon", "").await;
    assert_eq!((status, &refused["errorType"]), (400, &json!("bad_data")));
}

#[tokio::test]
async fn query_takes_its_memory_from_the_pool_of_the_server() {
    let memory = Memory::new(20 << 20, 40 << 20);
    let query = "/query?time=600&query=count_over_time(vector(1)%5B3000000ms:1ms%5D)";
    let text = "the query needs more memory than one query, or all queries together, may hold: select \
                fewer series, a wider step or a shorter range";
    let expected = json!({"status": "error", "errorType": "execution", "error": text});
    let (status, body) = send(served_within(memory.clone()), "GET", query, "").await;
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, body), (422, expected));
    assert_eq!(memory.held_bytes(), 0);
    assert_eq!(ask("GET", query, "").await.0, 200);
}

#[tokio::test]
async fn answer_holds_its_memory_until_it_is_taken() {
    let memory = Memory::default();
    for path in ["/query?time=600&query=hits_total", "/series?match[]=hits_total"] {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let answer = served_within(memory.clone()).oneshot(request).await.unwrap();
        assert!(memory.held_bytes() > 0, "{path}");
        drop(answer);
        assert_eq!(memory.held_bytes(), 0, "{path}");
    }
}

#[tokio::test]
async fn queries_of_extreme_sizes_end_with_an_answer_or_an_error() {
    let nested = format!("hits_total{}", "%5B1y:10s%5D".repeat(60).replace("%5D%5B", "%5D)%5B"));
    let sums = "sum_over_time(".repeat(60) + &nested + ")";
    let powers = format!("vector({})%5B1y:10s%5D", vec!["1"; 200].join("%5E"));
    for query in [
        "vector(1)%5B290y:1ms%5D".to_owned(),
        "max_over_time(hits_total%5B290y:1ms%5D)".to_owned(),
        format!("max_over_time({powers})"),
        sums,
        "hits_total%20@%209e15".to_owned(),
        "predict_linear(hits_total%5B1m%5D%20@%2060,1)".to_owned(),
        "rate(hits_total%5B290y%5D%20offset%20-290y)".to_owned(),
        "year(vector(1e300))".to_owned(),
    ] {
        for time in ["600", "1e300", "-1e300"] {
            let path = format!("/query?timeout=5s&time={time}&query={query}");
            let (status, body) = ask("GET", &path, "").await;
            assert!([200, 400, 422, 503].contains(&status), "{path}: {status} {body}");
        }
    }
    let range = "/query_range?query=hits_total&start=-9e15&end=9e15&step=1e300";
    assert!([200, 400].contains(&ask("GET", range, "").await.0));
}

#[tokio::test]
async fn series_of_several_metrics_are_merged_and_matched_by_step() {
    for (query, status, series) in [
        // `gone` has values until 60 s: at 600 s there is nothing on its side.
        ("gone%20*%20on()%20hits_total", 200, 0),
        ("rate(%7Bjob=%22b%22%7D%5B1m%5D)", 200, 1),
        ("absent((gone%7Bx=%22y%22%7D))", 200, 1),
        ("sort_by_label(hits_total,%22job%22)", 200, 2),
        ("hits_total%20*%20on()%20hits_total", 422, 0),
    ] {
        let (answered, body) = ask("GET", &format!("/query?time=600&query={query}"), "").await;
        let found = body["data"]["result"].as_array().map_or(0, Vec::len);
        assert_eq!((answered, found), (status, series), "{query}: {body}");
    }
    let warned = "sum_over_time(quantile(time(),vector(1))%5B40d:1s%5D)";
    let (status, body) = ask("GET", &format!("/query?time=9e9&query={warned}"), "").await;
    assert_eq!(status, 200, "{body}");
    // Of all steps, only the worst quantile is warned of.
    assert_eq!(body["warnings"].as_array().unwrap().len(), 1, "{body}");
}

#[tokio::test]
async fn requests_that_cannot_be_answered_say_why() {
    let many = format!("/series?{}", vec!["match[]=a"; 65].join("&"));
    for (path, status, kind, text) in [
        (
            &*many,
            400,
            "bad_data",
            "invalid parameter \"match[]\": 65 selectors; at most 64 are allowed",
        ),
        (
            "/parse_query?query=a%7B",
            400,
            "bad_data",
            "invalid parameter \"query\": 1:3: parse error: unexpected end of input inside braces",
        ),
        (
            "/parse_query?query=%22%FF%22",
            400,
            "bad_data",
            "invalid parameter \"query\": invalid UTF-8 rune",
        ),
        (
            "/format_query",
            400,
            "bad_data",
            "invalid parameter \"query\": unknown position: parse error: no expression found in input",
        ),
        (
            "/query?query=a&time=soon",
            400,
            "bad_data",
            "invalid parameter \"time\": cannot parse \"soon\" to a valid timestamp",
        ),
        (
            "/query_range?query=a&start=0&end=20000&step=1",
            400,
            "bad_data",
            "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query \
             resolution (?step=XX)",
        ),
        (
            "/query_range?query=a&start=0&end=1&step=0",
            400,
            "bad_data",
            "invalid parameter \"step\": zero or negative query resolution step widths are not \
             accepted. Try a positive integer",
        ),
        (
            "/query_range?query=a%5B1m%5D&start=0&end=1&step=1",
            400,
            "bad_data",
            "invalid parameter \"query\": invalid expression type \"range vector\" for range query, \
             must be Scalar or instant Vector",
        ),
        (
            "/query?time=600&query=hits_total%2Bon()hits_total",
            422,
            "execution",
            "found duplicate series for the match group {} on the right hand-side of the operation: \
             [{__name__=\"hits_total\", job=\"a\"}, {__name__=\"hits_total\", job=\"b\"}];many-to-many \
             matching not allowed: matching labels must be unique on one side",
        ),
    ] {
        let expected = json!({"status": "error", "errorType": kind, "error": text});
        assert_eq!(ask("GET", path, "").await, (status, expected), "{path}");
    }
}

#[tokio::test]
async fn count_values_refuses_a_label_that_is_not_utf8() {
    let path = "/query?time=600&query=count_values(%22a%5Cxc5z%22,hits_total)";
    let (status, body) = ask("GET", path, "").await;
    assert_eq!((status, &body["errorType"]), (422, &json!("execution")), "{body}");
    assert_eq!(body["error"], "invalid label name \"a\\xc5z\"");
}

#[tokio::test]
async fn large_answer_is_compressed_if_the_client_asks() {
    let large = "/query_range?query=hits_total&start=0&end=600&step=1";
    for (path, accepted, compressed) in [
        (large, "deflate, gzip;q=0.5", true),
        (large, "gzip;q=0", false),
        ("/query?query=1", "gzip", false),
    ] {
        let request = Request::get(path).header("accept-encoding", accepted);
        let answer = served().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let headers = answer.headers().clone();
        assert_eq!(headers.contains_key("content-encoding"), compressed, "{path} {accepted}");
        assert_eq!(headers["vary"], "accept-encoding");
        let body = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        if compressed {
            assert_eq!(headers["content-encoding"], "gzip");
            let mut text = String::new();
            flate2::read::GzDecoder::new(&*body).read_to_string(&mut text).unwrap();
            let (_, plain) = send(served(), "GET", path, "").await;
            assert!(text.as_bytes() == plain && body.len() * 4 < plain.len());
        }
    }
}
