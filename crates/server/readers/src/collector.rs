//! Collects the rows that a protocol's reader parses into batches for the store.
//!
//! A reader adds rows and events as it parses them and reports the ones that it refuses. A refused
//! row does not affect the rows around it, and leaves no series behind: a new name is registered
//! only after the time, the number of values and the sizes were checked. The store refuses a whole
//! batch for one row that is too old or too new, so such rows are refused here. A batch that would
//! exceed one record of the log is split.

use memchr::memchr_iter;
use series::{
    Batch, EVENT_BYTES_MAX, NameError, Row, RowLookup, RowName, Store, Value, WriteError,
};

/// Longest piece of an offending text that a refusal repeats, in bytes.
const QUOTED_BYTES_MAX: usize = 200;
/// Maximum number of refusals of one read or request that are reported one by one.
pub const REFUSALS_MAX: usize = 100;
/// Safety margin, in nanoseconds: old rows are refused this long before the store would refuse
/// their batch. Parsing a request takes some seconds at most.
const AGE_MARGIN_NS: i64 = 30_000_000_000;
/// Most bytes of one row or event in the log.
const ROW_BYTES_MAX: usize = 8 << 10;

/// The name of the metric among the labels of `PromQL`.
const NAME_LABEL: &str = "__name__";

/// A row that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowRefusal {
    /// Number of its line, counted from 1; the number of the series for remote write.
    pub line: u64,
    /// The reason and the remedy.
    pub reason: String,
    /// The offending text, shortened, with control characters escaped; of [`crate::put`] the data
    /// point.
    pub text: String,
}

/// The rows and refusals of one read buffer or one request.
#[derive(Debug, Default)]
pub struct CollectedRows {
    /// Batches to store, in order.
    pub batches: Vec<Batch>,
    /// The first [`REFUSALS_MAX`] refusals, in the order of the lines.
    pub refusals: Vec<RowRefusal>,
    /// Number of all refusals.
    pub refused: u64,
    /// Samples and events in the batches.
    pub samples: u64,
}

/// Collects the rows of one read buffer or one request into batches.
pub struct RowCollector<'a> {
    store: &'a Store,
    oldest_ns: i64,
    newest_ns: i64,
    /// Size in the log above which a batch is full, bytes.
    batch_bytes_max: usize,
    /// The batch to which rows are added.
    batch: Batch,
    collected: CollectedRows,
}

impl<'a> RowCollector<'a> {
    pub fn new(store: &'a Store) -> Self {
        let oldest_ns = match store.oldest_ns() {
            i64::MIN => i64::MIN,
            oldest_ns => oldest_ns.saturating_add(AGE_MARGIN_NS),
        };
        Self {
            store,
            oldest_ns,
            newest_ns: store.newest_ns(),
            batch_bytes_max: store.batch_bytes_max().saturating_sub(ROW_BYTES_MAX),
            batch: store.batch(),
            collected: CollectedRows::default(),
        }
    }

    /// Looks up the row series of a raw name. It is registered with its first accepted row.
    #[inline]
    pub(crate) fn look_up(&self, raw: &[u8]) -> Result<RowLookup, String> {
        if has_name_tag(raw) {
            return Err(format!("{NAME_LABEL} is the metric in PromQL; rename the tag"));
        }
        self.store.look_up(raw).map_err(|e| match e {
            // The offending text is reported with the reason.
            NameError::Malformed { what, .. } => {
                format!("series name: {what}; write metric tag=value ...")
            }
            other => other.to_string(),
        })
    }

    /// Registers those of these row series that are new, all or none. The caller has checked what
    /// it will add to them.
    pub(crate) fn register<'r>(
        &self,
        rows: impl Iterator<Item = &'r mut RowLookup>,
    ) -> Result<(), String> {
        let new: Vec<&mut RowLookup> = rows.filter(|r| matches!(r, RowLookup::New(_))).collect();
        if new.is_empty() {
            return Ok(());
        }
        let names = new.iter().filter_map(|row| match &**row {
            RowLookup::New(new) => Some(&**new),
            RowLookup::Known(_) => None,
        });
        let rows = self.store.register(&names.collect::<Vec<_>>()).map_err(|e| e.to_string())?;
        new.into_iter().zip(rows).for_each(|(looked_up, row)| *looked_up = RowLookup::Known(row));
        Ok(())
    }

    /// Returns a row series that is known, and registers it before if it is new.
    #[inline]
    fn registered(&self, row: &mut RowLookup) -> Result<Row, String> {
        match row {
            RowLookup::Known(row) => Ok(*row),
            RowLookup::New(new) => {
                let registered = self.store.register_row(new).map_err(|e| e.to_string())?;
                *row = RowLookup::Known(registered);
                Ok(registered)
            }
        }
    }

    pub(crate) fn store(&self) -> &'a Store {
        self.store
    }

    /// Adds a row, and registers its series if it is new. The error is the reason why the row is
    /// refused.
    #[inline]
    pub(crate) fn push(
        &mut self,
        row: &mut RowLookup,
        time_ns: i64,
        values: &[Value],
    ) -> Result<(), String> {
        self.check_row(row, time_ns, values.len())?;
        let row = self.registered(row)?;
        self.push_samples(values.len(), |batch| batch.push_values(row, time_ns, values))
    }

    /// Adds a row of one float, as [`RowCollector::push`] does.
    #[inline]
    pub(crate) fn push_float(
        &mut self,
        row: &mut RowLookup,
        time_ns: i64,
        value: f64,
    ) -> Result<(), String> {
        self.check_row(row, time_ns, 1)?;
        let row = self.registered(row)?;
        self.push_samples(1, |batch| batch.push(row, time_ns, &[value]))
    }

    /// Adds an event, as [`RowCollector::push`] does.
    pub(crate) fn push_event(
        &mut self,
        row: &mut RowLookup,
        time_ns: i64,
        text: &[u8],
    ) -> Result<(), String> {
        self.check_event(row, time_ns, text)?;
        let row = self.registered(row)?;
        self.push_samples(1, |batch| batch.push_event(row, time_ns, text))
    }

    /// Returns the reason for which a row would be refused.
    #[inline]
    pub(crate) fn check_row(
        &self,
        row: &RowLookup,
        time_ns: i64,
        found: usize,
    ) -> Result<(), String> {
        self.check_time(time_ns).map_err(|e| e.to_string())?;
        let expected = if row.is_events() { 0 } else { row.columns() };
        if found != expected {
            return Err(reason(&WriteError::Shape { row: 0, found, expected }));
        }
        Ok(())
    }

    /// Returns the reason for which an event would be refused.
    pub(crate) fn check_event(
        &self,
        row: &RowLookup,
        time_ns: i64,
        text: &[u8],
    ) -> Result<(), String> {
        self.check_time(time_ns).map_err(|e| e.to_string())?;
        if !row.is_events() {
            let expected = row.columns();
            return Err(reason(&WriteError::Shape { row: 0, found: 1, expected }));
        }
        if text.len() > EVENT_BYTES_MAX {
            let (what, value, max) = ("event_bytes", text.len(), EVENT_BYTES_MAX);
            return Err(WriteError::TooLarge { what, value, max }.to_string());
        }
        Ok(())
    }

    /// Adds samples with `push` to the batch, or to a new one if the batch is full. `push` may be
    /// called twice.
    #[inline]
    fn push_samples(
        &mut self,
        samples: usize,
        push: impl Fn(&mut Batch) -> Result<(), WriteError>,
    ) -> Result<(), String> {
        if self.batch.bytes_max() > self.batch_bytes_max {
            self.start_batch();
        }
        let pushed = match push(&mut self.batch) {
            // The row does not fit into this batch.
            Err(WriteError::TooLarge { .. }) => {
                self.start_batch();
                push(&mut self.batch)
            }
            pushed => pushed,
        };
        pushed.map_err(|e| reason(&e))?;
        self.collected.samples += samples as u64;
        Ok(())
    }

    fn start_batch(&mut self) {
        if !self.batch.is_empty() {
            self.collected.batches.push(std::mem::take(&mut self.batch));
        }
    }

    /// Refuses a time for which the store would refuse the whole batch.
    #[inline]
    fn check_time(&self, time_ns: i64) -> Result<(), WriteError> {
        let Self { oldest_ns, newest_ns, .. } = *self;
        if time_ns < oldest_ns {
            Err(WriteError::TooOld { time_ns, oldest_ns })
        } else if time_ns == i64::MAX {
            Err(WriteError::EndOfTime { time_ns })
        } else if time_ns > newest_ns {
            Err(WriteError::TooNew { time_ns, newest_ns })
        } else {
            Ok(())
        }
    }

    /// Counts a refusal and stores the first [`REFUSALS_MAX`] of them.
    pub(crate) fn refuse(&mut self, line: u64, reason: impl Into<String>, text: &[u8]) {
        self.refuse_text(line, reason, || quoted(text));
    }

    /// Does the same for an offending text that is reported as it is.
    pub(crate) fn refuse_text(
        &mut self,
        line: u64,
        reason: impl Into<String>,
        text: impl FnOnce() -> String,
    ) {
        let collected = &mut self.collected;
        collected.refused += 1;
        if collected.refusals.len() < REFUSALS_MAX {
            let (reason, text) = (reason.into(), text());
            collected.refusals.push(RowRefusal { line, reason, text });
        }
    }

    pub fn finish(mut self) -> CollectedRows {
        if self.batch.is_empty() {
            self.store.spare(self.batch);
        } else {
            self.collected.batches.push(self.batch);
        }
        self.collected
    }
}

/// Returns true if a raw name has a tag that `PromQL` takes for the metric.
#[inline]
fn has_name_tag(raw: &[u8]) -> bool {
    // The names of almost all tags do not end with `_`, with which the label does, escaped or not.
    // Only the others are parsed.
    let ends = |at| raw.get(..at).is_some_and(|before| before.ends_with(b"_"));
    let is_label = |(tag, _): &(String, String)| tag == NAME_LABEL;
    memchr_iter(b'=', raw).any(ends)
        && RowName::parse(raw).is_ok_and(|name| name.tags.iter().any(is_label))
}

/// Returns an offending text for an error, shortened. Only control characters are escaped: they
/// would start a line of the answer. Quotes and backslashes stay as they were sent, because JSON
/// escapes them once more.
pub(crate) fn quoted(text: &[u8]) -> String {
    let mut out = String::new();
    for c in String::from_utf8_lossy(text.get(..QUOTED_BYTES_MAX).unwrap_or(text)).chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// Returns the store's error about a row without its row number: the offending text is reported
/// with it.
fn reason(error: &WriteError) -> String {
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
