//! Writes fields of protobuf messages. Not with `prost`, which leaves out a value of -0 because it
//! equals the default.

use promql::Labels;

// Field numbers of messages (`prompb/types.proto`, `prompb/remote.proto`).
const NAME: u8 = 1;
const VALUE: u8 = 2;
const SAMPLE_VALUE: u8 = 1;
const SAMPLE_TIME: u8 = 2;
/// The labels of a `TimeSeries` and of a `ChunkedSeries`.
const LABELS: u8 = 1;
/// The samples of a `TimeSeries`, and the chunks of a `ChunkedSeries`.
pub(super) const CONTENT: u8 = 2;

/// Longest field of one sample, bytes.
const SAMPLE_BYTES_MAX: usize = 22;

/// Appends a number without the tag of a field.
pub(super) fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the tag and the length of a field whose bytes follow.
pub(super) fn push_length(out: &mut Vec<u8>, number: u8, length: usize) {
    out.push((number << 3) | 2);
    push_varint(out, length as u64);
}

/// Appends a field of bytes, even if there are none.
pub(super) fn push_bytes(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    push_length(out, number, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends a field of an integer; 0 is left out.
pub(super) fn push_int(out: &mut Vec<u8>, number: u8, value: i64) {
    if value != 0 {
        out.push(number << 3);
        push_varint(out, value.cast_unsigned());
    }
}

/// Appends the labels of a series.
pub(super) fn push_labels(out: &mut Vec<u8>, labels: &Labels) {
    let mut label = Vec::new();
    for (name, value) in labels.iter() {
        label.clear();
        push_bytes(&mut label, NAME, name.as_bytes());
        push_bytes(&mut label, VALUE, value.as_bytes());
        push_bytes(out, LABELS, &label);
    }
}

/// Appends a sample to a `TimeSeries`. Its value is left out if it is +0, bit for bit.
pub(super) fn push_sample(out: &mut Vec<u8>, time_ms: i64, value: f64) {
    let mut sample = Vec::with_capacity(SAMPLE_BYTES_MAX);
    if value.to_bits() != 0 {
        sample.push((SAMPLE_VALUE << 3) | 1);
        sample.extend_from_slice(&value.to_bits().to_le_bytes());
    }
    push_int(&mut sample, SAMPLE_TIME, time_ms);
    push_bytes(out, CONTENT, &sample);
}
