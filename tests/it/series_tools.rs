//! The commands on a series store, its ports, and the requests of other programs (Grafana,
//! netdata), with the real binary.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::process::{Command, Stdio};

use crate::common::mounted::folder_to_watch;
use crate::common::series::{Alone, request, send_and_read};
use crate::common::{self, Running, folder, run};

/// The user id of another account.
const OTHER: u32 = 4242;

#[test]
fn exported_data_is_imported_and_listed_by_the_tools() {
    let base = folder("series-tools");
    let (first, second) = (base.join("first"), base.join("second"));
    let (first, second) = (first.to_str().unwrap(), second.to_str().unwrap());
    let lines = base.join("lines.txt");
    let event = base.join("event.resp");
    let digit = "5min,host=a load=2.5 1000\n";
    let odd = "odd,host=a a=1e300,b=5e-324,c=-0.0,d=-1.7976931348623157e308 1000\n";
    let text = "cpu,host=a user=1.25,sys=3i 1000\nlog,host=a text=\"one line\" 1000\n";
    fs::write(&lines, [text, digit, odd].concat()).unwrap();
    let two_lines = "+!log_text host=a\r\n:1001\r\n$9\r\ntwo\nlines\r\n";
    // A series that ended, whose tag has a newline.
    let ended = "+up host=a\\nb\r\n:5\r\n+1.0\r\n+up host=a\\nb\r\n:6\r\n+stale\r\n";
    fs::write(&event, [two_lines, ended].concat()).unwrap();
    let ok = |words: &[&str]| {
        let (code, out, error) = run(&[&["series"], words].concat());
        assert_eq!(code, 0, "{words:?}: {out}{error}");
        out
    };
    ok(&["init", "--data", first]);
    assert_eq!(run(&["series", "init", "--data", first]).0, 2, "what is there is left as it is");
    ok(&["create", "--data", first]);
    ok(&["import", "--data", first, "--format", "influx", lines.to_str().unwrap()]);
    ok(&["import", "--data", first, event.to_str().unwrap()]);
    let exported = ok(&["export", "--data", first]);
    assert!(exported.contains("+cpu_user host=a\r\n:1000\r\n+1.25\r\n"), "{exported}");
    assert!(exported.contains("\r\n:1001\r\n$9\r\ntwo\nlines\r\n"), "{exported}");
    assert!(exported.contains(ended), "{exported}");
    for (name, value) in [("a", 1e300_f64), ("b", 5e-324), ("c", -0.0), ("d", f64::MIN)] {
        let (_, text) = exported.split_once(&format!("+odd_{name} host=a\r\n:1000\r\n+")).unwrap();
        let back: f64 = text.split("\r\n").next().unwrap().parse().unwrap();
        assert_eq!(back.to_bits(), value.to_bits(), "{exported}");
    }
    let dump = base.join("dump");
    fs::write(&dump, &exported).unwrap();
    ok(&["create", "--data", second]);
    ok(&["import", "--data", second, dump.to_str().unwrap()]);
    assert_eq!(ok(&["export", "--data", second]), exported);

    fs::write(&dump, "+cpu host=a\r\n:5\r\n+nonsense\r\n+cpu host=a\r\n:6\r\n+1\r\n").unwrap();
    let (code, out, error) = run(&["series", "import", "--data", second, dump.to_str().unwrap()]);
    assert_eq!((code, out.trim()), (1, "imported: 1 samples, 1 refused"), "{error}");
    assert!(error.contains("line 3: ") && error.contains("nonsense"), "{error}");

    let stat: serde_json::Value =
        serde_json::from_str(&ok(&["stat", "--data", second, "--json"])).unwrap();
    // The series of the refused sample exists, because it also has an accepted one.
    assert_eq!(stat["series"], 10);
    assert_eq!(stat["part_samples"], 12);
    let stat = ok(&["stat", "--data", second]);
    for line in ["series: 10 stored", "samples: 0 since start", "disk full: no"] {
        assert!(stat.lines().any(|found| found == line), "{line}: {stat}");
    }
    ok(&["delete", "--data", second, "--metric", "cpu_user", "--tag", "host=a"]);
    assert!(!ok(&["export", "--data", second]).contains("cpu_user"));
    assert!(ok(&["verify", "--data", second]).contains("intact"));
    ok(&["delete", "--data", second, "--all"]);
    assert_eq!(run(&["series", "stat", "--data", second]).0, 2);
}

#[test]
fn verify_names_a_damaged_part_and_leaves_an_open_store_alone() {
    let base = folder("series-damage");
    let data = base.join("data");
    let store = Alone::start(&data, &["--age-max", "90years"]);
    let words = data.to_str().unwrap();
    let rows: Vec<String> =
        (0..100).map(|t| format!("put cpu 17000000{t:02} {t} host=a\n")).collect();
    assert_eq!(
        send_and_read(store.opentsdb, format!("{}sync\n", rows.concat()).as_bytes()).unwrap(),
        "ok\n"
    );
    let (code, _, error) = run(&["series", "verify", "--data", words]);
    assert_eq!(code, 2);
    assert!(error.contains("already open"), "{error}");
    let url = format!("http://{}", store.http);
    let (code, out, error) = run(&["series", "stat", "--url", &url, "--json"]);
    assert_eq!(code, 0, "{error}");
    assert!(out.contains(r#""samples":100"#), "{out}");
    let (_, out, _) = run(&["series", "stat", "--url", &url]);
    assert!(out.contains("\nsamples: 100 since start\n"), "{out}");
    assert_eq!(store.process.stop(), 0);
    let names = |out: &str| -> Vec<String> {
        out.lines().filter_map(|line| Some(line.split_once(": ")?.0.to_owned())).collect()
    };
    let (_, closed, _) = run(&["series", "stat", "--data", words]);
    assert_eq!(names(&closed), names(&out), "a closed store has the same numbers");

    let part = fs::read_dir(data.join("series/parts")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&part).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&part, bytes).unwrap();
    let (code, out, error) = run(&["series", "verify", "--data", words]);
    assert_eq!(code, 1, "{error}");
    assert!(out.contains(part.file_name().unwrap().to_str().unwrap()), "{out}");
    let (code, out, error) = run(&["series", "export", "--data", words]);
    assert_eq!(code, 1, "{out}{error}");
    assert!(error.contains("cpu host=a: left out"), "{error}");
}

#[test]
fn stat_waits_for_the_process_that_has_the_store_open() {
    let base = folder("series-ending");
    let data = base.join("data");
    let words = data.to_str().unwrap();
    assert_eq!(run(&["series", "create", "--data", words]).0, 0);
    let lock = fs::File::options().write(true).open(data.join("series/lock")).unwrap();
    lock.lock().unwrap();
    let mut stat = Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .args(["series", "stat", "--data", words])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(stat.stderr.take().unwrap()).lines();
    let waits = said.next().unwrap().unwrap();
    assert!(waits.contains("waits up to 10 s"), "{waits}");
    drop(lock);
    let out = stat.wait_with_output().unwrap();
    let rest: Vec<String> = said.map(Result::unwrap).collect();
    assert!(out.status.success(), "{rest:?}");
    assert!(String::from_utf8(out.stdout).unwrap().contains("rows: 0 stored"));
}

#[test]
fn root_refuses_to_open_a_store_of_another_user() {
    let base = folder("series-owner");
    let (data, dump) = (base.join("data"), base.join("dump"));
    if fs::metadata(&base).unwrap().uid() != 0 {
        return needs::skip("needs root to give files to another account");
    }
    let words = data.to_str().unwrap();
    fs::write(&dump, "+cpu host=a\r\n:5\r\n+1\r\n").unwrap();
    assert_eq!(run(&["series", "create", "--data", words]).0, 0);
    let import = ["series", "import", "--data", words, dump.to_str().unwrap()];
    assert_eq!(run(&import).0, 0);
    let mut all = vec![data.clone()];
    while let Some(path) = all.pop() {
        chown(&path, Some(OTHER), Some(OTHER)).unwrap();
        all.extend(fs::read_dir(&path).into_iter().flatten().map(|entry| entry.unwrap().path()));
    }
    for looking in ["stat", "export", "verify"] {
        let (code, _, error) = run(&["series", looking, "--data", words]);
        assert_eq!(code, 0, "{looking}: {error}");
    }
    let delete = ["series", "delete", "--data", words, "--metric", "cpu"];
    for changing in [&import[..], &delete[..]] {
        let (code, _, error) = run(changing);
        assert!(code == 2 && error.contains("setpriv --reuid=4242"), "{error}");
    }
    let mut all = vec![data];
    while let Some(path) = all.pop() {
        assert_eq!(fs::metadata(&path).unwrap().uid(), OTHER, "{}", path.display());
        all.extend(fs::read_dir(&path).into_iter().flatten().map(|entry| entry.unwrap().path()));
    }
}

#[test]
fn server_folder_is_not_opened_with_other_retention_rules() {
    let data = folder("series-server").join("data");
    fs::create_dir_all(&data).unwrap();
    fs::write(data.join("registry.db"), "").unwrap();
    let (code, out, error) = run(&["series", "serve", "--data", data.to_str().unwrap()]);
    assert!(code == 2 && error.contains("--config"), "{out}{error}");
}

#[test]
fn export_skips_only_the_events_of_a_damaged_part() {
    let base = folder("series-export");
    let (data, dump) = (base.join("data"), base.join("dump"));
    let words = data.to_str().unwrap();
    let event = |time: i64, text: &str| format!("+!log host=a\r\n:{time}\r\n$3\r\n{text}\r\n");
    // The events are in different partitions; a partition is two hours wide.
    fs::write(&dump, event(1000, "one") + &event(8_000_000_000_000, "two")).unwrap();
    assert_eq!(run(&["series", "create", "--data", words]).0, 0);
    let (code, _, error) = run(&["series", "import", "--data", words, dump.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    let first = data.join("series/parts/part-0000000000000001");
    let mut bytes = fs::read(&first).unwrap();
    // This byte is after the header of 44 bytes.
    bytes[46] ^= 1;
    fs::write(&first, bytes).unwrap();
    let (code, out, error) = run(&["series", "export", "--data", words]);
    assert_eq!((code, out), (1, event(8_000_000_000_000, "two")), "{error}");
    assert!(error.contains("!log host=a: left out") && error.contains("part-"), "{error}");
}

#[test]
fn server_runs_without_a_series_store_that_fails_to_open() {
    let base = folder("series-without");
    let (data, log) = (base.join("data"), base.join("log"));
    let tree = folder_to_watch(base.join("tree"));
    let up = || {
        let (data, tree) = (data.to_str().unwrap(), tree.to_str().unwrap());
        let words = ["up", "--data", data, "--watch", tree, "--api", "127.0.0.1:0", "--plain-http"];
        let up = Running::start(&words, &log);
        let url = up.line("ready: ");
        let port = url.trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
        (up, port)
    };
    let get = |port, path: &str| {
        let (status, _, body) = request("GET", port, path, &[], b"").unwrap();
        (status, body)
    };
    let (server, port) = up();
    assert!(get(port, "/metrics").1.contains("holdfast_series_open 1\n"));
    assert_eq!(server.stop(), 0);
    let manifest = data.join("series/manifest");
    let size = fs::metadata(&manifest).unwrap().len() as usize;
    fs::write(&manifest, vec![0x5a; size]).unwrap();

    let (server, port) = up();
    assert_eq!(get(port, "/readyz"), (200, "ok\n".into()));
    assert!(get(port, "/metrics").1.contains("holdfast_series_open 0\n"));
    let (status, _) = common::Api::of(&data).request("GET", "/series/stats").unwrap();
    assert_eq!(status, 503);
    assert_eq!(server.stop(), 0);
    let told = fs::read_to_string(&log).unwrap();
    let remedy = format!("holdfast series verify --data {}", data.display());
    assert!(told.contains("series: the server runs without") && told.contains(&remedy), "{told}");
    let (code, out, error) = run(&["series", "verify", "--data", data.to_str().unwrap()]);
    assert_eq!((code, out.matches("damage: ").count()), (1, 1), "{out}{error}");
    assert!(out.contains("series/manifest: "), "{out}{error}");
    assert!(!format!("{out}{error}").contains("series verify"), "{out}{error}");
}

#[test]
fn non_loopback_ports_need_a_certificate_and_exclude_udp() {
    let base = folder("series-ports");
    let data = base.join("data");
    let serve = |port: &str| {
        let words = ["series", "serve", "--data", data.to_str().unwrap(), port, "0.0.0.0:0"];
        let mut process = Running::start(&words, &base.join("log"));
        (process.wait(), fs::read_to_string(base.join("log")).unwrap())
    };
    let (code, error) = serve("--udp");
    assert_eq!(code, 2);
    assert!(error.contains("udp") && error.contains("loopback"), "{error}");
    let (code, error) = serve("--resp");
    assert_eq!(code, 2);
    assert!(error.contains("tls_cert"), "{error}");
}

/// Sends the requests of Grafana's Akumuli data source as a browser does, from a page of another
/// origin.
#[test]
fn deletion_requires_the_token_and_is_logged() {
    let base = folder("series-delete-token");
    let data = base.join("data");
    let store = Alone::start(&data, &["--age-max", "90years"]);
    let rows = b"put cpu.user 1700000000 1 host=a\nput cpu.user 1700000000 1 host=b\nsync\n";
    assert_eq!(send_and_read(store.opentsdb, rows).unwrap(), "ok\n");
    let body = br#"{"metric": "cpu.user", "where": {"host": "a"}}"#;
    let delete = |headers: &[&str]| request("POST", store.http, "/api/delete", headers, body);
    assert_eq!(delete(&[]).unwrap().0, 401);
    assert_eq!(delete(&["authorization: Bearer wrong"]).unwrap().0, 401);
    let token = fs::read_to_string(data.join("keys/series")).unwrap();
    let bearer = format!("authorization: Bearer {}", token.trim());
    let (status, _, answer) = delete(&[&bearer]).unwrap();
    assert_eq!((status, answer.trim()), (200, r#"{"series":1}"#));
    let log = fs::read_to_string(base.join("data.log")).unwrap();
    assert!(log.contains("samples were deleted") && log.contains("cpu.user"), "{log}");
}

#[test]
fn grafana_queries_from_another_origin_are_answered() {
    let base = folder("series-grafana");
    let data = base.join("data");
    let origin = "origin: http://grafana.example:3000";
    fs::create_dir_all(&data).unwrap();
    fs::write(data.join("series.toml"), "cors_origins = [\"http://grafana.example:3000\"]\n")
        .unwrap();
    let store = Alone::start(&data, &["--age-max", "90years"]);
    let line = |host: &str, seconds: i64| {
        format!("put cpu.user {} {seconds} host={host} dc=1\n", 1_700_000_000 + seconds)
    };
    let rows: Vec<String> =
        ["a", "b"].iter().flat_map(|host| (0..40).map(move |s| line(host, s))).collect();
    let rows = rows.concat();
    assert_eq!(send_and_read(store.opentsdb, (rows + "sync\n").as_bytes()).unwrap(), "ok\n");

    let asked = [
        origin,
        "access-control-request-method: POST",
        "access-control-request-headers: content-type",
    ];
    let (status, head, _) = request("OPTIONS", store.http, "/api/query", &asked, b"").unwrap();
    assert_eq!(status, 204);
    let head = head.to_lowercase();
    for wanted in [
        "access-control-allow-origin: http://grafana.example:3000",
        "access-control-allow-headers: authorization, content-type, accept",
        "access-control-allow-methods: get, post, options",
    ] {
        assert!(head.contains(wanted), "{wanted}: {head}");
    }
    let ask = |path: &str, body: &str| {
        let kind = "content-type: application/json";
        let (status, head, body) =
            request("POST", store.http, path, &[origin, kind], body.as_bytes()).unwrap();
        assert_eq!(status, 200, "{body}");
        assert!(
            head.to_lowercase().contains("access-control-allow-origin: http://grafana"),
            "{head}"
        );
        body
    };
    assert_eq!(
        ask("/api/suggest", r#"{"select":"metric-names","starts-with":"cp"}"#),
        "+cpu.user\r\n"
    );
    let tags = r#"{"select":"tag-names","metric":"cpu.user","starts-with":""}"#;
    assert_eq!(ask("/api/suggest", tags), "+dc\r\n+host\r\n");
    let values = r#"{"select":"tag-values","metric":"cpu.user","tag":"host","starts-with":""}"#;
    assert_eq!(ask("/api/suggest", values), "+a\r\n+b\r\n");
    let panel = r#"{"group-aggregate":{"metric":"cpu.user","step":"20000000000n","func":["mean"]},
        "range":{"from":"20231114T221320.000000","to":"20231114T221400.000000"},
        "where":{"host":["a"]},"order-by":"series","apply":[]}"#;
    let name = "+cpu.user:mean dc=1 host=a\r\n";
    assert_eq!(
        ask("/api/query", panel),
        format!(
            "{name}+20231114T221320.000000000\r\n+9.5\r\n{name}+20231114T221340.000000000\r\n+29.5\r\n"
        )
    );
    let raw = r#"{"select":"cpu.user","range":{"from":"20231114T221320","to":"20231114T221322"},
        "where":{"host":["b","c"]},"order-by":"series"}"#;
    assert_eq!(ask("/api/query", raw).matches("+cpu.user dc=1 host=b\r\n").count(), 2);
    let unknown = panel.replace("cpu.user", "no.such");
    assert_eq!(ask("/api/query", &unknown), "", "a series that is not there is an empty panel");

    let other = ["origin: http://elsewhere.example", "content-type: application/json"];
    let (status, head, _) =
        request("POST", store.http, "/api/query", &other, raw.as_bytes()).unwrap();
    assert_eq!(status, 403);
    assert!(!head.to_lowercase().contains("access-control-allow-origin"), "{head}");
    assert_eq!(store.process.stop(), 0);
}

/// A real netdata sends its charts to the `OpenTSDB` port. The test is skipped if Debian's netdata
/// is not installed; `tests/netdata.sh` installs it and runs the test.
#[test]
fn real_netdata_charts_are_stored() {
    let found = Command::new("netdata").arg("-v").output();
    if !found.is_ok_and(|out| out.status.success()) {
        return needs::skip("netdata is not installed; tests/netdata.sh installs it");
    }
    let base = folder("series-netdata");
    let store = Alone::start(&base.join("data"), &[]);
    for name in ["config", "cache", "lib", "log"] {
        fs::create_dir_all(base.join(name)).unwrap();
    }
    let dir = |name: &str| base.join(name).display().to_string();
    fs::write(
        base.join("config/netdata.conf"),
        format!(
            "[global]\n  run as user = root\n  hostname = testhost\n[directories]\n  config = {}\n  \
             cache = {}\n  lib = {}\n  log = {}\n[db]\n  mode = ram\n  update every = 1\n[web]\n  \
             mode = none\n[ml]\n  enabled = no\n[plugins]\n  apps = no\n  go.d = no\n  python.d = no\n  \
             charts.d = no\n  ebpf = no\n",
            dir("config"), dir("cache"), dir("lib"), dir("log")
        ),
    )
    .unwrap();
    fs::write(
        base.join("config/exporting.conf"),
        format!(
            "[exporting:global]\n  enabled = yes\n[opentsdb:store]\n  enabled = yes\n  destination = \
             {}\n  update every = 1\n",
            store.opentsdb
        ),
    )
    .unwrap();
    let config = base.join("config/netdata.conf");
    let mut netdata = Command::new("netdata")
        .args(["-D", "-c", config.to_str().unwrap(), "-P", &dir("pid")])
        .stdout(Stdio::null())
        .stderr(fs::File::create(base.join("netdata.err")).unwrap())
        .spawn()
        .unwrap();
    let query = r#""group-aggregate": {"metric": "netdata.system.cpu.user", "step": "1h", "func": ["count"]},
        "range": {"from": "20200101T000000", "to": "20990101T000000"}"#;
    let mut answer = String::new();
    common::eventually("netdata's samples arrive", || {
        answer = store.query(query);
        // There is one line per hour; the test may cross a full hour, so add them up.
        let counts = answer.lines().filter_map(|line| line.split(',').nth(2)?.parse::<f64>().ok());
        if counts.sum::<f64>() >= 3.0 {
            return Ok(());
        }
        let (_, _, names) = request(
            "POST",
            store.http,
            "/api/suggest",
            &[],
            br#"{"select":"metric-names","starts-with":""}"#,
        )
        .unwrap();
        Err(format!("{answer}; {} names: {:.300}", names.lines().count(), names))
    });
    assert!(answer.contains("host=testhost"), "{answer}");
    netdata.kill().unwrap();
    netdata.wait().unwrap();
    assert_eq!(store.process.stop(), 0);
}

#[test]
fn imported_text_with_line_feeds_begins_no_row() {
    let base = folder("series-import-text");
    let data = base.join("data");
    let data = data.to_str().unwrap();
    // The text lies across the end of the first MiB, which is read at once.
    let line = "pad,host=web1 v=1 7\n";
    let mut lines = line.repeat((1 << 20) / line.len());
    lines.push_str(
        "log,host=web1 msg=\"x\nfake,host=db9 owned=1 7\ny\",n=1 7\nlast,host=web1 v=1 7\n",
    );
    let influx = base.join("lines.txt");
    fs::write(&influx, lines).unwrap();
    // A bulk string over the limit holds what looks like items.
    let fake = "+fake_resp host=db9\r\n:7\r\n+1\r\n".repeat(1000);
    let resp = base.join("items.resp");
    let after = "+after host=web1\r\n:7\r\n+1\r\n";
    let items = format!("+!log host=web1\r\n:7\r\n${}\r\n{fake}\r\n{after}", fake.len());
    fs::write(&resp, items).unwrap();
    let run = |words: &[&str]| run(&[&["series"], words].concat());
    assert_eq!(run(&["create", "--data", data]).0, 0);
    let (code, out, error) =
        run(&["import", "--data", data, "--format", "influx", influx.to_str().unwrap()]);
    assert_eq!(code, 0, "{out}{error}");
    let (code, out, error) = run(&["import", "--data", data, resp.to_str().unwrap()]);
    assert_eq!((code, out.trim()), (1, "imported: 1 samples, 1 refused"), "{error}");
    let (code, exported, error) = run(&["export", "--data", data]);
    assert_eq!(code, 0, "{error}");
    for stored in ["+log_n host=web1", "+last_v host=web1", "+after host=web1"] {
        assert!(exported.contains(stored), "{stored}");
    }
    assert!(exported.contains("x\nfake,host=db9 owned=1 7\ny\r\n"), "the text is stored");
    assert!(!exported.contains("+fake"), "a text became a row");
}

#[test]
fn serve_waits_for_the_process_that_has_the_store_open() {
    let base = folder("series-wait");
    let data = base.join("data");
    let first = Alone::start(&data, &[]);
    let ports = ["--resp", "off", "--udp", "off", "--opentsdb", "off", "--http", "127.0.0.1:0"];
    let words = [&["series", "serve", "--data", data.to_str().unwrap()][..], &ports].concat();
    let log = base.join("second.log");
    let second = Running::start(&words, &log);
    common::eventually("the second one waits", || {
        let text = fs::read_to_string(&log).unwrap();
        if text.contains("waits up to 10 s") { Ok(()) } else { Err(text) }
    });
    first.process.kill();
    second.line("ready: ");
    assert_eq!(second.stop(), 0);
}
