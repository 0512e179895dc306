//! Rows as text: RESP or CSV, in pieces.

use std::io::Write as _;

use bytes::Bytes;
use series::Value;

use super::{Cells, Query, RowOut};
use crate::time::format_iso;

/// Size of a piece of an answer, in bytes.
const PIECE_BYTES: usize = 64 << 10;

/// Writes rows, hands over pieces.
pub(super) struct Output<F> {
    text: Vec<u8>,
    csv: bool,
    raw_time: bool,
    send: F,
    /// The client takes no more.
    gone: bool,
}

impl<F: FnMut(Bytes) -> bool> Output<F> {
    pub(super) fn new(query: &Query, send: F) -> Self {
        let text = Vec::with_capacity(PIECE_BYTES + 4096);
        Self { text, csv: query.csv, raw_time: query.raw_time, send, gone: false }
    }

    /// Write a name alone; whether to go on.
    pub(super) fn name(&mut self, name: &str) -> bool {
        // Writing to memory does not fail.
        let _ = if self.csv {
            writeln!(self.text, "{}", quoted(name))
        } else {
            write!(self.text, "+{name}\r\n")
        };
        self.flush(PIECE_BYTES)
    }

    /// Write a row; whether to go on.
    pub(super) fn row(&mut self, name: &str, row: &RowOut) -> bool {
        if self.csv {
            self.csv_row(name, row);
        } else {
            self.resp_row(name, row);
        }
        self.flush(PIECE_BYTES)
    }

    fn csv_row(&mut self, name: &str, row: &RowOut) {
        let out = &mut self.text;
        let _ = if self.raw_time {
            write!(out, "{},{}", quoted(name), row.time_ns)
        } else {
            write!(out, "{},{}", quoted(name), format_iso(row.time_ns))
        };
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

    fn resp_row(&mut self, name: &str, row: &RowOut) {
        let out = &mut self.text;
        let _ = if self.raw_time {
            write!(out, "+{name}\r\n:{}\r\n", row.time_ns)
        } else {
            write!(out, "+{name}\r\n+{}\r\n", format_iso(row.time_ns))
        };
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
            // A text with line ends would be taken for rows.
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

    /// Tell what could not be read.
    pub(super) fn error(&mut self, message: &str) {
        let _ = write!(self.text, "-{}\r\n", message.replace(['\r', '\n'], " "));
    }

    pub(super) fn end(&mut self) {
        self.flush(1);
    }

    fn flush(&mut self, bytes: usize) -> bool {
        if self.text.len() >= bytes && !self.gone {
            let next = Vec::with_capacity(PIECE_BYTES + 4096);
            let piece = std::mem::replace(&mut self.text, next);
            self.gone = !(self.send)(piece.into());
        }
        !self.gone
    }
}

fn quoted(text: &str) -> std::borrow::Cow<'_, str> {
    if text.contains([',', '"', '\r', '\n']) {
        return format!("\"{}\"", text.replace('"', "\"\"")).into();
    }
    text.into()
}

fn resp_number(out: &mut Vec<u8>, value: Value) {
    out.push(b'+');
    number(out, value);
    out.extend_from_slice(b"\r\n");
}

/// Decimal digits that tell every float apart.
const DIGITS: i32 = 17;

/// A value as C's `%.17g` writes it: every float comes back exactly.
fn number(out: &mut Vec<u8>, value: Value) {
    let f = match value {
        Value::I64(i) => {
            let _ = write!(out, "{i}");
            return;
        }
        Value::F64(f) => f,
    };
    if f.fract().abs() <= 0.0 && f.abs() < 1e15 && f.to_bits() != (-0.0f64).to_bits() {
        let _ = write!(out, "{}", f as i64);
        return;
    }
    if !f.is_finite() {
        let text = if f.is_nan() {
            "nan"
        } else if f > 0.0 {
            "inf"
        } else {
            "-inf"
        };
        out.extend_from_slice(text.as_bytes());
        return;
    }
    let text = format!("{f:.*e}", (DIGITS - 1) as usize);
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (digits, tail) = if (-4..DIGITS).contains(&exponent) {
        (format!("{f:.*}", (DIGITS - 1 - exponent) as usize), String::new())
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        (digits.to_owned(), format!("e{sign}{:02}", exponent.abs()))
    };
    let trimmed = digits.trim_end_matches('0').trim_end_matches('.');
    let digits = if digits.contains('.') { trimmed } else { &digits };
    let _ = write!(out, "{digits}{tail}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_with_seventeen_digits() {
        let cases = [
            (3.4, "3.3999999999999999"),
            (0.5, "0.5"),
            (-0.0, "-0"),
            (100.0, "100"),
            (1e300, "1.0000000000000001e+300"),
            (0.0001, "0.0001"),
            (1.5e-7, "1.4999999999999999e-07"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, text) in cases {
            let mut out = Vec::new();
            number(&mut out, Value::F64(value));
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}
