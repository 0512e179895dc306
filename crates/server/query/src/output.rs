//! Writes rows as text, in RESP or CSV, and sends it in pieces.

use std::io::Write as _;

use bytes::Bytes;
use series::Value;

mod float;

use super::parse::{Format, Query};
use super::row::{Cells, RowOut};
use crate::time::format_iso;

/// Size of a piece of an answer, in bytes; only the last one is smaller.
pub const PIECE_BYTES: usize = 128 << 10;

/// Writes rows and passes full pieces to `send`.
pub(super) struct Output<F> {
    text: Vec<u8>,
    format: Format,
    /// The time of the previous row and its text. The next row often has the same time.
    time: (i64, Vec<u8>),
    send: F,
    /// True if a piece was sent to the client.
    sent: bool,
    /// True if the client accepts no more pieces.
    gone: bool,
}

impl<F: FnMut(Bytes) -> bool> Output<F> {
    pub(super) fn new(query: &Query, send: F) -> Self {
        let text = Vec::with_capacity(PIECE_BYTES + 4096);
        Self { text, format: query.format, time: <_>::default(), send, sent: false, gone: false }
    }

    /// Writes a name alone. Returns false to stop.
    pub(super) fn name(&mut self, name: &str) -> bool {
        // Writing to memory does not fail.
        let _ = if self.format.csv {
            writeln!(self.text, "{}", quoted(name))
        } else if name.contains(['\r', '\n']) {
            // The value of a tag with line ends is sent with its length, like such a text.
            write!(self.text, "${}\r\n{name}\r\n", name.len())
        } else {
            write!(self.text, "+{name}\r\n")
        };
        self.flush()
    }

    /// Formats the name that precedes each row.
    pub(super) fn format_name(&self, name: &str) -> String {
        if self.format.csv { format!("{},", quoted(name)) } else { format!("+{name}\r\n") }
    }

    /// Writes a row after its name, which is formatted by [`Output::format_name`]. Returns false to
    /// stop.
    pub(super) fn row(&mut self, shown: &str, row: &RowOut) -> bool {
        if self.format.csv {
            self.csv_row(shown, row);
        } else {
            self.resp_row(shown, row);
        }
        self.flush()
    }

    fn push_time(&mut self, time_ns: i64) {
        let (before, text) = &mut self.time;
        if *before != time_ns || text.is_empty() {
            *before = time_ns;
            text.clear();
            if self.format.raw_time {
                integer(text, time_ns);
            } else {
                text.extend_from_slice(format_iso(time_ns).as_bytes());
            }
        }
        self.text.extend_from_slice(text);
    }

    fn csv_row(&mut self, shown: &str, row: &RowOut) {
        self.text.extend_from_slice(shown.as_bytes());
        self.push_time(row.time_ns);
        let out = &mut self.text;
        match &row.cells {
            Cells::Empty => {}
            Cells::One(value) => {
                out.push(b',');
                number(out, *value);
            }
            Cells::Many(cells) => {
                for cell in cells {
                    out.push(b',');
                    let _ = cell.map(|value| number(out, value));
                }
            }
            Cells::Text(text) => {
                out.push(b',');
                out.extend_from_slice(quoted(&String::from_utf8_lossy(text)).as_bytes());
            }
        }
        out.push(b'\n');
    }

    fn resp_row(&mut self, shown: &str, row: &RowOut) {
        self.text.extend_from_slice(shown.as_bytes());
        self.text.push(if self.format.raw_time { b':' } else { b'+' });
        self.push_time(row.time_ns);
        let out = &mut self.text;
        out.extend_from_slice(b"\r\n");
        match &row.cells {
            Cells::Empty => {}
            Cells::One(value) => resp_number(out, *value),
            Cells::Many(cells) => {
                let _ = write!(out, "*{}\r\n", cells.len());
                for cell in cells {
                    match cell {
                        Some(value) => resp_number(out, *value),
                        None => out.extend_from_slice(b"$-1\r\n"),
                    }
                }
            }
            // A text with line ends is sent with its length, so that it is not read as several
            // rows.
            Cells::Text(text) if text.iter().any(|c| matches!(c, b'\r' | b'\n')) => {
                let _ = write!(out, "${}\r\n", text.len());
                out.extend_from_slice(text);
                out.extend_from_slice(b"\r\n");
            }
            Cells::Text(text) => {
                out.push(b'+');
                out.extend_from_slice(text);
                out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Writes an error line.
    pub(super) fn error(&mut self, message: &str) {
        let _ = write!(self.text, "-{}\r\n", message.replace(['\r', '\n'], " "));
    }

    /// Discards the text written so far and returns true, unless a piece was already sent.
    pub(super) fn take_back(&mut self) -> bool {
        if !self.sent {
            self.text.clear();
        }
        !self.sent
    }

    pub(super) fn end(&mut self) {
        if !self.text.is_empty() && !self.gone {
            self.gone = !(self.send)(std::mem::take(&mut self.text).into());
        }
    }

    fn flush(&mut self) -> bool {
        if self.text.len() >= PIECE_BYTES && !self.gone {
            let next = Vec::with_capacity(PIECE_BYTES + 4096);
            let piece = std::mem::replace(&mut self.text, next);
            self.sent = true;
            self.gone = !(self.send)(piece.into());
        }
        !self.gone
    }
}

/// Returns a text as a field of CSV.
fn quoted(text: &str) -> std::borrow::Cow<'_, str> {
    if text.contains([',', '"', '\r', '\n']) {
        return format!("\"{}\"", text.replace('"', "\"\"")).into();
    }
    text.into()
}

/// Number of digits that [`digits`] returns.
const DIGITS_MAX: usize = 24;

/// Returns the eight digits of a number below 10^8. They are computed in parallel within one word:
/// first as two numbers of four digits in 32 bits each, then as four numbers of two digits in 16
/// bits each, then as eight digits in a byte each.
fn eight(n: u64) -> [u8; 8] {
    let fours = (n / 10_000) | ((n % 10_000) << 32);
    let high = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let twos = high | ((fours - high * 100) << 16);
    let high = ((twos * 103) >> 10) & 0x000f_000f_000f_000f;
    let ones = high | ((twos - high * 10) << 8);
    (ones | 0x3030_3030_3030_3030).to_le_bytes()
}

/// Returns the digits of a number, padded with zeros to [`DIGITS_MAX`].
fn digits(n: u64) -> [[u8; 8]; 3] {
    const EIGHT: u64 = 100_000_000;
    let (high, low) = (n / EIGHT, n % EIGHT);
    [eight(high / EIGHT), eight(high % EIGHT), eight(low)]
}

/// Writes an integer in decimal.
fn integer(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    let text = digits(value.unsigned_abs());
    let text = text.as_flattened();
    let begin = text.iter().position(|c| *c != b'0').unwrap_or(DIGITS_MAX - 1);
    out.extend_from_slice(text.get(begin..).unwrap_or_default());
}

fn resp_number(out: &mut Vec<u8>, value: Value) {
    out.push(b'+');
    number(out, value);
    out.extend_from_slice(b"\r\n");
}

/// Writes a value as C's `%.17g` does, so that every float can be parsed back exactly.
fn number(out: &mut Vec<u8>, value: Value) {
    match value {
        Value::I64(i) => integer(out, i),
        Value::F64(f) => float::push(out, f),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_up_to_the_i64_limits_are_formatted_exactly() {
        let powers = (0..19).flat_map(|i| [10_i64.pow(i) - 1, 10_i64.pow(i), -(10_i64.pow(i))]);
        for value in powers.chain([7, -7, 1_234_567_890_123_456_789, i64::MAX, i64::MIN]) {
            let mut out = Vec::new();
            number(&mut out, Value::I64(value));
            assert_eq!(String::from_utf8(out).unwrap(), value.to_string());
        }
    }
}
