//! Invalid names and numbers are refused with their text in every protocol.

use crate::common::{after, resp};
use prost::Message as _;
use readers::influx::{self, Precision};
use readers::remote::{Label, RemoteReader, Sample, TimeSeries, WriteRequest};
use readers::{RespReader, RowRefusal, TelnetReader};

/// Returns the refused texts.
fn refused_texts(refusals: &[RowRefusal]) -> Vec<&str> {
    refusals.iter().map(|r| &*r.text).collect()
}

fn telnet(text: &str) -> (Vec<String>, Vec<RowRefusal>) {
    after(|collector| drop(TelnetReader::default().read(text.as_bytes(), collector)))
}

fn lines(text: &str) -> (Vec<String>, Vec<RowRefusal>) {
    after(|collector| influx::read(text.as_bytes(), Precision::NANOSECONDS, 99, collector))
}

#[test]
fn number_beyond_float_range_is_rejected_and_inf_is_accepted() {
    let (found, refusals) = resp(b"+m a=1\n:7\n+1e400\n+m a=1\n:8\n+-1e999\n+m a=1\n:9\n+inf\n");
    assert_eq!(
        (found, refused_texts(&refusals)),
        (vec!["m a=1 9 inf".to_owned()], vec!["1e400", "-1e999"])
    );
    let (found, refusals) = telnet("put m 7 1e400 a=1\nput m 8 -Infinity a=1\nput m 9 nan a=1\n");
    assert_eq!(found, ["m a=1 8000000000 -inf", "m a=1 9000000000 NaN"]);
    assert_eq!(refused_texts(&refusals), ["put m 7 1e400 a=1"]);
    let (found, refusals) = lines("m,a=1 f=1e400 7\nm,a=1 f=1e300 8\n");
    assert_eq!((found.len(), refused_texts(&refusals)), (1, vec!["m,a=1 f=1e400 7"]));
    let (found, refusals) = lines("m f=1 7\nm,a=1 f=1 8\n");
    assert_eq!((found.len(), refused_texts(&refusals)), (1, vec!["m f=1 7"]));
}

#[test]
fn name_without_metric_or_tag_without_value_is_rejected() {
    let good = "+dt b=2\n:7\n+1\n";
    let (found, refusals) =
        resp(format!("+ a=1\n:7\n+1\n{good}+dt a=\n:7\n+1\n+a=1\n:7\n+1\n").as_bytes());
    assert_eq!(
        (&*found, refused_texts(&refusals)),
        (&["dt b=2 7 1".into()][..], vec![" a=1", "dt a=", "a=1"])
    );
    let (found, refusals) = telnet("put dt 7 1 a=\nput dt 7 1 b=2\nput dt=x 7 1 b=2\n");
    assert_eq!(found, ["dt b=2 7000000000 1"]);
    assert_eq!(refused_texts(&refusals), ["put dt 7 1 a=", "put dt=x 7 1 b=2"]);
    let (found, refusals) = lines("m,a= f=1 7\nm,b=2 f=1 7\n");
    assert_eq!(
        (found, refused_texts(&refusals)),
        (vec!["m_f b=2 7 1".to_owned()], vec!["m,a= f=1 7"])
    );
    assert!(refusals[0].reason.contains("a tag without a value"), "{refusals:?}");
}

#[test]
fn only_influx_lines_need_a_tag() {
    assert_eq!(telnet("put m 7 1\r\n"), (vec!["m 7000000000 1".into()], Vec::new()));
    assert_eq!(resp(b"*2\r\n+m\r\n:1\r\n:1\r\n:7\r\n:1\r\n").0, ["m 7 1"]);
    let (found, refusals) = lines("m f=1 7\n");
    assert!(found.is_empty() && refusals[0].reason.contains("no tags"), "{refusals:?}");
}

#[test]
fn tag_with_the_name_of_the_metric_label_is_refused() {
    let (found, refusals) = resp(
        b"+m __name__=x\n:7\n+1\n+!log __name__=x\n:7\n+text\n+m a=1 _\\_n\\ame__=x\n:7\n+1\n\
          +__name__ a=__name__\n:7\n+1\n+m __name__x=1\n:8\n+1\n",
    );
    assert_eq!(found, ["__name__ a=__name__ 7 1", "m __name__x=1 8 1"]);
    assert_eq!(
        refused_texts(&refusals),
        ["m __name__=x", "!log __name__=x", "m a=1 _\\_n\\ame__=x"]
    );
    assert_eq!(refusals[0].reason, "DB __name__ is the metric in PromQL; rename the tag");
    let (found, refusals) = resp(b"*4\n+m __name__=x\n:1\n+m a=1\n:2\n:2\n:7\n+1\n:1\n:7\n+1\n");
    assert_eq!(
        (&*found, refused_texts(&refusals)),
        (&["m a=1 7 1".into()][..], vec!["m __name__=x", "1", "1"])
    );
    let (found, refusals) = telnet("put m 7 1 a=1 __name__=x\nput m 7 1 a=1\n");
    assert_eq!(found, ["m a=1 7000000000 1"]);
    assert_eq!(refusals[0].reason, "put: __name__ is the metric in PromQL; rename the tag");
    let (found, refusals) = lines("m,__name__=x f=1 7\nm,__name__=x f=\"text\" 7\nm,a=1 f=1 7\n");
    assert_eq!((&*found, refusals.len()), (&["m_f a=1 7 1".into()][..], 2));
    assert_eq!(refusals[1].reason, "__name__ is the metric in PromQL; rename the tag");
}

#[test]
fn remote_series_with_two_metrics_is_refused_alone() {
    let series = |metrics: &[&str]| TimeSeries {
        labels: metrics
            .iter()
            .map(|m| Label { name: "__name__".into(), value: (*m).into() })
            .collect(),
        samples: vec![Sample { value: 1.0, timestamp: 5 }],
    };
    let request = WriteRequest { timeseries: vec![series(&["up", "down"]), series(&["up"])] };
    let body = snap::raw::Encoder::new().compress_vec(&request.encode_to_vec()).unwrap();
    let (found, refusals) =
        after(|collector| RemoteReader::default().read(&body, collector).unwrap());
    assert_eq!((&*found, refusals.len()), (&["up 5000000 1".into()][..], 1));
    assert_eq!(refusals[0].reason, "the label __name__ twice; send it once");
}

#[test]
fn put_for_several_metrics_or_events_is_rejected_with_its_line() {
    let (found, refusals) = telnet("put a|b 7 1 h=x\nput !log 7 1 h=x\nput a 7 1 h=x\n");
    assert_eq!(found, ["a h=x 7000000000 1"]);
    assert_eq!(refused_texts(&refusals), ["put a|b 7 1 h=x", "put !log 7 1 h=x"]);
    assert_eq!(refusals[0].reason, "put: 1 values for 2 metrics; give one each");
    assert!(refusals[1].reason.contains("holds events"), "{refusals:?}");
}

#[test]
fn refused_influx_line_names_its_cause_and_spares_the_others() {
    let cases = [
        ("m,a=1 f=9223372036854775808i 7", "field f: 9223372036854775808 is out of range"),
        ("m,a=1 f=18446744073709551615u 7", "field f: 18446744073709551615 is out of range"),
        ("m,a=1 f=1.5i 7", "field f: 1.5 is not an integer"),
        ("m,a=1 n=1,f=NaN 7", "field f: NaN is not a value of this protocol"),
        ("m,a=1 f=-inf 7", "field f: -inf is not a value of this protocol"),
        ("m,a=1 f=1e400 7", "field f: 1e400 is out of the range of a float"),
        ("m,a=1 f=much 7", "field f: much is not a number, boolean or quoted text"),
        ("m,a=1 f= 7", "field f: no value"),
        ("m,a=1 f=\"shut\"x 7", "field f: something follows the closing quote"),
        ("m,a=1 f=1 9223372036854775808", "time 9223372036854775808 is out of range"),
        ("m,a=1 f=1 noon", "time noon is not an integer"),
        ("m,a=1 f=1, g=2 7", "time g=2 7 is not an integer"),
    ];
    for (line, cause) in cases {
        let (found, refusals) = lines(&format!("m,b=2 f=1 7\n{line}\nm,b=2 f=1 8\n"));
        assert_eq!(found, ["m_f b=2 7 1", "m_f b=2 8 1"], "{line}");
        let [refusal] = refusals.as_slice() else { panic!("{line}: {refusals:?}") };
        assert!(refusal.reason.starts_with(cause), "{line}: {}", refusal.reason);
        assert_eq!((refusal.line, &*refusal.text), (2, line));
    }
    let seconds = Precision::parse(Some("s")).unwrap();
    let (_, refusals) = after(|collector| {
        influx::read(b"m,a=1 f=1 9223372036854775", seconds, 99, collector);
    });
    assert!(refusals[0].reason.contains("is out of range"), "{refusals:?}");
}

#[test]
fn refused_text_escapes_only_control_characters() {
    let (_, refusals) = lines("m,a=1 f=\"C:\\dir\t\u{1b}\n");
    assert_eq!(refused_texts(&refusals), ["m,a=1 f=\"C:\\dir\\t\\u{1b}"]);
    let (_, refusals) = resp(b"+a\\\\b\"c\n:7\n+1\n");
    assert_eq!(refused_texts(&refusals), ["a\\\\b\"c"]);
    assert!(!refusals[0].reason.contains('"'), "the text is in the refusal once: {refusals:?}");
}

/// A text with what an attacker would like to be read as a row of another machine.
const TEXT: &str = "log,host=web1 msg=\"x\nfake,host=db9 owned=1 7\ny\",n=1 7";

#[test]
fn line_feeds_in_an_influx_text_begin_no_record() {
    let (found, refusals) =
        lines(&format!("{TEXT}\nlast,host=web1 v=1 8\n# a \"comment\nm,a=1 f=1 9"));
    let rows = ["log_n host=web1 7 1", "last_v host=web1 8 1", "m_f a=1 9 1"];
    let event = "!log_msg host=web1 7 x\nfake,host=db9 owned=1 7\ny";
    assert!(rows.iter().all(|row| found.contains(&(*row).to_owned())), "{found:?}");
    assert!(found.contains(&event.to_owned()), "{found:?}");
    assert_eq!((found.len(), refusals.len()), (4, 0), "{refusals:?}");
    // Lines are counted with those inside of texts.
    let (_, refusals) = lines(&format!("{TEXT}\nbad\n"));
    assert_eq!(refusals[0].line, 4, "{refusals:?}");
}

#[test]
fn open_influx_text_passes_over_the_rest_as_one_refusal() {
    let body =
        "m,a=1 f=1 7\n\nm,a=1 n=1,s=\"x\ny\",t=\"open\nfake,host=db9 owned=1 7\nm,a=1 f=2 8\n";
    let (found, refusals) = lines(body);
    assert_eq!(found, ["m_f a=1 7 1"]);
    let [refusal] = refusals.as_slice() else { panic!("{refusals:?}") };
    assert_eq!(refusal.line, 4, "the line of the quote that is open: {refusal:?}");
    assert!(refusal.reason.contains("no closing quote; 5 lines were passed over"), "{refusal:?}");
    let (found, refusals) = lines("m,a=1 s=\"open\\\"");
    assert_eq!((found.len(), refusals.len(), refusals[0].line), (0, 1, 1), "{refusals:?}");
    // Quotes elsewhere open nothing.
    let (found, _) = lines("\"m,a=\"1 f\"=1 7\nm,a=1 f=1 8\n");
    assert_eq!(found.last().unwrap(), "m_f a=1 8 1");
}

#[test]
fn influx_record_over_the_limit_is_one_refusal_in_any_pieces() {
    let long = format!("big,a=1 s=\"{}\nfake,host=db9 owned=1 7\n\",n=1 7", "z".repeat(70_000));
    let body = format!("m,a=1 f=1 7\n{long}\nm,a=1 f=2 8\n");
    let whole = lines(&body);
    assert_eq!(whole.0, ["m_f a=1 7 1", "m_f a=1 8 2"]);
    assert_eq!(whole.1.len(), 1, "{:?}", whole.1);
    assert!(whole.1[0].reason.contains("over the limit of 65536 bytes"), "{:?}", whole.1);
    for piece in [1000, 65_535, 65_536, 65_537, 70_010] {
        let mut left_max = 0;
        let found = after(|collector| {
            let mut reader = influx::InfluxReader::new(Precision::NANOSECONDS);
            let mut buffer = Vec::new();
            for bytes in body.as_bytes().chunks(piece) {
                buffer.extend_from_slice(bytes);
                let done = reader.read(&buffer, false, 99, collector);
                buffer.drain(..done);
                left_max = left_max.max(buffer.len());
            }
            reader.read(&buffer, true, 99, collector);
        });
        assert_eq!(found.0, whole.0, "pieces of {piece}");
        assert_eq!((found.1.len(), found.1[0].line), (1, 2), "pieces of {piece}: {:?}", found.1);
        assert!(left_max <= influx::LINE_BYTES_MAX, "{left_max} bytes are held");
    }
}

#[test]
fn content_of_a_refused_bulk_string_is_never_read_as_items() {
    let fake = "+fake host=db9\r\n:7\r\n+1\r\n";
    let content = fake.repeat(1000);
    let good = "+m a=1\r\n:8\r\n+2\r\n";
    let stream = format!("+!log a=1\r\n:7\r\n${}\r\n{content}\r\n{good}", content.len());
    for piece in [1, 7, 16_384, stream.len()] {
        let (found, refusals) = after(|collector| {
            let (mut reader, mut buffer) = (RespReader::default(), Vec::new());
            for bytes in stream.as_bytes().chunks(piece) {
                buffer.extend_from_slice(bytes);
                let done = reader.read(&buffer, collector);
                buffer.drain(..done);
            }
            reader.end(&buffer, collector);
        });
        assert_eq!(found, ["m a=1 8 2"], "pieces of {piece}");
        assert_eq!(refusals.len(), 1, "{refusals:?}");
        assert!(refusals[0].reason.contains("over the limit of 16384 bytes"), "{refusals:?}");
    }
    // Nothing after a length that cannot be true, or that the content does not have, is read.
    for (broken, count) in
        [("$x\r\n", 1), ("$99999999999\r\n", 1), ("$4\r\n123456\r\n", 1), ("$20000\r\n", 2)]
    {
        let stream = format!("{good}+!log a=1\r\n:7\r\n{broken}{fake}{content}");
        let (found, refusals) = resp(stream.as_bytes());
        assert_eq!(found, ["m a=1 8 2"], "{broken:?}");
        assert_eq!(refusals.len(), count, "{broken:?}: {refusals:?}");
    }
}
