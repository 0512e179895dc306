//! Tests the readers of the protocols without sockets: accepted and refused rows, and random input.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::{after, contents, resp, store};
use proptest::prelude::*;
use prost::Message as _;
use readers::influx::Precision;
use readers::remote::{Label, RemoteReader, Sample, TimeSeries, WriteRequest};
use readers::{DictionaryQuota, RespReader, RowCollector, RowRefusal, TelnetReader, influx};
use series::{Ack, Store, StoreOptions};

#[test]
fn resp_accepts_points_rows_events_and_dictionaries() {
    let cases: &[(&str, &[&str])] = &[
        ("+cpu host=a\r\n+19700101T000001\r\n+1.5\r\n", &["cpu host=a 1000000000 1.5"]),
        ("+cpu host=a\n:7\n:-3\n", &["cpu host=a 7 -3"]),
        // A dictionary may contain a metric named `sync`.
        ("*2\n+sync\n:1\n:1\n:7\n:3\n+sync\n", &["sync 7 3"]),
        ("+x|y host=a\n:7\n*2\n+1\n:2\n", &["x host=a 7 1", "y host=a 7 2"]),
        ("$10\r\ncpu host=a\r\n:7\r\n$3\r\n1.5\r\n", &["cpu host=a 7 1.5"]),
        (
            "*4\n+cpu host=a\n:1\n+x|y host=b\n:2\n:1\n:7\n+5\n:2\n:8\n*2\n+6\n+7\n",
            &["cpu host=a 7 5", "x host=b 8 6", "y host=b 8 7"],
        ),
        ("+!log host=a\n:7\n+user=bob came\n", &["!log host=a 7 user=bob came"]),
        ("+x|y h=a\\nb\n:7\n*2\n+stale\n:2\n", &[r"x h=a\nb 7 stale", r"y h=a\nb 7 2"]),
    ];
    for (text, expected) in cases {
        let (found, refusals) = resp(text.as_bytes());
        assert_eq!(refusals, [], "{text}");
        assert_eq!(found, *expected, "{text}");
    }
}

#[test]
fn bad_resp_sample_is_rejected_with_its_text_and_others_stored() {
    let good = "+cpu host=a\r\n:7\r\n+1.5\r\n";
    let last = "+cpu host=z\r\n:9\r\n+2.5\r\n";
    let long = format!("+{}\r\n:1\r\n:1\r\n", "x".repeat(40_000));
    let bad: &[(&str, &str)] = &[
        ("hello\r\n", "hello"),
        ("+cpu host\r\n:1\r\n+1\r\n", "cpu host"),
        ("+cpu host=b\r\n+yesterday\r\n+1\r\n", "yesterday"),
        ("+cpu host=b\r\n:7\r\n+much\r\n", "much"),
        ("+cpu host=b\r\n", "cpu host=z"),
        ("+cpu host=b\r\n:7\r\n", "cpu host=z"),
        (":5\r\n:7\r\n+1\r\n", "5"),
        ("+x|y host=b\r\n:7\r\n+1\r\n", "1"),
        ("+x|y host=b\r\n:7\r\n*2\r\n+1\r\n", "cpu host=z"),
        ("+x|y host=b\r\n:7\r\n*2\r\n+1\r\n+no\r\n", "no"),
        ("+x|y host=b\r\n:7\r\n*3\r\n+1\r\n+2\r\n+3\r\n", "3"),
        ("+x|y host=b\r\n:7\r\n*900\r\n+1\r\n+2\r\n", "900"),
        (&long, &"x".repeat(199)),
    ];
    for (text, offending) in bad {
        let (found, refusals) = resp(format!("{good}{text}{last}").as_bytes());
        assert_eq!(found, ["cpu host=a 7 1.5", "cpu host=z 9 2.5"], "{text:.60}");
        assert_eq!(refusals.len(), 1, "{text:.60}: {refusals:?}");
        assert!(refusals[0].text.ends_with(offending), "{text:.60}: {refusals:?}");
    }
}

#[test]
fn row_at_the_maximum_time_is_refused_alone() {
    let text = format!("put cpu 7 1 host=a\nput cpu {} 2 host=a\nput cpu 8 3 host=a\n", i64::MAX);
    let (found, refusals) = after(|collector| {
        TelnetReader::default().read(text.as_bytes(), collector);
    });
    assert_eq!(found, ["cpu host=a 7000000000 1", "cpu host=a 8000000000 3"]);
    assert_eq!(refusals.len(), 1);
    assert!(refusals[0].reason.contains("correct the clock"), "{refusals:?}");
}

#[test]
fn row_more_than_a_day_in_the_future_is_refused_alone() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let (fine, ahead) = (now + 23 * 3600, now + 25 * 3600);
    let text = format!("put cpu {ahead} 1 host=a\nput cpu {fine} 2 host=a\n");
    let (found, refusals) = after(|collector| {
        TelnetReader::default().read(text.as_bytes(), collector);
    });
    assert_eq!(found, [format!("cpu host=a {fine}000000000 2")]);
    assert_eq!(refusals.len(), 1);
    assert!(refusals[0].reason.contains("ahead of the clock"), "{refusals:?}");
}

#[test]
fn refused_remote_sample_does_not_affect_its_series() {
    let label = Label { name: "__name__".into(), value: "up".into() };
    let sample = |timestamp| Sample { value: 1.0, timestamp };
    let samples = [5, i64::MAX, 6].map(sample).to_vec();
    let request = WriteRequest { timeseries: vec![TimeSeries { labels: vec![label], samples }] };
    let body = snap::raw::Encoder::new().compress_vec(&request.encode_to_vec()).unwrap();
    let (found, refusals) =
        after(|collector| RemoteReader::default().read(&body, collector).unwrap());
    assert_eq!(found, ["up 5000000 1", "up 6000000 1"]);
    assert_eq!(refusals.len(), 1);
    assert!(refusals[0].reason.contains("out of range"), "{refusals:?}");
}

#[test]
fn prometheus_staleness_marker_and_any_label_are_stored() {
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    let samples = [sample(1.0, 5), sample(stale, 6), sample(f64::NAN, 7)].concat();
    let labels = [label("__name__", "up"), label("command", "a\nb\t\u{1}")].concat();
    let body = field(1, &[labels, samples].concat());
    let (found, refusals) = remote(&RemoteReader::default(), &body);
    assert_eq!(refusals, []);
    let name = r"up command=a\nb\t\x01";
    let expected = ["5000000 1", "6000000 stale", "7000000 NaN"].map(|row| format!("{name} {row}"));
    assert_eq!(found, expected);
}

#[test]
fn each_telnet_put_is_accepted_or_refused_alone() {
    let text = b"put cpu 1427040405 1.5 host=a\nput cpu 1427040405123 2 host=a dc=x\r\n\
        put cpu never 1 host=a\nput cpu 5 x host=a\nfoo\n\nversion\nput cpu 1 7 host=a";
    let (found, refusals) = after(|collector| {
        let mut reader = TelnetReader::default();
        let (done, asked) = reader.read(text, collector);
        assert_eq!(asked, [readers::TelnetCommand::Version]);
        reader.end(&text[done..], collector);
    });
    let expected = [
        "cpu dc=x host=a 1427040405123000000 2",
        "cpu host=a 1000000000 7",
        "cpu host=a 1427040405000000000 1.5",
    ];
    assert_eq!(found, expected);
    let told: Vec<(u64, &str)> = refusals.iter().map(|r| (r.line, &*r.text)).collect();
    assert_eq!(told, [(3, "put cpu never 1 host=a"), (4, "put cpu 5 x host=a"), (5, "foo")]);
}

#[test]
fn influx_lines_become_rows_and_bad_lines_are_reported() {
    let text = concat!(
        "# a comment\n",
        "cpu,host=a user=1.5,sys=2i 10\n",
        "cpu\\ x,ho\\ st=a\\,b\\=c v=t 11\n",
        "log,host=a text=\"it is, \\\"so\\\"\",n=1 12\n",
        "m,h=a f=1\n",
        "cpu,host=a user= 13\n",
        "cpu,host user=1 14\n",
        "cpu,host=a user=\"shut\"x 15\n",
        "cpu\n",
        "p|q,host=a f=1 16",
    );
    let (found, refusals) = after(|collector| {
        influx::read(text.as_bytes(), Precision::parse(Some("s")).unwrap(), 99, collector);
    });
    let expected = [
        "!log_text host=a 12000000000 it is, \"so\"",
        "cpu\\ x_v ho\\ st=a,b\\=c 11000000000 1",
        "cpu_sys host=a 10000000000 2",
        "cpu_user host=a 10000000000 1.5",
        "log_n host=a 12000000000 1",
        "m_f h=a 99 1",
        "p\\|q_f host=a 16000000000 1",
    ];
    assert_eq!(found, expected);
    let lines: Vec<u64> = refusals.iter().map(|r| r.line).collect();
    assert_eq!(lines, [6, 7, 8, 9]);
    assert!(Precision::parse(Some("weeks")).is_none());
}

#[test]
fn influx_line_with_more_fields_than_a_row_holds_is_accepted() {
    for width in [1, 30] {
        let fields = (0..600).map(|i| format!("{}{i}={i}", "f".repeat(width)));
        let text = format!("mysql,host=a {},text=\"x\" 7\n", fields.collect::<Vec<_>>().join(","));
        let (found, refusals) = after(|collector| {
            influx::read(text.as_bytes(), Precision::NANOSECONDS, 99, collector);
        });
        assert_eq!((found.len(), refusals), (601, vec![]), "width {width}");
        let last = format!("mysql_{}599 host=a 7 599", "f".repeat(width));
        assert!(found.contains(&last), "width {width}");
    }
}

#[test]
fn influx_lines_are_split_by_the_length_of_their_own_name() {
    let fields = |count: usize, width: usize| {
        let fields = (0..count).map(|i| format!("{}{i}={i}", "f".repeat(width)));
        fields.collect::<Vec<_>>().join(",")
    };
    // The second name is too long for one row, and the line with more fields than columns occurs
    // twice.
    let (named, many) = (fields(30, 100), fields(300, 1));
    let long = "x".repeat(1500);
    let text = format!(
        "m,h=a {named} 7\nm,h={long} {named} 7\nm,h=a {named} 8\nn,h=a {many} 7\nn,h=a {many} 8\n"
    );
    let (found, refusals) =
        after(|collector| influx::read(text.as_bytes(), Precision::NANOSECONDS, 99, collector));
    assert_eq!((found.len(), refusals), (3 * 30 + 2 * 300, vec![]));
    assert!(found.contains(&format!("m_{}29 h={long} 7 29", "f".repeat(100))));
    assert!(found.contains(&"n_f299 h=a 8 299".to_owned()));
}

#[test]
fn influx_line_with_oversized_text_stores_none_of_its_numbers() {
    let text = format!("log,host=a n=1,text=\"{}\" 7\nm,h=a f=1 8\n", "x".repeat(5000));
    let (found, refusals) = after(|collector| {
        influx::read(text.as_bytes(), Precision::NANOSECONDS, 99, collector);
    });
    assert_eq!(found, ["m_f h=a 8 1"]);
    assert_eq!(refusals.len(), 1);
    assert!(refusals[0].reason.contains("event_bytes=5000"), "{refusals:?}");
}

/// Generates an Influx line without a time.
fn influx_line() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["m", "n", "m_a", "n\\ x"]);
    let tags = prop::sample::select(vec!["", ",h=a", ",h=b\\,c,i=d", ",h"]);
    let field = (
        prop::sample::select(vec!["a", "b", "a_b", "c\\=d"]),
        prop::sample::select(vec!["1", "2i", "t", "\"x\"", "bad"]),
    );
    let field = field.prop_map(|(name, value)| format!("{name}={value}"));
    (name, tags, prop::collection::vec(field, 0..4))
        .prop_map(|(name, tags, fields)| format!("{name}{tags} {}", fields.join(",")))
}

proptest! {
    /// The cache of the previous line does not change the result.
    #[test]
    fn influx_lines_parse_equally_together_and_alone(
        lines in prop::collection::vec(influx_line(), 0..12),
    ) {
        let lines = lines.iter().enumerate().map(|(time, line)| format!("{line} {time}\n"));
        let lines: Vec<String> = lines.collect();
        let read = |text: &str, collector: &mut RowCollector<'_>| {
            influx::read(text.as_bytes(), Precision::NANOSECONDS, 99, collector);
        };
        let (together, refused) = after(|collector| read(&lines.concat(), collector));
        let (apart, expected) = after(|collector| lines.iter().for_each(|line| read(line, collector)));
        prop_assert_eq!(together, apart);
        let told = |all: Vec<RowRefusal>| -> Vec<(String, String)> {
            all.into_iter().map(|r| (r.reason, r.text)).collect()
        };
        prop_assert_eq!(told(refused), told(expected));
    }
}

fn request(series: &[(&str, f64)]) -> Vec<u8> {
    let label = |name: &str, value: &str| Label { name: name.into(), value: value.into() };
    let one = |(name, value): &(&str, f64)| TimeSeries {
        labels: vec![label("__name__", name), label("job", "a b")],
        samples: vec![Sample { value: *value, timestamp: 5 }],
    };
    let request = WriteRequest { timeseries: series.iter().map(one).collect() };
    snap::raw::Encoder::new().compress_vec(&request.encode_to_vec()).unwrap()
}

#[test]
fn remote_write_stores_valid_series_and_reports_others() {
    let body = request(&[("up", 1.0), ("", 2.0), ("down", 3.0)]);
    let (found, refusals) =
        after(|collector| RemoteReader::default().read(&body, collector).unwrap());
    assert_eq!(found, ["down job=a\\ b 5000000 3", "up job=a\\ b 5000000 1"]);
    assert_eq!(refusals.len(), 1);
    assert!(refusals[0].text.contains("job"), "{refusals:?}");
    after(|collector| assert!(RemoteReader::default().read(b"nonsense", collector).is_err()));
    // A few bytes that claim to be gigabytes.
    after(|collector| {
        assert!(RemoteReader::default().read(b"\xff\xff\xff\xff\x0f\x00", collector).is_err());
    });
}

/// Encodes a protobuf field of bytes.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut length = content.len();
    while length > 0x7f {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    [&bytes, content].concat()
}

fn label(name: &str, value: &str) -> Vec<u8> {
    field(1, &[field(1, name.as_bytes()), field(2, value.as_bytes())].concat())
}

fn sample(value: f64, millis: i64) -> Vec<u8> {
    field(2, &Sample { value, timestamp: millis }.encode_to_vec())
}

fn remote(reader: &RemoteReader, message: &[u8]) -> (Vec<String>, Vec<RowRefusal>) {
    let body = snap::raw::Encoder::new().compress_vec(message).unwrap();
    after(|collector| reader.read(&body, collector).unwrap())
}

#[test]
fn native_histogram_is_rejected_and_other_samples_are_stored() {
    let histogram = [label("__name__", "took"), field(4, &[0x08, 0x05])].concat();
    let plain = [label("__name__", "up"), sample(1.0, 5)].concat();
    let message = [field(1, &histogram), field(1, &plain)].concat();
    let (found, refusals) = remote(&RemoteReader::default(), &message);
    assert_eq!(found, ["up 5000000 1"]);
    assert_eq!(refusals.len(), 1);
    assert!(refusals[0].reason.contains("native histograms"), "{refusals:?}");
    assert_eq!((refusals[0].line, &*refusals[0].text), (1, "took"));
}

#[test]
fn remote_write_labels_may_appear_anywhere_in_a_series() {
    // A label without a value is ignored.
    let named = [label("env", ""), label("__name__", "up")].concat();
    let parts = [label("job", "a"), sample(1.0, 5), named, sample(2.0, 6)];
    let message = field(1, &parts.concat());
    let (found, refusals) = remote(&RemoteReader::default(), &message);
    assert_eq!(
        (found, refusals),
        (vec!["up job=a 5000000 1".into(), "up job=a 6000000 2".into()], vec![])
    );
}

#[test]
fn cached_remote_series_maps_to_the_same_row() {
    let (_folder, store) = store();
    let reader = RemoteReader::default();
    let names = ["a", "b", "c"];
    // The requests differ in the order and number of their series.
    for (round, order) in [[0, 1, 2], [2, 0, 1], [1, 1, 0]].iter().enumerate() {
        let one = |i: &usize| {
            let millis = (round * 10 + i) as i64;
            field(
                1,
                &[label("__name__", names[*i]), label("x", "1"), sample(*i as f64, millis)]
                    .concat(),
            )
        };
        let message: Vec<u8> = order.iter().flat_map(one).collect();
        let body = snap::raw::Encoder::new().compress_vec(&message).unwrap();
        let mut collector = RowCollector::new(&store);
        reader.read(&body, &mut collector).unwrap();
        for batch in collector.finish().batches {
            store.write(batch, Ack::Persisted).unwrap();
        }
    }
    let expected = [
        "a x=1 0 0",
        "a x=1 10000000 0",
        "a x=1 20000000 0",
        "b x=1 1000000 1",
        "b x=1 11000000 1",
        "b x=1 21000000 1",
        "c x=1 12000000 2",
        "c x=1 2000000 2",
    ];
    assert_eq!(contents(&store), expected);
}

#[test]
fn oversized_array_after_a_rejected_number_is_also_rejected() {
    let good = "+cpu host=a\r\n:7\r\n+1.5\r\n";
    let (found, refusals) = resp(format!(":5\r\n:7\r\n*99999\r\n{good}").as_bytes());
    assert_eq!(found, ["cpu host=a 7 1.5"]);
    let told: Vec<&str> = refusals.iter().map(|r| &*r.text).collect();
    assert_eq!(told, ["5", "99999"], "what is passed over is told");
}

#[test]
fn rows_skipped_with_an_oversized_array_are_each_rejected() {
    let mut text = "*2\n+cpu host=a\n:7\n:7\n:1\n*1000\n".to_owned();
    text.push_str(&":7\n:2\n+1\n".repeat(3));
    let (found, refusals) = resp(text.as_bytes());
    assert!(found.is_empty(), "{found:?}");
    let texts: Vec<&str> = refusals.iter().map(|r| &*r.text).collect();
    assert_eq!(texts, ["1000", "7", "7", "7"]);
    // Neither the values of the array nor the samples after them are stored.
    let behind = format!("*2\n+cpu host=a\n:7\n:7\n:1\n*300\n{}:7\n:2\n+1\n", "+9\n".repeat(300));
    let (found, refusals) = resp(behind.as_bytes());
    assert_eq!((&*found, refusals.len()), (&["cpu host=a 2 1".to_owned()][..], 1));
}

#[test]
fn dictionaries_of_all_connections_share_one_quota() {
    // Each name without a series takes a second entry.
    let room = DictionaryQuota::new(4);
    let (mut one, mut other) = (RespReader::new(room.clone()), RespReader::new(room.clone()));
    let told = |reader: &mut RespReader, text: &str| {
        let (_, refusals) = after(|collector| {
            assert_eq!(reader.read(text.as_bytes(), collector), text.len());
        });
        refusals.iter().map(|r| r.text.clone()).collect::<Vec<_>>()
    };
    let entries = "*4\n+cpu host=a\n:1\n+cpu host=b\n:2\n";
    assert!(told(&mut one, entries).is_empty());
    assert!(told(&mut one, entries).is_empty(), "a number that is there already takes no room");
    assert_eq!(told(&mut other, entries), ["1", "2"]);
    drop(one);
    assert!(told(&mut other, entries).is_empty(), "the room of a connection that ended is free");
}

#[test]
fn request_larger_than_a_log_segment_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions { segment_bytes: 1 << 20, ..StoreOptions::default() };
    let (store, _) = Store::open(&folder.path().join("s"), options).unwrap();
    let count = 80_000;
    let mut text = String::new();
    for i in 0..count {
        // Random floats and jittered times do not compress.
        let noise = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let value = f64::from_bits(0x3ff0_0000_0000_0000 | noise >> 12);
        let time = i64::from(i) * 1_000_000 + (noise >> 45) as i64;
        writeln!(text, "m,host=a f={value} {time}").unwrap();
    }
    let mut collector = RowCollector::new(&store);
    influx::read(text.as_bytes(), Precision::NANOSECONDS, 99, &mut collector);
    let taken = collector.finish();
    assert_eq!((taken.refused, taken.samples), (0, u64::from(count as u32)));
    assert!(taken.batches.len() > 1);
    for batch in taken.batches {
        store.write(batch, Ack::Persisted).unwrap();
    }
    assert_eq!(contents(&store).len(), count as usize);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(parts in proptest::collection::vec(prop_oneof![
        Just("+cpu host=a\r\n"), Just(":7\r\n"), Just("*2\r\n"), Just("$5\r\n"), Just("*-1\n"),
        Just("put "), Just("a,b=c "), Just("f=1"), Just("\""), Just("\\"), Just("\n"), Just("+1.5\n"),
        Just("*99999999999\r\n"), Just("$99999999\r\n"), Just("=,"), Just(" 17\n"),
    ], 0..40), noise in proptest::collection::vec(any::<u8>(), 0..200), at in any::<usize>()) {
        let mut bytes = parts.concat().into_bytes();
        let at = at % (bytes.len() + 1);
        bytes.splice(at..at, noise);
        resp(&bytes);
        after(|collector| {
            let mut reader = TelnetReader::default();
            let (done, _) = reader.read(&bytes, collector);
            reader.end(&bytes[done..], collector);
        });
        after(|collector| influx::read(&bytes, Precision::parse(None).unwrap(), 1, collector));
        after(|collector| drop(RemoteReader::default().read(&bytes, collector)));
    }

    #[test]
    fn resp_stream_decodes_equally_at_every_split(cuts in proptest::collection::vec(0usize..220, 0..6)) {
        let text = b"*2\n+cpu host=d\n:1\n:1\n:7\n+5\n+x|y host=a\r\n:7\r\n*2\r\n+1\r\n:2\r\nbad\r\n\
            $10\r\ncpu host=a\r\n+19700101T000001\r\n$3\r\n1.5\r\n+!log host=a\n:7\n+user=bob\n";
        let whole = resp(text);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(text.len())).collect();
        cuts.push(text.len());
        cuts.sort_unstable();
        let pieces = after(|collector| {
            let mut reader = RespReader::default();
            let mut done = 0;
            for cut in cuts {
                done += reader.read(&text[done..cut], collector);
            }
            reader.end(&text[done..], collector);
        });
        prop_assert_eq!(whole, pieces);
    }
}
