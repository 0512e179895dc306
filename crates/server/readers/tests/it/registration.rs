//! A refused row leaves no series behind, and a line of several rows registers all of them or none.

use crate::common::contents;
use env::files::SimDisk;
use prost::Message as _;
use readers::influx::{self, Precision};
use readers::remote::{self, Label, Sample, TimeSeries, WriteRequest};
use readers::{CollectedRows, DictionaryQuota, RespReader, RowCollector, TelnetReader};
use series::{Ack, NameKind, NameList, Selector, Store, StoreOptions, Wal};
use std::path::Path;
use std::sync::Arc;

/// A time in the year 2262.
const FAR_MS: i64 = i64::MAX / 1_000_000;

fn store(series_max: u64) -> Store {
    let files = Arc::new(SimDisk::new(1));
    let options = StoreOptions { series_max, background: false, files, ..StoreOptions::default() };
    Store::open(Path::new("/s"), StoreOptions { wal: Wal::Off, ..options }).unwrap().0
}

/// Runs a reader and stores its rows.
fn taken(store: &Store, read: impl FnOnce(&mut RowCollector<'_>)) -> CollectedRows {
    let mut collector = RowCollector::new(store);
    read(&mut collector);
    let mut taken = collector.finish();
    for batch in taken.batches.drain(..) {
        store.write(batch, Ack::Persisted).unwrap();
    }
    taken
}

fn names(store: &Store) -> Vec<String> {
    store.find(&Selector::default()).iter().map(series::Series::name).collect()
}

fn series(name: &str, samples: Vec<Sample>) -> TimeSeries {
    let label = |name: &str, value: &str| Label { name: name.into(), value: value.into() };
    TimeSeries { labels: vec![label("__name__", name), label("host", "a")], samples }
}

fn body(timeseries: Vec<TimeSeries>) -> Vec<u8> {
    let message = WriteRequest { timeseries }.encode_to_vec();
    snap::raw::Encoder::new().compress_vec(&message).unwrap()
}

#[test]
fn refused_rows_of_every_protocol_leave_no_series() {
    let store = store(1_000_000);
    let last_ns = i64::MAX;
    let refusals = |text: String, read: &dyn Fn(&[u8], &mut RowCollector<'_>)| {
        let taken = taken(&store, |collector| read(text.as_bytes(), collector));
        assert_eq!(names(&store), Vec::<String>::new(), "{text}");
        taken.refused
    };
    let telnet: &dyn Fn(&[u8], &mut RowCollector<'_>) =
        &|text, collector| drop(TelnetReader::default().read(text, collector));
    assert_eq!(refusals(format!("put t {FAR_MS}000000 1 host=a\n"), telnet), 1);
    assert_eq!(refusals("put a|b 7 1 host=a\n".into(), telnet), 1);
    assert_eq!(refusals("put !log 7 1 host=a\n".into(), telnet), 1);

    let resp: &dyn Fn(&[u8], &mut RowCollector<'_>) = &|text, collector| {
        let mut reader = RespReader::default();
        let done = reader.read(text, collector);
        reader.end(&text[done..], collector);
    };
    assert_eq!(refusals(format!("+r host=a\n:{last_ns}\n+1\n"), resp), 1);
    assert_eq!(refusals("+r host=a\n:7\n+text\n".into(), resp), 1);
    assert_eq!(refusals("+r|s host=a\n:7\n*3\n+1\n+2\n+3\n".into(), resp), 1);
    assert_eq!(refusals("+r host=a\n".into(), resp), 1);
    assert_eq!(refusals("*4\n+r host=a\n:1\n+r host=b\n:2\n".into(), resp), 0);
    assert_eq!(refusals(format!("*2\n+r host=a\n:1\n:1\n:{last_ns}\n+1\n"), resp), 1);

    let influx: &dyn Fn(&[u8], &mut RowCollector<'_>) =
        &|text, collector| influx::read(text, Precision::NANOSECONDS, 99, collector);
    assert_eq!(refusals(format!("i,host=a x=1,y=\"text\" {last_ns}\n"), influx), 1);
    let long = "x".repeat(series::EVENT_BYTES_MAX + 1);
    assert_eq!(refusals(format!("i,host=a x=1,y=\"{long}\" 7\n"), influx), 1);
    assert_eq!(refusals("!i,host=a x=1 7\n".into(), influx), 1);

    let far = Sample { value: 1.0, timestamp: FAR_MS };
    let body = body(vec![series("none", Vec::new()), series("far", vec![far])]);
    let refused = taken(&store, |collector| remote::read(&body, collector).unwrap()).refused;
    assert_eq!((refused, names(&store)), (1, Vec::new()));
    assert_eq!(store.stats().series, 0);
    let list = NameList { kind: NameKind::Metric, metric: String::new() };
    assert_eq!(store.list(&list, "", "", 10), Vec::<String>::new());
}

/// The histogram is field 4 of a series, which the builder of tests does not have.
#[test]
fn refused_histogram_leaves_no_series() {
    let store = store(10);
    let mut one = series("h", Vec::new()).encode_to_vec();
    one.extend([4 << 3 | 2, 0]);
    let mut message = vec![1 << 3 | 2, one.len() as u8];
    message.extend(one);
    let body = snap::raw::Encoder::new().compress_vec(&message).unwrap();
    let taken = taken(&store, |collector| remote::read(&body, collector).unwrap());
    assert_eq!((taken.refused, names(&store)), (1, Vec::new()));
    assert_eq!(store.refused_histogram(|metric| metric == "h").as_deref(), Some("h"));
    assert_eq!(store.refused_histogram(|metric| metric == "other"), None);
}

#[test]
fn series_is_registered_with_its_first_accepted_sample() {
    let store = store(10);
    let at = |timestamp| Sample { value: 1.0, timestamp };
    let of = |name: &str| {
        let samples = vec![at(FAR_MS), at(7), at(8)];
        body(vec![series(name, samples), series("cached", vec![at(7)])])
    };
    for name in ["a", "b", "a"] {
        let taken = taken(&store, |collector| remote::read(&of(name), collector).unwrap());
        assert_eq!((taken.refused, taken.samples), (1, 3));
    }
    assert_eq!(names(&store), ["a host=a", "b host=a", "cached host=a"]);
    let text = format!(
        "*4\n+r host=a\n:1\n+x|y host=a\n:2\n:1\n:{}\n+1\n:1\n:7\n+1\n:2\n:7\n*2\n+1\n+2\n:1\n:8\n+2\n",
        i64::MAX
    );
    let mut reader = RespReader::new(DictionaryQuota::new(4));
    let refused =
        taken(&store, |collector| assert!(reader.read(text.as_bytes(), collector) > 0)).refused;
    assert_eq!((refused, names(&store).len()), (1, 6));
    // The two names have series now, so two more fit into the quota.
    let more = "*2\n+s host=a\n:3\n:3\n:7\n+1\n";
    let refused =
        taken(&store, |collector| assert!(reader.read(more.as_bytes(), collector) > 0)).refused;
    assert_eq!((refused, names(&store).len(), contents(&store).len()), (0, 7, 10));
}

#[test]
fn line_of_several_rows_is_registered_as_a_whole_or_not_at_all() {
    let store = store(5);
    let influx = |text: &str| {
        taken(&store, |c| influx::read(text.as_bytes(), Precision::NANOSECONDS, 99, c))
    };
    let full = influx("m,host=a a=1,b=\"x\",c=2,d=\"y\",e=3,f=4 7\n");
    assert_eq!((full.refused, names(&store).len()), (1, 0));
    let reason = &full.refusals[0].reason;
    assert!(reason.contains("series limit of 5") && reason.contains("five minutes"), "{reason}");
    // The same event twice in a line is one series.
    assert_eq!(influx("m,host=a a=1,b=\"x\",b=\"y\",c=2,d=\"y\",e=3 7\n").refused, 0);
    assert_eq!(names(&store).len(), 5);
    assert_eq!(influx("m,host=a a=2,b=\"x\",c=2,d=\"y\",e=3 8\n").refused, 0);
}
