//! Prometheus remote write, version 1: a snappy block of one protobuf message.

use prost::Message;
use series::Value;

use crate::intake::Intake;

/// Largest message after decompression, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// A request.
#[derive(Clone, PartialEq, Message)]
pub struct WriteRequest {
    /// The series with their samples.
    #[prost(message, repeated, tag = "1")]
    pub timeseries: Vec<TimeSeries>,
}

/// One series.
#[derive(Clone, PartialEq, Message)]
pub struct TimeSeries {
    /// Its labels; `__name__` is the metric.
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
    /// Its samples.
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
}

/// One label.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Label {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// One sample.
#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    /// The value.
    #[prost(double, tag = "1")]
    pub value: f64,
    /// Milliseconds since the epoch.
    #[prost(int64, tag = "2")]
    pub timestamp: i64,
}

/// Read a request's body; refusals name their series.
///
/// # Errors
/// When the body as a whole cannot be read; nothing of it is taken then.
pub fn read(body: &[u8], intake: &mut Intake<'_>) -> Result<(), String> {
    let length = snap::raw::decompress_len(body).map_err(|e| format!("body: snappy: {e}"))?;
    if length > MESSAGE_BYTES_MAX {
        return Err(format!(
            "body: {length} bytes decompressed are over the limit of {MESSAGE_BYTES_MAX}; send \
             smaller requests"
        ));
    }
    let mut message = snap::raw::Decoder::new();
    let message = message.decompress_vec(body).map_err(|e| format!("body: snappy: {e}"))?;
    let request = WriteRequest::decode(&*message).map_err(|e| format!("body: protobuf: {e}"))?;
    let mut name = Vec::new();
    for (i, series) in request.timeseries.iter().enumerate() {
        if let Err(reason) = one(series, &mut name, intake) {
            intake.refuse(i as u64 + 1, reason, &name);
        }
    }
    Ok(())
}

fn one(series: &TimeSeries, name: &mut Vec<u8>, intake: &mut Intake<'_>) -> Result<(), String> {
    name.clear();
    let metric = series.labels.iter().find(|l| l.name == "__name__").map_or("", |l| &l.value);
    escape(name, metric);
    for label in series.labels.iter().filter(|l| l.name != "__name__") {
        name.push(b' ');
        escape(name, &label.name);
        name.push(b'=');
        escape(name, &label.value);
    }
    if metric.is_empty() {
        return Err("series without the label __name__".into());
    }
    if metric.starts_with('!') {
        return Err("a metric that begins with ! holds events; rename it".into());
    }
    let row = intake.row(name)?;
    let mut all = Ok(());
    for sample in &series.samples {
        let time_ns = sample.timestamp.checked_mul(1_000_000);
        let taken = time_ns
            .ok_or_else(|| "time out of range".into())
            .and_then(|time_ns| intake.push(row, time_ns, &[Value::F64(sample.value)]));
        // Its neighbours are taken all the same; the first refusal is told.
        all = all.and(taken);
    }
    all
}

fn escape(into: &mut Vec<u8>, text: &str) {
    for c in text.bytes() {
        if matches!(c, b' ' | b'=' | b'|' | b'\\') {
            into.push(b'\\');
        }
        into.push(c);
    }
}
