//! Rows on their way from text into batches, with the refusals in the order of the lines.

use series::{Batch, Row, Store, Value, WriteError};

/// Longest piece of an offending text that a refusal repeats, in bytes.
const QUOTED_BYTES_MAX: usize = 200;
/// Most refusals of one read or request that are told one by one.
pub const REFUSALS_MAX: usize = 100;
/// Rows are refused as too old so much before the store would refuse the whole batch, in
/// nanoseconds: a request may be read for some seconds.
const AGE_MARGIN_NS: i64 = 30_000_000_000;
/// Most bytes of one row or event in the log.
const ROW_BYTES_MAX: usize = 8 << 10;

/// A row that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Number of its line (from 1), where the protocol has lines that are counted.
    pub line: u64,
    /// Why, and what the remedy is.
    pub reason: String,
    /// The offending text, shortened.
    pub text: String,
}

/// Collects rows into batches. A refused row does not concern its neighbours.
pub struct RowCollector<'a> {
    store: &'a Store,
    oldest_ns: i64,
    newest_ns: i64,
    /// A batch that may take so much in the log takes no more rows.
    batch_bytes_max: usize,
    batch: Batch,
    full: Vec<Batch>,
    refusals: Vec<Refusal>,
    refused: u64,
    samples: u64,
    /// Lines before the first that is read.
    lines_before: u64,
}

impl<'a> RowCollector<'a> {
    /// For one read buffer or one request.
    pub fn new(store: &'a Store) -> Self {
        let oldest_ns = store.oldest_ns().saturating_add(AGE_MARGIN_NS);
        let oldest_ns = if store.oldest_ns() == i64::MIN { i64::MIN } else { oldest_ns };
        Self {
            store,
            oldest_ns,
            newest_ns: store.newest_ns(),
            batch_bytes_max: store.batch_bytes_max().saturating_sub(ROW_BYTES_MAX),
            batch: store.batch(),
            full: Vec::new(),
            refusals: Vec::new(),
            refused: 0,
            samples: 0,
            lines_before: 0,
        }
    }

    /// So many lines came before what is read: refusals count from there.
    pub fn count_from(&mut self, lines: u64) {
        self.lines_before = lines;
    }

    /// The row series of a raw name.
    pub(crate) fn row(&self, raw: &[u8]) -> Result<Row, String> {
        self.store.row(raw).map_err(|e| e.to_string())
    }

    /// The store that the rows are for.
    pub(crate) fn store(&self) -> &'a Store {
        self.store
    }

    /// Take a row.
    pub(crate) fn push(&mut self, row: Row, time_ns: i64, values: &[Value]) -> Result<(), String> {
        self.put(time_ns, values.len(), |batch| batch.push_values(row, time_ns, values))
    }

    /// Take a row of one float.
    pub(crate) fn push_float(&mut self, row: Row, time_ns: i64, value: f64) -> Result<(), String> {
        self.put(time_ns, 1, |batch| batch.push(row, time_ns, &[value]))
    }

    /// Take an event.
    pub(crate) fn event(&mut self, row: Row, time_ns: i64, text: &[u8]) -> Result<(), String> {
        self.put(time_ns, 1, |batch| batch.push_event(row, time_ns, text))
    }

    /// Put something into the batch, into the next one if this one is full: the log takes no record
    /// larger than a segment, and would refuse all of it.
    fn put(
        &mut self,
        time_ns: i64,
        samples: usize,
        into: impl Fn(&mut Batch) -> Result<(), WriteError>,
    ) -> Result<(), String> {
        self.admit(time_ns)?;
        if self.batch.bytes_max() > self.batch_bytes_max && !self.batch.is_empty() {
            self.full.push(std::mem::take(&mut self.batch));
        }
        let again = match into(&mut self.batch) {
            Err(WriteError::TooLarge { what, .. })
                if what != "event_bytes" && !self.batch.is_empty() =>
            {
                self.full.push(std::mem::take(&mut self.batch));
                into(&mut self.batch)
            }
            done => done,
        };
        again.map_err(|e| told(&e))?;
        self.samples += samples as u64;
        Ok(())
    }

    fn admit(&self, time_ns: i64) -> Result<(), String> {
        if time_ns < self.oldest_ns {
            let oldest_ns = self.oldest_ns;
            return Err(WriteError::TooOld { time_ns, oldest_ns }.to_string());
        }
        // The store would refuse the whole batch.
        if time_ns == i64::MAX {
            return Err(WriteError::EndOfTime { time_ns }.to_string());
        }
        if time_ns > self.newest_ns {
            let newest_ns = self.newest_ns;
            return Err(WriteError::TooNew { time_ns, newest_ns }.to_string());
        }
        Ok(())
    }

    /// Note a refusal.
    pub(crate) fn refuse(&mut self, line: u64, reason: impl Into<String>, text: &[u8]) {
        self.refused += 1;
        if self.refusals.len() < REFUSALS_MAX {
            let text = text.get(..QUOTED_BYTES_MAX).unwrap_or(text);
            let text = String::from_utf8_lossy(text).escape_debug().to_string();
            let line = line + self.lines_before;
            self.refusals.push(Refusal { line, reason: reason.into(), text });
        }
    }

    /// The batches and what was refused.
    pub fn finish(mut self) -> CollectedRows {
        if self.batch.is_empty() {
            self.store.spare(self.batch);
        } else {
            self.full.push(self.batch);
        }
        CollectedRows {
            batches: self.full,
            refusals: self.refusals,
            refused: self.refused,
            samples: self.samples,
        }
    }
}

/// What came of a read buffer or a request.
#[derive(Debug)]
pub struct CollectedRows {
    /// Batches to store, in order.
    pub batches: Vec<Batch>,
    /// The first [`REFUSALS_MAX`] refusals.
    pub refusals: Vec<Refusal>,
    pub refused: u64,
    /// Samples and events in the batches.
    pub samples: u64,
}

/// What the store says of a row, without the number by which it knows it: the offending text is told.
fn told(error: &WriteError) -> String {
    match error {
        WriteError::Shape { expected: 0, .. } => {
            "a metric that begins with ! holds events and takes no numbers; rename it".into()
        }
        WriteError::Shape { found, expected, .. } => {
            format!("{found} values for {expected} metrics; give one each")
        }
        other => other.to_string(),
    }
}

/// A number as the protocols write floats: whole text, at most 64 bytes, `nan` and `inf` spelled out
/// allowed. Digits that are more than a float holds are no number.
pub(crate) fn parse_float(text: &[u8]) -> Option<f64> {
    if let Some(number) = parse_short(text) {
        return Some(number);
    }
    if text.len() > FLOAT_BYTES_MAX {
        return None;
    }
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let overflows = number.is_infinite() && text.iter().any(u8::is_ascii_digit);
    (!overflows).then_some(number)
}

/// A number of up to 15 digits without an exponent; `None` of any other text. Both the digits as an integer
/// and the power of ten are exact as floats, and so their quotient is rounded once, as it must be
/// (Clinger 1990, "How to read floating point numbers accurately", the fast path).
fn parse_short(text: &[u8]) -> Option<f64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.len() > SHORT_DIGITS_MAX + 1 {
        return None;
    }
    let (mut mantissa, mut point) = (0u64, None);
    for (i, c) in digits.iter().enumerate() {
        match c {
            b'0'..=b'9' => mantissa = mantissa * 10 + u64::from(c - b'0'),
            b'.' if point.is_none() => point = Some(i),
            _ => return None,
        }
    }
    let count = digits.len() - usize::from(point.is_some());
    if count == 0 || count > SHORT_DIGITS_MAX {
        return None;
    }
    let decimals = point.map_or(0, |point| digits.len() - point - 1);
    let number = mantissa as f64 / POWERS_OF_TEN.get(decimals)?;
    Some(if negative { -number } else { number })
}

/// Digits of numbers that are below 2^53 whatever they are.
const SHORT_DIGITS_MAX: usize = 15;
const POWERS_OF_TEN: [f64; SHORT_DIGITS_MAX + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// Longest text of a float, in bytes.
const FLOAT_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_short_number_is_what_the_standard_library_reads(
            text in r"[-+]?[0-9]{0,9}[.]?[0-9]{0,9}|[-+.0-9e]{0,8}"
        ) {
            // This alphabet spells no `inf`: one comes of digits that are more than a float holds.
            let expected = text.parse::<f64>().ok().filter(|number| number.is_finite());
            let bits = |number: Option<f64>| number.map(f64::to_bits);
            prop_assert_eq!(bits(parse_float(text.as_bytes())), bits(expected));
            if let Some(number) = parse_short(text.as_bytes()) {
                prop_assert_eq!(bits(Some(number)), bits(expected));
            }
        }
    }

    #[test]
    fn numbers_up_to_fifteen_digits_are_short() {
        for text in ["-0", "+0.1", "5.", ".5", "123456789012345", "0.00000000000001"] {
            assert_eq!(parse_short(text.as_bytes()), text.parse().ok(), "{text}");
        }
        assert!(parse_short(b"-0").is_some_and(f64::is_sign_negative));
        for text in ["", "-", ".", "+.", "1e5", "--1", "1.2.3", "1234567890123456", "nan"] {
            assert_eq!(parse_short(text.as_bytes()), None, "{text}");
        }
    }
}
