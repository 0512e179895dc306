//! A batch of rows and events, as a writer builds it.

use crate::error::WriteError;
use crate::model::{Row, Value};
use crate::options::{BATCH_EVENT_BYTES_MAX, BATCH_SAMPLES_MAX, EVENT_BYTES_MAX};

/// Maximum size of a row or an event in the log without its values and text, in bytes: its number,
/// its time and its number of columns or length, each with its share of a block's header.
const ROW_BYTES_MAX: usize = 24;
/// Maximum size of a value in the log, with its share of a block's header, in bytes.
const VALUE_BYTES_MAX: usize = 10;
/// Maximum size of the index of an integer, in bytes.
const INDEX_BYTES_MAX: usize = 5;
/// Maximum size of a record's header and its last, partly filled blocks, in bytes.
const HEADS_BYTES_MAX: usize = 512;

/// Rows and events that are stored together: either all of them survive a crash or none. Later
/// entries of one series and time supersede earlier ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    pub(crate) rows: Vec<u32>,
    /// Number of values of each row.
    pub(crate) columns: Vec<u16>,
    pub(crate) times: Vec<i64>,
    /// Bits of the values, row after row.
    pub(crate) values: Vec<u64>,
    /// Indexes into `values` of the integers, ascending.
    pub(crate) integers: Vec<u32>,
    pub(crate) event_rows: Vec<u32>,
    pub(crate) event_times: Vec<i64>,
    /// Lengths of the events' texts.
    pub(crate) event_lengths: Vec<u32>,
    pub(crate) event_text: Vec<u8>,
}

impl Batch {
    /// Creates an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a row of floats. `time_ns` is in nanoseconds since the epoch.
    ///
    /// # Errors
    /// Returns an error if the number of values differs from the number of the row's metrics, or
    /// the batch is full.
    pub fn push(&mut self, row: Row, time_ns: i64, values: &[f64]) -> Result<(), WriteError> {
        self.admit(row, time_ns, values.len())?;
        self.values.extend(values.iter().map(|v| v.to_bits()));
        Ok(())
    }

    /// Adds a row of floats and integers.
    ///
    /// # Errors
    /// See [`Batch::push`].
    pub fn push_values(
        &mut self,
        row: Row,
        time_ns: i64,
        values: &[Value],
    ) -> Result<(), WriteError> {
        self.admit(row, time_ns, values.len())?;
        for value in values {
            match value.canonical() {
                Value::F64(f) => self.values.push(f.to_bits()),
                Value::I64(i) => {
                    self.integers.push(self.values.len() as u32);
                    self.values.push(i as u64);
                }
            }
        }
        Ok(())
    }

    fn admit(&mut self, row: Row, time_ns: i64, found: usize) -> Result<(), WriteError> {
        if found != row.columns() || row.events {
            let expected = if row.events { 0 } else { row.columns() };
            return Err(WriteError::Shape { row: row.id, found, expected });
        }
        let value = self.values.len() + found;
        if value > BATCH_SAMPLES_MAX {
            return Err(WriteError::TooLarge { what: "samples", value, max: BATCH_SAMPLES_MAX });
        }
        self.rows.push(row.id);
        self.columns.push(row.columns);
        self.times.push(time_ns);
        Ok(())
    }

    /// Adds an event.
    ///
    /// # Errors
    /// Returns an error if the row holds values, or the text or the batch is too large.
    pub fn push_event(&mut self, row: Row, time_ns: i64, text: &[u8]) -> Result<(), WriteError> {
        if !row.events {
            return Err(WriteError::Shape { row: row.id, found: 1, expected: row.columns() });
        }
        if text.len() > EVENT_BYTES_MAX {
            let (value, max) = (text.len(), EVENT_BYTES_MAX);
            return Err(WriteError::TooLarge { what: "event_bytes", value, max });
        }
        let value = self.event_text.len() + text.len();
        if value > BATCH_EVENT_BYTES_MAX || self.event_rows.len() >= BATCH_SAMPLES_MAX {
            let max = BATCH_EVENT_BYTES_MAX;
            return Err(WriteError::TooLarge { what: "batch_event_bytes", value, max });
        }
        self.event_rows.push(row.id);
        self.event_times.push(time_ns);
        self.event_lengths.push(text.len() as u32);
        self.event_text.extend_from_slice(text);
        Ok(())
    }

    /// Returns the number of samples and events.
    pub fn samples(&self) -> usize {
        self.values.len() + self.event_rows.len()
    }

    /// Returns the number of rows and events.
    pub fn len(&self) -> usize {
        self.rows.len() + self.event_rows.len()
    }

    /// Returns true if the batch has no rows or events.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the maximum size of the batch in the log, in bytes, whatever its values are.
    pub fn bytes_max(&self) -> usize {
        ROW_BYTES_MAX * (self.rows.len() + self.event_rows.len())
            + VALUE_BYTES_MAX * self.values.len()
            + INDEX_BYTES_MAX * self.integers.len()
            + self.event_text.len()
            + HEADS_BYTES_MAX
    }

    /// Removes all entries and keeps the memory.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.columns.clear();
        self.times.clear();
        self.values.clear();
        self.integers.clear();
        self.event_rows.clear();
        self.event_times.clear();
        self.event_lengths.clear();
        self.event_text.clear();
    }

    /// Returns the memory allocated by the batch, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let words = [&self.rows, &self.integers, &self.event_rows, &self.event_lengths];
        4 * words.iter().map(|v| v.capacity()).sum::<usize>()
            + 2 * self.columns.capacity()
            + 8 * (self.times.capacity() + self.values.capacity() + self.event_times.capacity())
            + self.event_text.capacity()
    }

    /// Returns the events with their rows and times.
    pub(crate) fn events(&self) -> impl Iterator<Item = (u32, i64, &[u8])> {
        let mut begin = 0;
        let lengths = self.event_rows.iter().zip(&self.event_times).zip(&self.event_lengths);
        lengths.map(move |((row, time), length)| {
            let text = self.event_text.get(begin..begin + *length as usize).unwrap_or_default();
            begin += *length as usize;
            (*row, *time, text)
        })
    }

    /// Returns the largest row number in the batch.
    pub(crate) fn row_max(&self) -> Option<u32> {
        self.rows.iter().chain(&self.event_rows).copied().max()
    }
}
