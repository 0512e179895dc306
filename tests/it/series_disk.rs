//! A series store whose disk is full: every protocol refuses rows with the reason, no acknowledged
//! row is lost, and the store recovers once there is space. The test needs root to mount a small
//! file system; without root it prints a message and passes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::mounted::Mounted;
use crate::common::series::{Alone, post, send_and_read};
use crate::common::{eventually, folder, run};

/// Number of rows in one request.
const ROWS: u64 = 500;

/// The acknowledged rows: the value at each second.
struct Writer<'a> {
    store: &'a Alone,
    begin: u64,
    turn: u64,
    told: BTreeMap<i64, u64>,
}

impl Writer<'_> {
    /// Sends one request over RESP, with values that do not compress. Returns the server's answer.
    fn write(&mut self) -> String {
        self.turn += 1;
        let second = self.begin + self.turn;
        let mut text = String::new();
        for host in 0..ROWS {
            let noise = (self.turn * ROWS + host).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12;
            let _ = write!(text, "+noise host={host}\r\n:{second}000000000\r\n+0.{noise}\r\n");
        }
        let _ = write!(text, "+kept host=a\r\n:{second}000000000\r\n:{}\r\n+sync\r\n", self.turn);
        let said = send_and_read(self.store.resp, text.as_bytes()).unwrap();
        if said == "+OK\r\n" {
            self.told.insert(second as i64 * 1_000_000_000, self.turn);
        }
        said
    }
}

fn check(store: &Alone, told: &BTreeMap<i64, u64>) {
    let found = store.samples("kept").remove("kept host=a").unwrap_or_default();
    let missing = told.iter().filter(|(time, turn)| found.get(time) != Some(&(**turn as f64)));
    let missing: Vec<_> = missing.take(3).collect();
    assert!(missing.is_empty(), "of {} acknowledged, missing: {missing:?}", told.len());
}

#[test]
fn full_series_disk_refuses_rows_keeps_data_and_recovers() {
    let base = folder("series-disk");
    let Some(mounted) = Mounted::new(base.join("disk"), 64) else { return };
    let data = mounted.0.join("data");
    fs::create_dir_all(&data).unwrap();
    fs::write(data.join("series.toml"), "segment_mib = 1\nhead_mib = 1\n").unwrap();
    let store = Alone::start(&data, &[]);
    let begin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() - 7200;
    let mut writer = Writer { store: &store, begin, turn: 0, told: BTreeMap::new() };
    for _ in 0..20 {
        assert_eq!(writer.write(), "+OK\r\n");
    }
    let ballast = mounted.0.join("ballast");
    // Fill the disk: the last write fails.
    let _ = fs::write(&ballast, vec![1; 64 << 20]);
    let mut refused = String::new();
    eventually("the store refuses", || {
        refused = writer.write();
        if refused == "+OK\r\n" { Err("it still takes rows".into()) } else { Ok(()) }
    });
    println!("{} acknowledged, then: {refused}", writer.told.len());
    assert!(refused.contains("-DB") && !refused.contains("+OK"), "{refused}");
    let named = |text: &str| {
        let text = text.to_lowercase();
        text.contains("full") || text.contains("space")
    };
    assert!(named(&refused), "{refused}");
    // A line or two may still fit into space that the log has already allocated.
    let line = format!("noise,host=x v=1 {}\n", begin + 1);
    eventually("a refusal over HTTP", || {
        let (status, body) = post(store.http, "/write?precision=s", &[], line.as_bytes()).unwrap();
        let refused = matches!(status, 503 | 507) && named(&body);
        if refused { Ok(()) } else { Err(format!("{status}: {body}")) }
    });
    // Stored rows can be read at all times.
    check(&store, &writer.told);
    let url = format!("http://{}", store.http);
    let disk_full = || {
        let (code, out, error) = run(&["series", "stat", "--url", &url]);
        assert_eq!(code, 0, "{error}");
        out.lines().find(|line| line.starts_with("disk full: ")).unwrap().to_owned()
    };
    assert!(disk_full().starts_with("disk full: writes are refused: "), "{}", disk_full());

    fs::remove_file(&ballast).unwrap();
    eventually("the store takes rows again", || match writer.write() {
        said if said == "+OK\r\n" => Ok(()),
        said => Err(said),
    });
    assert_eq!(disk_full(), "disk full: no");
    let told = writer.told;
    check(&store, &told);
    store.process.kill();
    let again = Alone::start(&data, &[]);
    check(&again, &told);
    assert_eq!(again.process.stop(), 0);
    let (code, out, error) = run(&["series", "verify", "--data", data.to_str().unwrap()]);
    assert_eq!(code, 0, "{out}{error}");
}
