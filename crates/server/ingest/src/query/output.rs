//! Rows as text: RESP or CSV, in pieces.

use std::io::Write as _;

use bytes::Bytes;
use series::Value;

mod float;

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

    /// How a name is written before each of its rows.
    pub(super) fn shown(&self, name: &str) -> String {
        if self.csv { format!("{},", quoted(name)) } else { format!("+{name}\r\n") }
    }

    /// Write a row behind its name, as [`Output::shown`] gives it; whether to go on.
    pub(super) fn row(&mut self, shown: &str, row: &RowOut) -> bool {
        if self.csv {
            self.csv_row(shown, row);
        } else {
            self.resp_row(shown, row);
        }
        self.flush(PIECE_BYTES)
    }

    fn csv_row(&mut self, shown: &str, row: &RowOut) {
        let out = &mut self.text;
        out.extend_from_slice(shown.as_bytes());
        if self.raw_time {
            integer(out, row.time_ns);
        } else {
            out.extend_from_slice(format_iso(row.time_ns).as_bytes());
        }
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
        let out = &mut self.text;
        out.extend_from_slice(shown.as_bytes());
        if self.raw_time {
            out.push(b':');
            integer(out, row.time_ns);
        } else {
            out.push(b'+');
            out.extend_from_slice(format_iso(row.time_ns).as_bytes());
        }
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

/// A number in decimal.
fn integer(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    let mut text = [0; 20];
    let (mut at, mut rest) = (text.len(), value.unsigned_abs());
    loop {
        at -= 1;
        if let Some(digit) = text.get_mut(at) {
            *digit = b'0' + (rest % 10) as u8;
        }
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(text.get(at..).unwrap_or_default());
}

fn resp_number(out: &mut Vec<u8>, value: Value) {
    out.push(b'+');
    number(out, value);
    out.extend_from_slice(b"\r\n");
}

/// A value as C's `%.17g` writes it: every float comes back exactly.
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
    fn integers_are_written_to_their_limits() {
        for value in [0, 7, -7, 10, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            number(&mut out, Value::I64(value));
            assert_eq!(String::from_utf8(out).unwrap(), value.to_string());
        }
    }
}
