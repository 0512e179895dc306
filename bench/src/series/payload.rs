//! The same rows as bytes of each protocol: random walks of two decimals, six tags.

use std::ops::Range;

use ingest::remote::{Label, Sample, TimeSeries, WriteRequest};
use prost::Message as _;

use crate::generate::{BEGIN_NS, COLUMNS, Kind, STEP_S, Walks};

/// Rows of one request.
const REQUEST_ROWS: usize = 1000;

/// How rows travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// RESP rows whose names stand once, in a dictionary.
    Rows,
    /// Lines over HTTP.
    Influx,
    /// Remote write over HTTP.
    Remote,
}

impl Protocol {
    pub fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Influx => "influx lines",
            Self::Remote => "remote write",
        }
    }
}

/// Tags of a row series, sorted by name.
pub fn tags(row: usize) -> [(&'static str, String); 6] {
    [
        ("arch", "x64".into()),
        ("dc", (row % 7).to_string()),
        ("host", format!("host_{row}")),
        ("os", "linux".into()),
        ("rack", (row % 50).to_string()),
        ("team", format!("t{}", row % 20)),
    ]
}

pub fn metric(column: usize) -> String {
    format!("cpu_m{column}")
}

fn time_ns(time: i64) -> i64 {
    BEGIN_NS + time * STEP_S * 1_000_000_000
}

/// All of it: requests, or for [`Protocol::Rows`] pieces of one stream.
pub fn payload(protocol: Protocol, rows: usize, times: i64) -> Vec<Vec<u8>> {
    Stream::new(protocol, Kind::Gauges, 0..rows).next(times)
}

/// Rows that go on where they stopped.
pub struct Stream {
    protocol: Protocol,
    walks: Walks,
    rows: Range<usize>,
    time: i64,
}

impl Stream {
    /// Rows of some row series.
    pub fn new(protocol: Protocol, kind: Kind, rows: Range<usize>) -> Self {
        Self { protocol, walks: Walks::new(kind, rows.end), rows, time: 0 }
    }

    /// The rows of so many more times, for a connection of its own.
    pub fn next(&mut self, times: i64) -> Vec<Vec<u8>> {
        let mut pieces = Vec::new();
        let end = self.rows.end;
        let parts = || self.rows.clone().step_by(REQUEST_ROWS);
        if self.protocol == Protocol::Rows {
            // As the server limits the entries of one dictionary.
            pieces.extend(parts().map(|from| dictionary(from, (from + REQUEST_ROWS).min(end))));
        }
        for time in self.time..self.time + times {
            for from in parts() {
                let to = (from + REQUEST_ROWS).min(end);
                let walks = &mut self.walks;
                pieces.push(match self.protocol {
                    Protocol::Rows => resp(walks, time, from, to),
                    Protocol::Influx => influx(walks, time, from, to),
                    Protocol::Remote => remote(walks, time, from, to),
                });
            }
        }
        self.time += times;
        pieces
    }
}

pub fn dictionary(from: usize, to: usize) -> Vec<u8> {
    let metrics: Vec<String> = (0..COLUMNS).map(metric).collect();
    let mut text = format!("*{}\r\n", 2 * (to - from));
    for row in from..to {
        let tags: Vec<String> = tags(row).iter().map(|(k, v)| format!("{k}={v}")).collect();
        text += &format!("+{} {}\r\n:{row}\r\n", metrics.join("|"), tags.join(" "));
    }
    text.into_bytes()
}

pub fn resp(walks: &mut Walks, time: i64, from: usize, to: usize) -> Vec<u8> {
    let mut text = String::with_capacity((to - from) * 130);
    for row in from..to {
        text += &format!(":{row}\r\n:{}\r\n*{COLUMNS}\r\n", time_ns(time));
        for value in walks.next(row) {
            text += &format!("+{value}\r\n");
        }
    }
    text.into_bytes()
}

/// Rows made once and sent again and again, each time with later times.
pub struct Loop {
    pieces: Vec<(Vec<u8>, Vec<usize>)>,
    at: usize,
    time: i64,
}

/// Digits of a time in nanoseconds, from 2001 to 2286.
const TIME_DIGITS: usize = 19;

impl Loop {
    /// `times` rows of each of `rows` row series.
    pub fn new(walks: &mut Walks, rows: usize, times: i64) -> Self {
        let pieces = (0..times).map(|time| {
            let text = resp(walks, time, 0, rows);
            let digits = format!("\r\n:{}\r\n", time_ns(time)).into_bytes();
            let found = text.windows(digits.len()).enumerate().filter(|(_, w)| *w == digits);
            let places = found.map(|(at, _)| at + 3).collect();
            (text, places)
        });
        Self { pieces: pieces.collect(), at: 0, time: 0 }
    }

    /// One row of each.
    pub fn next(&mut self) -> &[u8] {
        let digits = time_ns(self.time).to_string();
        let (text, places) = &mut self.pieces[self.at];
        for place in places {
            text[*place..*place + TIME_DIGITS].copy_from_slice(digits.as_bytes());
        }
        self.at = (self.at + 1) % self.pieces.len();
        self.time += 1;
        &self.pieces[self.at.checked_sub(1).unwrap_or(self.pieces.len() - 1)].0
    }
}

fn influx(walks: &mut Walks, time: i64, from: usize, to: usize) -> Vec<u8> {
    let mut text = String::with_capacity((to - from) * 220);
    for row in from..to {
        text += "cpu";
        for (tag, value) in tags(row) {
            text += &format!(",{tag}={value}");
        }
        for (column, value) in walks.next(row).into_iter().enumerate() {
            text += &format!("{}m{column}={value}", if column == 0 { ' ' } else { ',' });
        }
        text += &format!(" {}\n", time_ns(time));
    }
    text.into_bytes()
}

fn remote(walks: &mut Walks, time: i64, from: usize, to: usize) -> Vec<u8> {
    let label = |name: &str, value: String| Label { name: name.into(), value };
    let mut timeseries = Vec::with_capacity((to - from) * COLUMNS);
    for row in from..to {
        for (column, value) in walks.next(row).into_iter().enumerate() {
            let mut labels = vec![label("__name__", metric(column))];
            labels.extend(tags(row).map(|(name, value)| label(name, value)));
            let samples = vec![Sample { value, timestamp: time_ns(time) / 1_000_000 }];
            timeseries.push(TimeSeries { labels, samples });
        }
    }
    let message = WriteRequest { timeseries }.encode_to_vec();
    snap::raw::Encoder::new().compress_vec(&message).unwrap_or_default()
}
