//! The body of `OpenTSDB`'s `POST /api/put`: one data point, or an array of them, in JSON.
//!
//! A data point has the fields of a line of `put`: `{"metric", "timestamp", "value", "tags"}`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use query::time::parse_any;
use serde::Deserialize;
use serde::de::{Deserializer as _, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;
use series::escape_name as escape;

use crate::collector::{RowCollector, quoted};
use crate::telnet::{LINE_BYTES_MAX, parse_value};

/// A data point. Numbers stay texts, so that one out of range refuses its data point alone.
#[derive(Debug, Deserialize)]
struct DataPoint<'a> {
    #[serde(borrow)]
    metric: Option<Cow<'a, str>>,
    #[serde(borrow)]
    timestamp: Option<&'a RawValue>,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tags: BTreeMap<Cow<'a, str>, &'a RawValue>,
}

/// Reads the data points of a body. A refusal has the number of the data point, counted from 1,
/// and its whole JSON as the text, unless that is longer than a line may be.
///
/// # Errors
/// Returns an error if the body is not JSON, or has no data point. Nothing was added then.
pub fn read(body: &[u8], collector: &mut RowCollector<'_>) -> Result<(), String> {
    let malformed = |e: &dyn fmt::Display| format!("body: {e}; send a data point or an array");
    let text = std::str::from_utf8(body).map_err(|e| malformed(&e))?;
    // The whole body is checked first: data points of a broken one must not register series.
    serde_json::from_str::<IgnoredAny>(text).map_err(|e| malformed(&e))?;
    let mut points = PointReader { collector, number: 0, name: String::new() };
    if text.trim_ascii_start().starts_with('[') {
        let mut json = serde_json::Deserializer::from_str(text);
        json.deserialize_seq(&mut points).map_err(|e| malformed(&e))?;
    } else {
        points.read(text.trim_ascii());
    }
    if points.number == 0 { Err("body: no data points; send one or more".into()) } else { Ok(()) }
}

struct PointReader<'c, 's> {
    collector: &'c mut RowCollector<'s>,
    number: u64,
    name: String,
}

impl<'de> Visitor<'de> for &mut PointReader<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of data points")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        while let Some(point) = array.next_element::<&RawValue>()? {
            self.read(point.get());
        }
        Ok(())
    }
}

impl PointReader<'_, '_> {
    fn read(&mut self, point: &str) {
        self.number += 1;
        if point.len() > LINE_BYTES_MAX {
            let reason = format!("data point is over the limit of {LINE_BYTES_MAX} bytes");
            self.collector.refuse_text(self.number, reason, || quoted(point.as_bytes()));
        } else if let Err(reason) = self.push(point) {
            self.collector.refuse_text(self.number, reason, || point.to_owned());
        }
    }

    fn push(&mut self, point: &str) -> Result<(), String> {
        let point: DataPoint<'_> =
            serde_json::from_str(point).map_err(|e| format!("not a data point: {e}"))?;
        let metric = point.metric.filter(|metric| !metric.is_empty()).ok_or("no metric")?;
        let time = scalar(point.timestamp).and_then(|text| parse_any(text.as_bytes()));
        let time_ns = time.ok_or("no timestamp; write seconds or milliseconds")?;
        let value = scalar(point.value).and_then(|text| parse_value(text.as_bytes()));
        let value = value.ok_or("no value; write a number")?;
        self.name.clear();
        escape(&mut self.name, &metric);
        for (tag, value) in &point.tags {
            let value = scalar(Some(value)).ok_or_else(|| format!("tag {tag}: no text"))?;
            self.name.push(' ');
            escape(&mut self.name, tag);
            self.name.push('=');
            escape(&mut self.name, &value);
        }
        let mut row = self.collector.look_up(self.name.as_bytes())?;
        self.collector.push(&mut row, time_ns, &[value])
    }
}

/// Returns the text of a string, a number or a boolean, as `OpenTSDB` reads each of them.
fn scalar(value: Option<&RawValue>) -> Option<Cow<'_, str>> {
    let text = value?.get();
    match text.as_bytes().first()? {
        b'"' => serde_json::from_str::<String>(text).ok().map(Cow::Owned),
        b'{' | b'[' | b'n' => None,
        _ => Some(Cow::Borrowed(text)),
    }
}
