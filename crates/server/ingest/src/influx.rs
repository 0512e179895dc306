//! The Influx line protocol: `measurement,tag=value field=1.5,other=2i time`.
//!
//! A field becomes the metric `measurement_field`. The fields of a line are one row, or several if
//! they exceed the columns of a row. Integers stay integers, booleans are 1 and 0, a text field is
//! an event of `!measurement_field`. A line ends at the first line feed, even in quotes: an open
//! quote costs one line.

use memchr::{memchr, memchr2, memchr3};
use query::time::parse_int;
use series::{COLUMNS_MAX, EVENT_BYTES_MAX, NAME_BYTES_MAX, Row, Value, WriteError};

use crate::collector::{RowCollector, quoted};
use crate::number::parse_float;

/// Longest line, in bytes.
pub const LINE_BYTES_MAX: usize = 64 << 10;

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

/// One field of a line.
struct Field<'a> {
    name: &'a [u8],
    value: FieldValue<'a>,
}

impl Field<'_> {
    fn number(&self) -> Option<Value> {
        match self.value {
            FieldValue::Number(value) => Some(value),
            FieldValue::Text(_) => None,
        }
    }
}

enum FieldValue<'a> {
    Number(Value),
    Text(&'a [u8]),
}

/// Reads all lines of a request. `now_ns` is the time of lines without one.
pub fn read(body: &[u8], precision: Precision, now_ns: i64, collector: &mut RowCollector<'_>) {
    let (mut rest, mut number, mut scratch) = (body, 0u64, Scratch::default());
    while !rest.is_empty() {
        let end = memchr(b'\n', rest).unwrap_or(rest.len());
        let line = rest.get(..end).unwrap_or_default();
        number += 1;
        rest = rest.get(end + 1..).unwrap_or_default();
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let taken = if line.len() > LINE_BYTES_MAX {
            Err(format!("line is over the limit of {LINE_BYTES_MAX} bytes; shorten it"))
        } else {
            read_line(line, precision, now_ns, &mut scratch, collector)
        };
        if let Err(reason) = taken {
            collector.refuse(number, reason, line);
        }
    }
}

/// Buffers that are reused for each line, and the cached metrics of the previous line.
#[derive(Default)]
struct Scratch<'a> {
    fields: Vec<Field<'a>>,
    name: Vec<u8>,
    tags: Vec<u8>,
    values: Vec<Value>,
    /// The rows of the line, each with the end of its values in `values`.
    rows: Vec<(Row, usize)>,
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
    let rest = rest.trim_ascii_start();
    let fields_end = fields_end(rest);
    let (fields, time) = rest.split_at(fields_end);
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
    parse_fields(fields, &mut scratch.fields)?;
    // A line is stored as a whole or not at all, so all rows are looked up and all texts are
    // measured before anything is added.
    numbers(measurement, tags, scratch, collector)?;
    let mut events = Vec::new();
    for field in &scratch.fields {
        if let FieldValue::Text(text) = field.value {
            scratch.name.clear();
            scratch.name.push(b'!');
            metric(&mut scratch.name, measurement, field.name);
            scratch.name.extend_from_slice(&scratch.tags);
            let text = unquote(text);
            if text.len() > EVENT_BYTES_MAX {
                let (what, value, max) = ("event_bytes", text.len(), EVENT_BYTES_MAX);
                return Err(WriteError::TooLarge { what, value, max }.to_string());
            }
            events.push((collector.row(&scratch.name)?, text));
        }
    }
    let mut begin = 0;
    for (row, end) in &scratch.rows {
        collector.push(*row, time_ns, scratch.values.get(begin..*end).unwrap_or_default())?;
        begin = *end;
    }
    events.into_iter().try_for_each(|(row, text)| collector.push_event(row, time_ns, &text))
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
        rows.push((collector.row(name)?, values.len()));
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
            rows.push((collector.row(name)?, values.len()));
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
        rows.push((collector.row(name)?, values.len()));
    }
    Ok(())
}

fn parse_fields<'a>(mut text: &'a [u8], fields: &mut Vec<Field<'a>>) -> Result<(), String> {
    fields.clear();
    while !text.is_empty() {
        let equals = find_unescaped(text, b'=').ok_or("a field is not name=value")?;
        let (name, rest) = text.split_at(equals);
        let rest = rest.get(1..).unwrap_or_default();
        let end = value_end(rest);
        let (value, rest) = rest.split_at(end);
        if name.is_empty() {
            return Err("a field without a name".into());
        }
        let value = field_value(value).map_err(|e| format!("field {}: {e}", quoted(name)))?;
        fields.push(Field { name, value });
        text = rest.get(1..).unwrap_or_default();
    }
    if fields.is_empty() {
        return Err("no fields; write name,tag=value field=1 time".into());
    }
    Ok(())
}

fn field_value(text: &[u8]) -> Result<FieldValue<'_>, String> {
    let number = |v| Ok(FieldValue::Number(v));
    match text {
        b"t" | b"T" | b"true" | b"True" | b"TRUE" => return number(Value::F64(1.0)),
        b"f" | b"F" | b"false" | b"False" | b"FALSE" => return number(Value::F64(0.0)),
        _ => {}
    }
    match text {
        [] => Err("no value".into()),
        [b'"', rest @ ..] => match find_unescaped(rest, b'"') {
            None => Err("the text has no closing quote on this line".into()),
            Some(end) if end + 1 < rest.len() => Err("something follows the closing quote".into()),
            Some(end) => Ok(FieldValue::Text(rest.get(..end).unwrap_or_default())),
        },
        [digits @ .., b'i' | b'u'] => match parse_int(digits) {
            Some(integer) => number(Value::I64(integer)),
            None => Err(not_an_integer(digits)),
        },
        _ => match parse_float(text).filter(|f| f.is_finite()) {
            Some(float) => number(Value::F64(float)),
            None => Err(not_a_float(text)),
        },
    }
}

/// Returns the reason why [`parse_int`] refused a text.
fn not_an_integer(text: &[u8]) -> String {
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    let integer = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let what = if integer { "is out of range; 64 bits are stored" } else { "is not an integer" };
    format!("{} {what}", quoted(text))
}

/// Returns the reason why a text is not a finite float.
fn not_a_float(text: &[u8]) -> String {
    let parsed = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    let what = match parsed {
        Some(_) if text.iter().any(u8::is_ascii_digit) => "is out of the range of a float",
        Some(_) => "is not a value of this protocol; leave the field out",
        None => "is not a number, boolean or quoted text",
    };
    format!("{} {what}", quoted(text))
}

/// Returns the position of the first unescaped byte of this value.
fn find_unescaped(text: &[u8], wanted: u8) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr2(wanted, b'\\', text.get(at..)?)?;
        if text.get(at) == Some(&wanted) {
            return Some(at);
        }
        // Skip the escaped byte as well.
        at += 2;
    }
}

/// Returns the end of a value: the first comma outside quotes.
fn value_end(text: &[u8]) -> usize {
    outside_quotes(text, b',')
}

/// Returns the end of the fields: the first space outside quotes.
fn fields_end(text: &[u8]) -> usize {
    outside_quotes(text, b' ')
}

fn outside_quotes(text: &[u8], wanted: u8) -> usize {
    let (mut quoted, mut at) = (false, 0);
    while let Some(found) = text.get(at..).and_then(|rest| memchr3(wanted, b'"', b'\\', rest)) {
        at += found;
        match text.get(at) {
            // Skip the escaped byte as well.
            Some(b'\\') => at += 1,
            Some(b'"') => quoted = !quoted,
            _ if !quoted => return at,
            _ => {}
        }
        at += 1;
    }
    text.len()
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

fn unquote(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied().peekable();
    while let Some(c) = bytes.next() {
        let escaped = c == b'\\' && matches!(bytes.peek(), Some(b'"' | b'\\'));
        out.push(if escaped { bytes.next().unwrap_or(c) } else { c });
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Searches byte by byte, as a reference for the fast searches: the first wanted byte that is
    /// not escaped by a backslash and, if quotes `count`, is outside them.
    fn slowly(text: &[u8], wanted: u8, count: bool) -> Option<usize> {
        let (mut quoted, mut escaped) = (false, false);
        text.iter().position(|c| {
            let plain = !std::mem::take(&mut escaped);
            escaped = plain && *c == b'\\';
            quoted ^= count && plain && *c == b'"';
            plain && *c == wanted && !quoted
        })
    }

    proptest! {
        #[test]
        fn fast_influx_searches_equal_byte_by_byte_search(text in r#"[ab ,="\\]{0,40}"#) {
            for wanted in *b" ,=" {
                let text = text.as_bytes();
                prop_assert_eq!(find_unescaped(text, wanted), slowly(text, wanted, false));
                let end = slowly(text, wanted, true).unwrap_or(text.len());
                prop_assert_eq!(outside_quotes(text, wanted), end);
            }
        }

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
