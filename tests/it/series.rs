//! The series store as a real process, killed with SIGKILL under writes over every protocol, and
//! stopped cleanly with the log on and off. Acknowledged rows are kept, rows that a query has shown
//! are kept, and no query fails because of another series.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::common::load::{Acknowledged, Ended, Load, PROTOCOLS, Ports, ROWS, STREAMS};
use crate::common::series::Alone;
use crate::common::{folder, run};
use env::random::{Random as _, SeededRandom, SystemRandom};

/// Default number of kills of one run; `HOLDFAST_KILLS` overrides it.
const KILLS: u64 = 8;
/// Default number of clean stops of one run; `HOLDFAST_STOPS` overrides it.
const STOPS: u64 = 4;
/// Number of kills after which new folders are used.
const ERA: usize = 8;
/// Number of series of each protocol; the kills use these numbers in turn.
const SERIES: [u64; 8] = [100, 1_000, 100, 2_000, 100, 1_000, 300, 1_000];
/// Number of series of each protocol in two kills of a run, one with a small and one with a large
/// log; `HOLDFAST_SERIES` overrides it.
const SERIES_MANY: u64 = 5_000;
const SECOND: i64 = 1_000_000_000;
/// Maximum age of rows of unacknowledged streams that are not yet persisted.
const FORGET: Duration = Duration::from_millis(100);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |n| n.parse().unwrap())
}

/// Asserts that every acknowledged row is stored with its value.
fn check(store: &Alone, told: &Acknowledged) {
    let all = told.iter().flat_map(|(p, requests)| p.metrics().iter().map(move |m| (m, requests)));
    for (metric, requests) in all {
        let found = store.samples(metric);
        let rows = requests.iter().flat_map(|r| r.hosts().map(move |host| (host, *r)));
        let missing = rows.filter_map(|(host, request)| {
            let time = request.seconds as i64 * SECOND;
            let name = format!("{metric} host={host}");
            let here = found.get(&name).and_then(|times| times.get(&time)).copied();
            (here != Some(request.value as f64)).then_some((name, time, request.value, here))
        });
        let missing: Vec<_> = missing.take(5).collect();
        assert!(missing.is_empty(), "acknowledged and not there, for example {missing:?}");
    }
    let nothing = store.query(r#""select": "no_such_series", "range": {"from": 0, "to": 1}"#);
    assert_eq!(nothing, "");
}

/// Asserts that queries over all series succeed while these are written.
fn nothing_fails(store: &Alone) {
    for metric in PROTOCOLS.iter().flat_map(|p| p.metrics()) {
        let answer = store.query(&format!(r#""aggregate": {{"{metric}": "count"}}"#));
        let failed: Vec<&str> = answer.lines().filter(|line| line.starts_with('-')).collect();
        assert!(!answer.is_empty() && failed.is_empty(), "{metric}: {failed:?}");
    }
}

/// Returns the end of an unacknowledged stream as a query shows it now: the last row's number plus
/// one. With `whole`, fails if a row before it is missing.
fn stream_end(store: &Alone, metric: &str, life: u64, base: u64, whole: bool) -> u64 {
    let found = store.samples(metric);
    let Some(times) = found.get(&format!("{metric} life={life}")) else { return 0 };
    for ((time, value), row) in times.iter().zip(0..) {
        if whole {
            assert_eq!(*time, (base + row) as i64 * SECOND, "{metric}: a hole before row {row}");
        }
        assert_eq!(*value as u64 + base, (*time / SECOND) as u64);
    }
    times.values().last().map_or(0, |row| *row as u64 + 1)
}

/// Returns how many rows of an unacknowledged stream the kill lost, and the age of the oldest of
/// them: counted from before the last request of each protocol that was acknowledged, since all of
/// the store may have been waiting for the machine.
fn forgotten(sent: &[Instant], kept: u64, alive: Option<Instant>) -> (u64, Duration) {
    let first = sent.get(kept as usize).zip(alive);
    let late = first.map(|(first, alive)| alive.saturating_duration_since(*first));
    ((sent.len() as u64).saturating_sub(kept), late.unwrap_or_default())
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Creates a folder whose store is configured with a small or a large log and head.
fn data(base: &Path, small: bool) -> PathBuf {
    let data = base.join(if small { "small" } else { "large" });
    fs::create_dir_all(&data).unwrap();
    let text = if small {
        "segment_mib = 1\nhead_mib = 1\nseal_after = \"1s\"\n"
    } else {
        "segment_mib = 64\n"
    };
    fs::write(data.join("series.toml"), text).unwrap();
    data
}

#[test]
fn kills_under_load_lose_nothing_acknowledged_in_any_protocol() {
    let seed = number("HOLDFAST_SEED", SystemRandom.next_u64().unwrap());
    println!("HOLDFAST_SEED={seed}");
    let random = SeededRandom::new(seed);
    let kills = number("HOLDFAST_KILLS", KILLS);
    let most = number("HOLDFAST_SERIES", SERIES_MANY);
    let base = folder("series-kills");
    let (mut rows, mut lost, mut late) = (0, 0, Vec::new());
    for (era, first) in (0..kills).step_by(ERA).enumerate() {
        let mut lives = Lives::new(&base.join(format!("era{era}")));
        for kill in first..kills.min(first + ERA as u64) {
            let many = kill == kills / 2 || kill == kills / 2 + 1;
            let series = if many { most } else { SERIES[kill as usize % SERIES.len()] };
            let instant = Duration::from_millis(random.next_u64().unwrap() % 150);
            let (stored, gone, oldest) = lives.live((kill % 2) as usize, series, instant);
            (rows, lost) = (rows + stored, lost.max(gone));
            late.push(oldest);
        }
        lives.end();
    }
    // In rare cases a busy machine delays one connection but not the others.
    let too_late = late.iter().filter(|late| **late > FORGET).count() as u64;
    let within = late.iter().all(|late| *late <= 50 * FORGET);
    assert!(too_late * 4 <= kills.max(4) && within, "older than {FORGET:?} and lost: {late:?}");
    println!(
        "{kills} kills, {rows} rows acknowledged, none lost; of streams of 1,000 rows and lines and 500 \
         datagrams a second without acknowledgements at most {lost} rows were lost by one kill"
    );
}

/// Two stores, one with a small and one with a large log, that are killed repeatedly.
struct Lives {
    folders: [PathBuf; 2],
    all: [Acknowledged; 2],
    turn: u64,
    begin: u64,
}

impl Lives {
    fn new(base: &Path) -> Self {
        let folders = [data(base, true), data(base, false)];
        Self { folders, all: Default::default(), turn: 0, begin: now() - 3600 }
    }

    /// Starts a store, kills it under load, and checks it after the next start. Returns the number
    /// of acknowledged rows, and, of the unacknowledged streams, the number of lost rows and the
    /// age of the oldest lost row.
    fn live(&mut self, place: usize, series: u64, instant: Duration) -> (u64, u64, Duration) {
        let (turn, begin) = (self.turn, self.begin);
        let store = Alone::start(&self.folders[place], &[]);
        let load = Load::start(Ports::of(&store), begin, series, turn);
        load.wait(if series >= SERIES_MANY { series / ROWS } else { 2 });
        // This is no wait for an event: the process is killed at a random instant.
        std::thread::sleep(instant);
        nothing_fails(&store);
        let before =
            STREAMS.map(|metric| stream_end(&store, metric, turn, begin, metric != "datagram"));
        store.process.kill();
        let Ended { told, sent, alive } = load.end();

        let again = Alone::start(&self.folders[place], &[]);
        check(&again, &told);
        let after =
            STREAMS.map(|metric| stream_end(&again, metric, turn, begin, metric != "datagram"));
        for ((metric, before), after) in STREAMS.iter().zip(before).zip(after) {
            assert!(after >= before, "{metric}: a query had shown {before} rows, {after} are left");
        }
        let lost = sent.iter().zip(after).map(|(sent, kept)| forgotten(sent, kept, alive));
        let (lost, late): (Vec<u64>, Vec<Duration>) = lost.unzip();
        again.process.kill();
        self.turn += told.values().map(Vec::len).max().unwrap_or_default() as u64 + 1;
        let rows = told.values().map(|t| t.len() as u64 * ROWS).sum::<u64>();
        for (protocol, requests) in told {
            self.all[place].entry(protocol).or_default().extend(requests);
        }
        let most = |lost: Vec<u64>| lost.into_iter().max().unwrap_or_default();
        (rows, most(lost), late.into_iter().max().unwrap_or_default())
    }

    /// Asserts that all acknowledged rows of all runs are stored and that every file is intact.
    fn end(self) {
        for (data, told) in self.folders.iter().zip(&self.all) {
            let store = Alone::start(data, &[]);
            check(&store, told);
            assert_eq!(store.process.stop(), 0);
            let (code, out, error) = run(&["series", "verify", "--data", data.to_str().unwrap()]);
            assert_eq!(code, 0, "{out}{error}");
            fs::remove_dir_all(data).unwrap();
        }
    }
}

#[test]
fn backup_under_load_restores_everything_acknowledged_before_it() {
    let base = folder("series-backup");
    let data = data(&base, true);
    let store = Alone::start(&data, &[]);
    let begin = now() - 3600;
    let load = Load::start(Ports::of(&store), begin, 1_000, 0);
    let (mut before, mut copies) = (Vec::new(), Vec::new());
    for copy in ["first", "second"] {
        load.wait(before.iter().min().copied().unwrap_or_default() + 20);
        before = load.acknowledged();
        let to = base.join(copy);
        let (from, to) = (data.to_str().unwrap(), to.to_str().unwrap());
        let (code, out, error) = run(&["backup", "--data", from, "--to", to]);
        assert_eq!(code, 0, "{out}{error}");
        copies.push((copy, before.clone()));
    }
    assert_eq!(store.process.stop(), 0);
    let told = load.end().told;
    for (copy, before) in copies {
        let (from, restored) = (base.join(copy), base.join(format!("{copy}-restored")));
        let words = ["restore", "--from", from.to_str().unwrap(), "--data"];
        let (code, out, error) = run(&[&words[..], &[restored.to_str().unwrap()]].concat());
        assert_eq!(code, 0, "{out}{error}");
        let again = Alone::start(&restored, &[]);
        let told = told.iter().zip(&before).map(|((protocol, requests), n)| {
            (*protocol, requests.iter().take(*n as usize).copied().collect())
        });
        check(&again, &told.collect());
        assert_eq!(again.process.stop(), 0);
        let (code, out, error) = run(&["series", "verify", "--data", restored.to_str().unwrap()]);
        assert_eq!(code, 0, "{out}{error}");
    }
}

#[test]
fn clean_stop_loses_no_rows_with_the_log_on_or_off() {
    let stops = number("HOLDFAST_STOPS", STOPS);
    let base = folder("series-stops");
    let data = data(&base, false);
    let begin = now() - 3600;
    let (mut turn, mut all) = (0, Acknowledged::new());
    for stop in 0..stops {
        let wal = ["always", "off", "off", "interval"][stop as usize % 4];
        let store = Alone::start(&data, &["--wal", wal]);
        check(&store, &all);
        let load = Load::start(Ports::of(&store), begin, 300, turn);
        load.wait(3);
        assert_eq!(store.process.stop(), 0, "with the log {wal}");
        let told = load.end().told;
        turn += told.values().map(Vec::len).max().unwrap_or_default() as u64 + 1;
        for (protocol, requests) in told {
            all.entry(protocol).or_default().extend(requests);
        }
    }
    let store = Alone::start(&data, &[]);
    let replayed = store.process.printed().iter().any(|line| line.starts_with("replayed: "));
    assert!(!replayed, "something was left to be replayed by a clean stop");
    check(&store, &all);
    assert_eq!(store.process.stop(), 0);
    println!("{stops} stops");
}
