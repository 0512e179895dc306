//! The Influx line protocol: `measurement,tag=value field=1.5,other=2i time`.
//!
//! A field becomes the metric `measurement_field`. The fields of a record are one row, or several if
//! they exceed the columns of a row. Integers stay integers, booleans are 1 and 0, a text field is
//! an event of `!measurement_field`. A record is a line, except that a text may contain line feeds
//! (`records.rs`). A record that is too long, or whose text has no closing quote, is one refusal, and
//! nothing of it is read as another record.

mod fields;
mod records;

use query::time::parse_int;
use series::{COLUMNS_MAX, NAME_BYTES_MAX, RowLookup, Value};

use crate::collector::RowCollector;

use fields::{Field, FieldValue, find_unescaped, not_an_integer, parse_fields, unquote};
use records::{RecordScan, record_end};

/// Longest record, in bytes.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// Bytes of a record that is passed over which its refusal may repeat.
const SHOWN_BYTES: usize = 1024;

/// Unit of the times of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Precision(i64);

impl Precision {
    /// Nanoseconds.
    pub const NANOSECONDS: Self = Self(1);

    /// Parses the name of a unit in the query string; the default is nanoseconds.
    pub fn parse(name: Option<&str>) -> Option<Self> {
        Some(Self(match name.unwrap_or("ns") {
            "" | "n" | "ns" => 1,
            "u" | "us" | "µ" => 1000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        }))
    }
}

/// Reads all records of a request. `now_ns` is the time of records without one.
pub fn read(body: &[u8], precision: Precision, now_ns: i64, collector: &mut RowCollector<'_>) {
    InfluxReader::new(precision).read(body, true, now_ns, collector);
}

/// Reads records from a stream of bytes.
#[derive(Debug)]
pub struct InfluxReader {
    precision: Precision,
    /// Lines read so far.
    lines: u64,
    /// The record over the limit that is being passed over.
    passing: Option<PassedRecord>,
}

/// A record over the limit, while its end is looked for.
#[derive(Debug)]
struct PassedRecord {
    scan: RecordScan,
    /// Its first bytes.
    shown: Vec<u8>,
}

impl InfluxReader {
    pub fn new(precision: Precision) -> Self {
        Self { precision, lines: 0, passing: None }
    }

    /// Reads the complete records of a buffer. Returns the number of bytes consumed; what is left is
    /// at most [`LINE_BYTES_MAX`] bytes long. If the stream has `ended`, all bytes are consumed.
    pub fn read(
        &mut self,
        buffer: &[u8],
        ended: bool,
        now_ns: i64,
        collector: &mut RowCollector<'_>,
    ) -> usize {
        let mut scratch = Scratch::default();
        let mut done = self.pass_over(buffer, ended, collector);
        while let Some(rest) = buffer.get(done..).filter(|rest| !rest.is_empty()) {
            match record_end(rest) {
                Ok((end, line_feeds)) => {
                    let record = rest.get(..end).unwrap_or_default();
                    self.record(record, line_feeds, now_ns, &mut scratch, collector);
                    done += end + 1;
                }
                Err(scan) if ended && !scan.is_in_text() => {
                    self.record(rest, scan.line_feeds, now_ns, &mut scratch, collector);
                    return buffer.len();
                }
                Err(scan) if ended || rest.len() > LINE_BYTES_MAX => {
                    let shown = rest.get(..SHOWN_BYTES).unwrap_or(rest).to_vec();
                    self.passing = Some(PassedRecord { scan, shown });
                    self.pass_over(&[], ended, collector);
                    return buffer.len();
                }
                Err(_) => break,
            }
        }
        done
    }

    /// Passes over the rest of a record over the limit. Returns the number of bytes consumed.
    fn pass_over(&mut self, buffer: &[u8], ended: bool, collector: &mut RowCollector<'_>) -> usize {
        let Some(passing) = &mut self.passing else { return 0 };
        let end = passing.scan.feed(buffer);
        if end.is_some() || ended {
            self.refuse_passed(collector);
        }
        end.map_or(buffer.len(), |end| end + 1)
    }

    /// Refuses the record that was passed over, and names the line of the quote that made it long.
    fn refuse_passed(&mut self, collector: &mut RowCollector<'_>) {
        let Some(PassedRecord { scan, shown }) = self.passing.take() else { return };
        let lines = scan.line_feeds + 1;
        let (line, reason) = if scan.is_in_text() {
            let line = self.lines + 1 + scan.quote_after;
            (
                line,
                format!(
                    "the text that begins in this line has no closing quote; {} passed over",
                    counted(lines)
                ),
            )
        } else {
            (self.lines + 1, over_limit(lines))
        };
        collector.refuse(line, reason, shown.trim_ascii());
        self.lines += lines;
    }

    fn record<'a>(
        &mut self,
        record: &'a [u8],
        line_feeds: u64,
        now_ns: i64,
        scratch: &mut Scratch<'a>,
        collector: &mut RowCollector<'_>,
    ) {
        let line = self.lines + 1;
        self.lines += line_feeds + 1;
        let record = record.trim_ascii();
        if record.is_empty() || record.starts_with(b"#") {
            return;
        }
        let taken = if record.len() > LINE_BYTES_MAX {
            Err(over_limit(line_feeds + 1))
        } else {
            read_line(record, self.precision, now_ns, scratch, collector)
        };
        if let Err(reason) = taken {
            collector.refuse(line, reason, record);
        }
    }
}

/// Returns the reason for the refusal of a record of this many lines.
fn over_limit(lines: u64) -> String {
    format!(
        "record is over the limit of {LINE_BYTES_MAX} bytes; shorten it; {} passed over",
        counted(lines)
    )
}

fn counted(lines: u64) -> String {
    if lines == 1 { "1 line was".to_owned() } else { format!("{lines} lines were") }
}

/// Buffers that are reused for each record, and the cached metrics of the previous one.
#[derive(Default)]
struct Scratch<'a> {
    fields: Vec<Field<'a>>,
    name: Vec<u8>,
    tags: Vec<u8>,
    values: Vec<Value>,
    /// The rows of the line, each with the end of its values in `values`.
    rows: Vec<(RowLookup, usize)>,
    known: LastRow<'a>,
}

/// The metrics of the last line whose fields were all numbers and fitted into one row. The next
/// line usually has the same.
#[derive(Default)]
struct LastRow<'a> {
    measurement: &'a [u8],
    fields: Vec<&'a [u8]>,
    /// The escaped metrics, with which the name of its row begins.
    metrics: Vec<u8>,
}

impl<'a> LastRow<'a> {
    /// Returns true if a line has this measurement and numeric fields with the cached names.
    fn are(&self, measurement: &[u8], fields: &[Field<'_>]) -> bool {
        let is =
            |(known, field): (&&[u8], &Field<'_>)| *known == field.name && field.number().is_some();
        self.measurement == measurement
            && self.fields.len() == fields.len()
            && self.fields.iter().zip(fields).all(is)
    }

    fn set(&mut self, measurement: &'a [u8], fields: &[Field<'a>], metrics: &[u8]) {
        self.measurement = measurement;
        self.fields.clear();
        self.fields.extend(fields.iter().map(|field| field.name));
        self.metrics.clear();
        self.metrics.extend_from_slice(metrics);
    }
}

fn read_line<'a>(
    line: &'a [u8],
    precision: Precision,
    now_ns: i64,
    scratch: &mut Scratch<'a>,
    collector: &mut RowCollector<'_>,
) -> Result<(), String> {
    let key_end =
        find_unescaped(line, b' ').ok_or("no fields; write name,tag=value field=1 time")?;
    let (key, rest) = line.split_at(key_end);
    let time = parse_fields(rest.trim_ascii_start(), &mut scratch.fields)?;
    let time_ns = match time.trim_ascii() {
        b"" => now_ns,
        time => parse_int(time)
            .and_then(|t| t.checked_mul(precision.0))
            .ok_or_else(|| format!("time {}; check the precision", not_an_integer(time)))?,
    };
    let measurement_end = find_unescaped(key, b',').unwrap_or(key.len());
    let (measurement, tags) = key.split_at(measurement_end);
    if measurement.is_empty() {
        return Err("no measurement; write name,tag=value field=1 time".into());
    }
    numbers(measurement, tags, scratch, collector)?;
    let mut events = Vec::new();
    for field in &scratch.fields {
        if let FieldValue::Text(text) = field.value {
            scratch.name.clear();
            scratch.name.push(b'!');
            metric(&mut scratch.name, measurement, field.name);
            scratch.name.extend_from_slice(&scratch.tags);
            events.push((collector.look_up(&scratch.name)?, unquote(text)));
        }
    }
    push_line(scratch, &mut events, time_ns, collector)
}

/// Adds the rows and events of a line, as a whole or not at all: nothing is registered or added
/// before everything was checked.
fn push_line(
    Scratch { rows, values, .. }: &mut Scratch<'_>,
    events: &mut [(RowLookup, Vec<u8>)],
    time_ns: i64,
    collector: &mut RowCollector<'_>,
) -> Result<(), String> {
    let mut begin = 0;
    for (row, end) in &*rows {
        collector.check_row(row, time_ns, end - begin)?;
        begin = *end;
    }
    for (row, text) in &*events {
        collector.check_event(row, time_ns, text)?;
    }
    let rows_of_line = rows.iter_mut().map(|(row, _)| row);
    collector.register(rows_of_line.chain(events.iter_mut().map(|(row, _)| row)))?;
    begin = 0;
    for (row, end) in rows {
        collector.push(row, time_ns, values.get(begin..*end).unwrap_or_default())?;
        begin = *end;
    }
    events.iter_mut().try_for_each(|(row, text)| collector.push_event(row, time_ns, text))
}

/// Looks up the rows for the numeric fields of a line: one row, or several if the limits of columns
/// or name length require it.
fn numbers<'a>(
    measurement: &'a [u8],
    tags: &[u8],
    scratch: &mut Scratch<'a>,
    collector: &RowCollector<'_>,
) -> Result<(), String> {
    let Scratch { fields, name, tags: words, values, rows, known } = scratch;
    name.clear();
    words.clear();
    values.clear();
    rows.clear();
    tag_words(words, tags)?;
    if words.is_empty() {
        return Err("no tags; write name,tag=value field=1 time".into());
    }
    if known.are(measurement, fields) && known.metrics.len() + words.len() <= NAME_BYTES_MAX {
        name.extend_from_slice(&known.metrics);
        name.extend_from_slice(words);
        values.extend(fields.iter().filter_map(Field::number));
        rows.push((collector.look_up(name)?, values.len()));
        return Ok(());
    }
    let mut columns = 0;
    for field in &*fields {
        let Some(value) = field.number() else { continue };
        let before = name.len();
        name.extend((before > 0).then_some(b'|'));
        metric(name, measurement, field.name);
        columns += 1;
        if before > 0 && (columns > COLUMNS_MAX || name.len() + words.len() > NAME_BYTES_MAX) {
            let next = name.split_off(before);
            name.extend_from_slice(words);
            rows.push((collector.look_up(name)?, values.len()));
            name.clear();
            // Leave out the separator.
            name.extend_from_slice(next.get(1..).unwrap_or_default());
            columns = 1;
        }
        values.push(value);
    }
    if !values.is_empty() {
        if rows.is_empty() && values.len() == fields.len() {
            known.set(measurement, fields, name);
        }
        name.extend_from_slice(words);
        rows.push((collector.look_up(name)?, values.len()));
    }
    Ok(())
}

fn metric(into: &mut Vec<u8>, measurement: &[u8], field: &[u8]) {
    escape(into, measurement);
    into.push(b'_');
    escape(into, field);
}

fn tag_words(into: &mut Vec<u8>, mut tags: &[u8]) -> Result<(), String> {
    while let [b',', rest @ ..] = tags {
        let end = find_unescaped(rest, b',').unwrap_or(rest.len());
        let (tag, behind) = rest.split_at(end);
        tags = behind;
        let equals = find_unescaped(tag, b'=').ok_or("a tag is not name=value")?;
        let (name, value) = tag.split_at(equals);
        let value =
            value.get(1..).filter(|value| !value.is_empty()).ok_or("a tag without a value")?;
        into.push(b' ');
        escape(into, name);
        into.push(b'=');
        escape(into, value);
    }
    Ok(())
}

/// Converts the escapes of this protocol to those of series names.
fn escape(into: &mut Vec<u8>, mut text: &[u8]) {
    let special = |c: &u8| matches!(c, b'\\' | b' ' | b'=' | b'|');
    while let Some(at) = text.iter().position(special) {
        let (plain, rest) = text.split_at(at);
        into.extend_from_slice(plain);
        text = match rest {
            [b'\\', b',', rest @ ..] => {
                into.push(b',');
                rest
            }
            [b'\\', c @ (b' ' | b'='), rest @ ..] | [c, rest @ ..] => {
                into.extend_from_slice(&[b'\\', *c]);
                rest
            }
            [] => &[],
        };
    }
    into.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn fast_influx_escape_equals_byte_by_byte_escape(text in r"[ab,= |\\]{0,20}") {
            let (mut escaped, mut expected) = (Vec::new(), Vec::new());
            escape(&mut escaped, text.as_bytes());
            let mut bytes = text.bytes().peekable();
            while let Some(c) = bytes.next() {
                match (c, bytes.peek().copied()) {
                    (b'\\', Some(next @ (b',' | b' ' | b'='))) => {
                        expected.extend((next != b',').then_some(c));
                        expected.push(next);
                        bytes.next();
                    }
                    (b'\\' | b' ' | b'=' | b'|', _) => expected.extend([b'\\', c]),
                    _ => expected.push(c),
                }
            }
            prop_assert_eq!(escaped, expected);
        }
    }
}
