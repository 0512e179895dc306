//! Prometheus remote write, version 1: a snappy block of one protobuf message.
//!
//! The message is decoded in place and no structs are built from it. The encoded labels of a series
//! are the key of a cache of rows, so only labels that were not seen before are decoded into a
//! name. Senders repeat their series in the same order, so most look-ups hit the next entry of the
//! cache at once.
//!
//! Limits: [`MESSAGE_BYTES_MAX`], [`REQUEST_SAMPLES_MAX`], [`LABELS_BYTES_MAX`].

use std::hash::BuildHasher as _;

use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use prost::Message;
use series::{Row, RowLookup};

use crate::collector::RowCollector;
use crate::protobuf::{Field, Fields, Malformed};

/// Largest message after decompression, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Most samples of one request.
pub const REQUEST_SAMPLES_MAX: usize = 4 << 20;
/// Most memory for cached labels, in bytes. The cache is emptied when it would exceed this.
pub const LABELS_BYTES_MAX: usize = 128 << 20;
/// Number of decompression buffers kept for later requests, and the size of the largest one that is
/// kept, in bytes.
const BUFFERS_MAX: usize = 4;
const BUFFER_BYTES_MAX: usize = 8 << 20;
/// Memory of a cached series in addition to its labels, in bytes.
const ENTRY_BYTES: usize = 20;

// Field numbers of the messages.
const TIMESERIES: u32 = 1;
const LABELS: u32 = 1;
const SAMPLES: u32 = 2;
const HISTOGRAMS: u32 = 4;
const NAME: u32 = 1;
const VALUE: u32 = 2;
const SAMPLE_VALUE: u32 = 1;
const SAMPLE_TIME: u32 = 2;

/// The tag byte of a label: its field number and the wire type of a length-delimited field.
const LABEL_TAG: u8 = 0x0a;

/// A request as a sender builds it, for tests and benchmarks. The reader does not use it.
#[derive(Clone, PartialEq, Message)]
pub struct WriteRequest {
    /// The series with their samples.
    #[prost(message, repeated, tag = "1")]
    pub timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TimeSeries {
    /// The labels of the series; the label `__name__` holds the metric.
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Label {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    #[prost(double, tag = "1")]
    pub value: f64,
    /// Milliseconds since the epoch.
    #[prost(int64, tag = "2")]
    pub timestamp: i64,
}

/// Reads the body of one request without a cache; see [`RemoteReader::read`].
///
/// # Errors
/// See [`RemoteReader::read`].
pub fn read(body: &[u8], collector: &mut RowCollector<'_>) -> Result<(), String> {
    RemoteReader::default().read(body, collector)
}

/// Reads requests and caches the row of its store for each set of labels.
#[derive(Default)]
pub struct RemoteReader {
    known: RwLock<LabelCache>,
    buffers: Mutex<Vec<Vec<u8>>>,
}

/// Cached rows by encoded labels, in the order in which they were inserted.
#[derive(Default)]
struct LabelCache {
    entries: Vec<Entry>,
    /// The bytes of all labels.
    labels: Vec<u8>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// The store's epoch in which the rows were looked up.
    epoch: u32,
}

#[derive(Clone, Copy)]
struct Entry {
    /// Offset of its labels in [`LabelCache::labels`]. They end where those of the next entry
    /// begin.
    from: u32,
    row: Row,
}

impl LabelCache {
    /// Returns the index and the row of the labels. The entry at `guess` is compared first.
    fn find_row(&self, labels: &[u8], guess: usize) -> Option<(usize, Row)> {
        if let Some(entry) = self.entries.get(guess).filter(|_| self.of(guess) == labels) {
            return Some((guess, entry.row));
        }
        let same = |i: &u32| self.of(*i as usize) == labels;
        let place = *self.table.find(self.hasher.hash_one(labels), same)? as usize;
        Some((place, self.entries.get(place)?.row))
    }

    /// Returns the labels of the entry at an index.
    fn of(&self, place: usize) -> &[u8] {
        labels_of(&self.entries, &self.labels, place)
    }

    /// Empties the cache if the epoch has changed: the store may have dropped rows since then.
    fn renew(&mut self, epoch: u32) {
        if self.epoch != epoch {
            (self.entries, self.labels, self.table) = Default::default();
            self.epoch = epoch;
        }
    }

    /// Adds labels and returns their index.
    fn insert(&mut self, labels: &[u8], row: Row) -> usize {
        let bytes = self.labels.len() + labels.len() + (self.entries.len() + 1) * ENTRY_BYTES;
        if bytes > LABELS_BYTES_MAX {
            (self.entries, self.labels, self.table) = Default::default();
        }
        // Both fit into `u32` because they are below LABELS_BYTES_MAX.
        let (place, from) = (self.entries.len(), self.labels.len() as u32);
        self.labels.extend_from_slice(labels);
        self.entries.push(Entry { from, row });
        let (entries, bytes, hasher) = (&self.entries, &self.labels, &self.hasher);
        let hash = |i: &u32| hasher.hash_one(labels_of(entries, bytes, *i as usize));
        self.table.insert_unique(hasher.hash_one(labels), place as u32, hash);
        place
    }
}

fn labels_of<'a>(entries: &[Entry], labels: &'a [u8], place: usize) -> &'a [u8] {
    let from = |place: usize| entries.get(place).map(|entry| entry.from as usize);
    let begin = from(place).unwrap_or(labels.len());
    labels.get(begin..from(place + 1).unwrap_or(labels.len())).unwrap_or_default()
}

impl RemoteReader {
    /// Reads the body of a request into the collector. Refused series are reported to the collector
    /// by name. A reader must be used with one store only.
    ///
    /// # Errors
    /// Returns an error if the body is too large, cannot be decoded or has too many samples. The
    /// collector may then hold part of the request: discard it.
    pub fn read(&self, body: &[u8], collector: &mut RowCollector<'_>) -> Result<(), String> {
        let length = snap::raw::decompress_len(body).map_err(|e| format!("body: snappy: {e}"))?;
        if length > MESSAGE_BYTES_MAX {
            return Err(format!(
                "body: {length} bytes decompressed are over the limit of {MESSAGE_BYTES_MAX}; \
                 send smaller requests"
            ));
        }
        let epoch = collector.store().epoch();
        if self.known.read().epoch != epoch {
            self.known.write().renew(epoch);
        }
        let mut buffer = self.buffers.lock().pop().unwrap_or_default();
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        let read = snap::raw::Decoder::new()
            .decompress(body, &mut buffer)
            .map_err(|e| format!("body: snappy: {e}"))
            .and_then(|length| {
                let mut walk = Walk::new(self);
                walk.message(buffer.get(..length).unwrap_or_default(), collector)
                    .map_err(|e| format!("body: protobuf: {}", e.0))
            });
        let mut buffers = self.buffers.lock();
        if buffer.len() <= BUFFER_BYTES_MAX && buffers.len() < BUFFERS_MAX {
            buffers.push(buffer);
        }
        read
    }
}

/// A request being read.
struct Walk<'a> {
    reader: &'a RemoteReader,
    /// Read lock on the cache, kept from one series to the next. It must be released before the
    /// write lock is taken to add labels.
    known: Option<RwLockReadGuard<'a, LabelCache>>,
    /// Index in the cache at which the labels of the next series are expected.
    guess: usize,
    name: Vec<u8>,
    samples: usize,
}

impl<'a> Walk<'a> {
    fn new(reader: &'a RemoteReader) -> Self {
        Self { reader, known: None, guess: 0, name: Vec::new(), samples: 0 }
    }

    fn message(
        &mut self,
        message: &[u8],
        collector: &mut RowCollector<'_>,
    ) -> Result<(), Malformed> {
        let (mut fields, mut number) = (Fields(message), 0);
        while let Some((field, content)) = fields.next()? {
            if field == TIMESERIES {
                number += 1;
                self.series(number, content.bytes()?, collector)?;
            }
        }
        Ok(())
    }

    /// Adds the samples of one series to the collector, or reports to it why they are refused.
    ///
    /// # Errors
    /// Returns an error if the request cannot be decoded or has too many samples; the whole request
    /// is then refused.
    fn series(
        &mut self,
        number: u64,
        series: &[u8],
        collector: &mut RowCollector<'_>,
    ) -> Result<(), Malformed> {
        let (labels, rest) = series.split_at(labels_end(series)?);
        let (mut scattered, mut histograms) = (false, false);
        let mut fields = Fields(rest);
        while let Some((field, content)) = fields.next()? {
            match field {
                LABELS => scattered = true,
                SAMPLES => {
                    content.bytes()?;
                    self.samples += 1;
                }
                HISTOGRAMS => histograms = true,
                _ => {}
            }
        }
        if self.samples > REQUEST_SAMPLES_MAX {
            return Err(Malformed("more samples than one request may have; send smaller requests"));
        }
        let gathered;
        let labels = if scattered {
            gathered = gather(series)?;
            &gathered
        } else {
            labels
        };
        let taken = match self.look_up(labels, collector) {
            Ok(CachedLookup { mut row, cached }) => {
                let taken = take_samples(&mut row, rest, collector)?;
                if let (RowLookup::Known(row), false) = (row, cached) {
                    self.guess = self.reader.known.write().insert(labels, row) + 1;
                }
                taken
            }
            Err(reason) => Err(reason),
        };
        if histograms && let Ok(Some(metric)) = metric_of(labels) {
            collector.store().note_refused_histogram(&String::from_utf8_lossy(metric));
        }
        let all = taken.and_then(|()| if histograms { Err(NO_HISTOGRAMS.into()) } else { Ok(()) });
        if let Err(reason) = all {
            // The name is also written for labels without a metric. It is empty if the labels
            // cannot be decoded.
            let _ = write_name(labels, &mut self.name);
            collector.refuse(number, reason, &self.name);
        }
        Ok(())
    }

    /// Looks up the row of labels, in the cache or in the store. Without the cache, its lock is
    /// released.
    fn look_up(
        &mut self,
        labels: &[u8],
        collector: &RowCollector<'_>,
    ) -> Result<CachedLookup, String> {
        let reader = self.reader;
        let known = self.known.get_or_insert_with(|| reader.known.read());
        if let Some((place, row)) = known.find_row(labels, self.guess) {
            self.guess = place + 1;
            return Ok(CachedLookup { row: RowLookup::Known(row), cached: true });
        }
        self.known = None;
        write_name(labels, &mut self.name)?;
        Ok(CachedLookup { row: collector.look_up(&self.name)?, cached: false })
    }
}

/// A row series, and whether the cache has it.
struct CachedLookup {
    row: RowLookup,
    cached: bool,
}

const NO_HISTOGRAMS: &str =
    "native histograms are not stored; let the sender send classic ones (buckets)";

/// Returns the offset at which the leading labels of a series end.
fn labels_end(series: &[u8]) -> Result<usize, Malformed> {
    let mut fields = Fields(series);
    while fields.0.first() == Some(&LABEL_TAG) {
        fields.next()?;
    }
    Ok(series.len() - fields.0.len())
}

/// Concatenates all labels of a series, for senders that put other fields between them.
fn gather(series: &[u8]) -> Result<Vec<u8>, Malformed> {
    let (mut fields, mut all) = (Fields(series), Vec::new());
    loop {
        let before = fields.0;
        let Some((field, _)) = fields.next()? else { return Ok(all) };
        if field == LABELS {
            let taken = before.len() - fields.0.len();
            all.extend_from_slice(before.get(..taken).unwrap_or_default());
        }
    }
}

/// Adds the samples of a series, which is registered with the first accepted one. Only the first
/// refusal is reported; the other samples are still added.
fn take_samples(
    row: &mut RowLookup,
    rest: &[u8],
    collector: &mut RowCollector<'_>,
) -> Result<Result<(), String>, Malformed> {
    let (mut fields, mut all) = (Fields(rest), Ok(()));
    while let Some((field, content)) = fields.next()? {
        if field != SAMPLES {
            continue;
        }
        let (mut sample, mut value, mut millis) = (Fields(content.bytes()?), 0.0, 0);
        while let Some((field, content)) = sample.next()? {
            match (field, content) {
                (SAMPLE_VALUE, Field::Fixed64(bits)) => value = f64::from_bits(bits),
                (SAMPLE_TIME, Field::Varint(number)) => millis = number as i64,
                (SAMPLE_VALUE | SAMPLE_TIME, _) => {
                    return Err(Malformed("a sample's value or time is of another type"));
                }
                _ => {}
            }
        }
        let taken = match millis.checked_mul(1_000_000) {
            Some(time_ns) => collector.push_float(row, time_ns, value),
            None => Err("time out of range".into()),
        };
        all = all.and(taken);
    }
    Ok(all)
}

/// Builds the name of a row series from labels; `__name__` is the metric.
fn write_name(labels: &[u8], name: &mut Vec<u8>) -> Result<(), String> {
    name.clear();
    let malformed = |e: Malformed| format!("labels: {}", e.0);
    let (mut fields, mut metric, mut tags) = (Fields(labels), None, Vec::new());
    let mut named_twice = false;
    while let Some((_, label)) = fields.next().map_err(malformed)? {
        let (key, value) = pair(label.bytes().map_err(malformed)?).map_err(malformed)?;
        if key == b"__name__" {
            named_twice |= metric.replace(value).is_some();
        } else {
            // In Prometheus a label with an empty value is the same as no label.
            tags.extend((!value.is_empty()).then_some((key, value)));
        }
    }
    let metric = metric.unwrap_or_default();
    escape(name, metric);
    for (key, value) in &tags {
        name.push(b' ');
        escape(name, key);
        name.push(b'=');
        escape(name, value);
    }
    match metric.first() {
        None => Err("series without the label __name__".into()),
        Some(_) if named_twice => Err("the label __name__ twice; send it once".into()),
        Some(b'!') => Err("a metric that begins with ! holds events; rename it".into()),
        Some(_) => Ok(()),
    }
}

/// Returns the value of the label `__name__`.
fn metric_of(labels: &[u8]) -> Result<Option<&[u8]>, Malformed> {
    let mut fields = Fields(labels);
    while let Some((_, label)) = fields.next()? {
        let (key, value) = pair(label.bytes()?)?;
        if key == b"__name__" {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// Returns the name and the value of a label.
fn pair(label: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let (mut fields, mut name, mut value) = (Fields(label), &[][..], &[][..]);
    while let Some((field, content)) = fields.next()? {
        match field {
            NAME => name = content.bytes()?,
            VALUE => value = content.bytes()?,
            _ => {}
        }
    }
    Ok((name, value))
}

fn escape(into: &mut Vec<u8>, text: &[u8]) {
    match std::str::from_utf8(text) {
        Ok(text) => {
            let mut escaped = String::with_capacity(text.len());
            series::escape_name(&mut escaped, text);
            into.extend_from_slice(escaped.as_bytes());
        }
        // The name is refused.
        Err(_) => into.extend_from_slice(text),
    }
}
