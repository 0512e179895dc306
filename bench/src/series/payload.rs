//! The same rows encoded for each protocol: random walks with six tags.

use std::ops::Range;

use prost::Message as _;
use readers::remote::{Label, Sample, TimeSeries, WriteRequest};

use crate::generate::{BEGIN_NS, COLUMNS, Kind, STEP_S, Walks};

/// Rows of one request or piece of a stream.
pub const REQUEST_ROWS: usize = 1000;
/// Rows of one datagram: as many as fit into one Ethernet frame.
const DATAGRAM_ROWS: usize = 6;

/// The protocol and form in which rows are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// RESP rows whose names are sent once, in a dictionary.
    Rows,
    /// RESP points, each with its name.
    Points,
    /// RESP rows in datagrams.
    Udp,
    /// `put` lines.
    OpenTsdb,
    /// Lines over HTTP.
    Influx,
    /// Remote write over HTTP.
    Remote,
}

impl Protocol {
    pub fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Points => "single points",
            Self::Udp => "rows in datagrams",
            Self::OpenTsdb => "opentsdb lines",
            Self::Influx => "influx lines",
            Self::Remote => "remote write",
        }
    }

    /// Returns a time as its rows contain it, with the same length from 2001 to 2109.
    fn stamp(self, time: i64) -> Vec<u8> {
        let ns = BEGIN_NS + time * STEP_S * 1_000_000_000;
        match self {
            Self::OpenTsdb => (ns / 1_000_000_000).to_string().into_bytes(),
            Self::Remote => {
                // Field 2 of a sample: milliseconds as a varint.
                let mut bytes = vec![0x10];
                prost::encoding::encode_varint((ns / 1_000_000) as u64, &mut bytes);
                bytes
            }
            _ => ns.to_string().into_bytes(),
        }
    }
}

/// Returns the tags of a row series, sorted by name.
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

fn spaced_tags(row: usize) -> String {
    tags(row).iter().map(|(k, v)| format!(" {k}={v}")).collect()
}

pub fn metric(column: usize) -> String {
    format!("cpu_m{column}")
}

fn metrics() -> String {
    let metrics: Vec<String> = (0..COLUMNS).map(metric).collect();
    metrics.join("|")
}

fn time_ns(time: i64) -> i64 {
    BEGIN_NS + time * STEP_S * 1_000_000_000
}

/// Rows that continue where the last call stopped.
pub struct Stream {
    protocol: Protocol,
    walks: Walks,
    rows: Range<usize>,
    time: i64,
}

impl Stream {
    /// Returns a stream of some row series.
    pub fn new(protocol: Protocol, kind: Kind, rows: Range<usize>) -> Self {
        Self { protocol, walks: Walks::new(kind, rows.end), rows, time: 0 }
    }

    /// Returns the rows of N further times, for a connection of its own.
    pub fn next(&mut self, times: i64) -> Vec<Vec<u8>> {
        let mut pieces = Vec::new();
        if self.protocol == Protocol::Rows {
            pieces.extend(dictionaries(self.rows.clone()));
        }
        for time in self.time..self.time + times {
            for rows in parts(self.rows.clone(), REQUEST_ROWS) {
                pieces.push(piece(self.protocol, &mut self.walks, time..time + 1, rows));
            }
        }
        self.time += times;
        pieces
    }
}

fn parts(rows: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    let end = rows.end;
    rows.step_by(most).map(move |from| from..(from + most).min(end))
}

/// Returns the dictionaries of a connection's rows, each as large as the server accepts.
pub fn dictionaries(rows: Range<usize>) -> impl Iterator<Item = Vec<u8>> {
    parts(rows, REQUEST_ROWS).map(|rows| {
        let mut text = format!("*{}\r\n", 2 * rows.len());
        for row in rows {
            text += &format!("+{}{}\r\n:{row}\r\n", metrics(), spaced_tags(row));
        }
        text.into_bytes()
    })
}

/// Returns the rows of some times as one piece, not yet compressed for [`Protocol::Remote`].
fn raw(protocol: Protocol, walks: &mut Walks, times: Range<i64>, rows: Range<usize>) -> Vec<u8> {
    let mut text = String::with_capacity(times.clone().count() * rows.len() * 220);
    let mut series = Vec::new();
    for time in times {
        for row in rows.clone() {
            let values = walks.next(row);
            match protocol {
                Protocol::Rows => resp(&mut text, &format!(":{row}"), time, &values),
                Protocol::Udp => {
                    let name = format!("+{}{}", metrics(), spaced_tags(row));
                    resp(&mut text, &name, time, &values);
                }
                Protocol::Points => points(&mut text, row, time, &values),
                Protocol::OpenTsdb => puts(&mut text, row, time, &values),
                Protocol::Influx => influx(&mut text, row, time, &values),
                Protocol::Remote => remote(&mut series, row, time, &values),
            }
        }
    }
    match protocol {
        Protocol::Remote => WriteRequest { timeseries: series }.encode_to_vec(),
        _ => text.into_bytes(),
    }
}

fn packed(protocol: Protocol, raw: &[u8]) -> Vec<u8> {
    match protocol {
        Protocol::Remote => snap::raw::Encoder::new().compress_vec(raw).unwrap_or_default(),
        _ => raw.to_vec(),
    }
}

/// Returns the rows of some times as one request, datagram or piece of a stream.
pub fn piece(
    protocol: Protocol,
    walks: &mut Walks,
    times: Range<i64>,
    rows: Range<usize>,
) -> Vec<u8> {
    let raw = raw(protocol, walks, times, rows);
    if protocol == Protocol::Remote { packed(protocol, &raw) } else { raw }
}

/// A piece that is sent repeatedly, each time with later times.
struct Stamped {
    bytes: Vec<u8>,
    /// Offset of each time in the bytes, and the number of steps after the first time.
    places: Vec<(usize, i64)>,
    points: u64,
}

/// Bytes to be sent together, and the number of points in them.
pub struct Piece<'a> {
    pub bytes: &'a [u8],
    pub points: u64,
}

/// A piece that is sent once.
pub struct Made {
    bytes: Vec<u8>,
    points: u64,
}

/// Rows that are generated once and sent repeatedly, each time with later times.
pub struct Loop {
    protocol: Protocol,
    pieces: Vec<Stamped>,
    /// Number of pieces with the same times.
    together: usize,
    times: i64,
    next: usize,
}

impl Loop {
    /// Returns about `times` rows of each of some row series, as pieces of at most `most` rows.
    pub fn new(
        protocol: Protocol,
        kind: Kind,
        rows: Range<usize>,
        times: i64,
        most: usize,
    ) -> Self {
        let each = (most / rows.len()).max(1) as i64;
        let (mut walks, mut pieces) = (Walks::new(kind, rows.end), Vec::new());
        for first in (0..times).step_by(each as usize) {
            for rows in parts(rows.clone(), most) {
                let points = (rows.len() * COLUMNS) as u64 * each as u64;
                let bytes = raw(protocol, &mut walks, first..first + each, rows);
                let stamps = (0..each).flat_map(|step| {
                    let stamp = protocol.stamp(first + step);
                    let found = bytes.windows(stamp.len()).enumerate();
                    let found = found.filter(move |(_, w)| **w == *stamp).map(|(at, _)| at);
                    found.map(move |at| (at, step)).collect::<Vec<_>>()
                });
                let places = stamps.collect();
                pieces.push(Stamped { bytes, places, points });
            }
        }
        let together = parts(rows, most).count();
        Self { protocol, pieces, together, times: each, next: 0 }
    }

    pub fn next(&mut self) -> Piece<'_> {
        let first = (self.next / self.together) as i64 * self.times;
        let at = self.next % self.pieces.len();
        self.next += 1;
        let Stamped { bytes, places, points } = &mut self.pieces[at];
        let stamps: Vec<_> = (0..self.times).map(|t| self.protocol.stamp(first + t)).collect();
        for (at, step) in places {
            let stamp = &stamps[*step as usize];
            bytes[*at..*at + stamp.len()].copy_from_slice(stamp);
        }
        Piece { bytes, points: *points }
    }
}

/// The requests of one connection.
pub enum Feed {
    Again(Loop),
    /// Requests generated in advance, because generating takes too long between two requests.
    Once(Vec<Made>, usize),
}

impl Feed {
    /// Returns rows of some row series, `request` rows per request. If they cannot be sent twice,
    /// at least `points` points are generated in advance.
    pub fn new(
        protocol: Protocol,
        kind: Kind,
        rows: Range<usize>,
        points: u64,
        request: usize,
    ) -> Self {
        let points_a_time = (rows.len() * COLUMNS) as u64;
        let times = match protocol {
            Protocol::Points | Protocol::OpenTsdb => 20,
            Protocol::Udp => 40,
            _ => 100,
        };
        let most = if protocol == Protocol::Udp { DATAGRAM_ROWS } else { request };
        // The number of bytes is the same for each part of the rows.
        let mut pieces = Loop::new(protocol, kind, rows, times, most);
        if protocol != Protocol::Remote {
            return Self::Again(pieces);
        }
        let (mut made, mut all) = (0, Vec::new());
        while made < points.max(points_a_time) {
            let piece = pieces.next();
            all.push(Made { bytes: packed(protocol, piece.bytes), points: piece.points });
            made += piece.points;
        }
        Self::Once(all, 0)
    }

    /// Returns the number of pieces sent so far.
    pub fn at(&self) -> usize {
        match self {
            Self::Again(pieces) => pieces.next,
            Self::Once(_, at) => *at,
        }
    }

    /// Continues after N pieces, for a server that has received these.
    pub fn seek(&mut self, to: usize) {
        match self {
            Self::Again(pieces) => pieces.next = to,
            Self::Once(_, at) => *at = to,
        }
    }

    /// Returns the next piece, if there is one.
    pub fn next(&mut self) -> Option<Piece<'_>> {
        match self {
            Self::Again(pieces) => Some(pieces.next()),
            Self::Once(pieces, at) => {
                let made = pieces.get(*at)?;
                *at += 1;
                Some(Piece { bytes: &made.bytes, points: made.points })
            }
        }
    }
}

/// Appends a row in RESP after its name or number.
fn resp(text: &mut String, name: &str, time: i64, values: &[f64; COLUMNS]) {
    *text += &format!("{name}\r\n:{}\r\n*{COLUMNS}\r\n", time_ns(time));
    for value in values {
        *text += &format!("+{value}\r\n");
    }
}

fn points(text: &mut String, row: usize, time: i64, values: &[f64; COLUMNS]) {
    let tags = spaced_tags(row);
    for (column, value) in values.iter().enumerate() {
        *text += &format!("+{}{tags}\r\n:{}\r\n+{value}\r\n", metric(column), time_ns(time));
    }
}

fn puts(text: &mut String, row: usize, time: i64, values: &[f64; COLUMNS]) {
    let (tags, seconds) = (spaced_tags(row), time_ns(time) / 1_000_000_000);
    for (column, value) in values.iter().enumerate() {
        *text += &format!("put {} {seconds} {value}{tags}\n", metric(column));
    }
}

fn influx(text: &mut String, row: usize, time: i64, values: &[f64; COLUMNS]) {
    *text += "cpu";
    for (tag, value) in tags(row) {
        *text += &format!(",{tag}={value}");
    }
    for (column, value) in values.iter().enumerate() {
        *text += &format!("{}m{column}={value}", if column == 0 { ' ' } else { ',' });
    }
    *text += &format!(" {}\n", time_ns(time));
}

fn remote(into: &mut Vec<TimeSeries>, row: usize, time: i64, values: &[f64; COLUMNS]) {
    let label = |name: &str, value: String| Label { name: name.into(), value };
    for (column, value) in values.iter().enumerate() {
        let mut labels = vec![label("__name__", metric(column))];
        labels.extend(tags(row).map(|(name, value)| label(name, value)));
        let samples = vec![Sample { value: *value, timestamp: time_ns(time) / 1_000_000 }];
        into.push(TimeSeries { labels, samples });
    }
}
