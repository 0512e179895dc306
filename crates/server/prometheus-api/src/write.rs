//! Writes answers as JSON, with the numbers of Go.

use std::fmt::Write as _;

use promql::{Answer, Labels, Query};
use serde_json::json;

/// Bytes of a point in memory and in the text.
const POINT_BYTES: usize = 56;
/// Magnitude below which every integer is exactly a float, 2^53.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Estimates the bytes of an answer and of its text.
pub(crate) fn bytes(answer: &Answer) -> usize {
    let labels = |labels: &Labels| {
        labels.iter().map(|(name, value)| name.len() + value.len() + 8).sum::<usize>()
    };
    match answer {
        Answer::Scalar(_) | Answer::String(_) => 0,
        Answer::Vector(list) => list.iter().map(|(l, _)| 2 * labels(l) + POINT_BYTES).sum(),
        Answer::Matrix(list) => {
            list.iter().map(|(l, points)| 2 * labels(l) + POINT_BYTES * points.len()).sum()
        }
    }
}

/// Returns `data` of an answer.
pub(crate) fn data(answer: &Answer, query: Query) -> String {
    let mut out = String::new();
    match answer {
        Answer::Scalar(value) => {
            open(&mut out, "scalar");
            push_point(&mut out, query.start_ms, *value);
        }
        Answer::String(bytes) => {
            open(&mut out, "string");
            let text = String::from_utf8_lossy(bytes);
            let _ = write!(out, "[{},{}]", Time(query.start_ms), json!(text));
        }
        Answer::Vector(list) => {
            open(&mut out, "vector");
            push_list(&mut out, list, |out, (labels, value)| {
                push_metric(out, labels);
                out.push_str(",\"value\":");
                push_point(out, query.start_ms, *value);
            });
        }
        Answer::Matrix(list) => {
            open(&mut out, "matrix");
            push_list(&mut out, list, |out, (labels, points)| {
                push_metric(out, labels);
                out.push_str(",\"values\":");
                push_points(out, points);
            });
        }
    }
    out.push('}');
    out
}

fn open(out: &mut String, kind: &str) {
    let _ = write!(out, "{{\"resultType\":\"{kind}\",\"result\":");
}

fn push_list<T>(out: &mut String, list: &[T], push: impl Fn(&mut String, &T)) {
    out.push('[');
    for (at, item) in list.iter().enumerate() {
        out.push_str(if at > 0 { ",{" } else { "{" });
        push(out, item);
        out.push('}');
    }
    out.push(']');
}

fn push_points(out: &mut String, points: &[(i64, f64)]) {
    out.push('[');
    for (at, (time_ms, value)) in points.iter().enumerate() {
        out.push_str(if at > 0 { "," } else { "" });
        push_point(out, *time_ms, *value);
    }
    out.push(']');
}

fn push_metric(out: &mut String, labels: &Labels) {
    out.push_str("\"metric\":{");
    for (at, (name, value)) in labels.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let _ = write!(out, "{comma}{}:{}", json!(name), json!(value));
    }
    out.push('}');
}

fn push_point(out: &mut String, time_ms: i64, value: f64) {
    let _ = write!(out, "[{},\"", Time(time_ms));
    push_float(out, value);
    out.push_str("\"]");
}

/// Milliseconds, written as seconds.
struct Time(i64);

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 % 1000 == 0 {
            return (self.0 / 1000).fmt(f);
        }
        let magnitude = self.0.unsigned_abs();
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{}.{:03}", magnitude / 1000, magnitude % 1000)
    }
}

/// Writes a float with the fewest digits; very large and very small ones with an exponent of at least
/// two digits.
fn push_float(out: &mut String, value: f64) {
    let magnitude = value.abs();
    let integer = value as i64;
    // Most values of counters: an integer is written in a fraction of the time.
    if magnitude < EXACT_MAX && (integer as f64).to_bits() == value.to_bits() {
        let _ = write!(out, "{integer}");
        return;
    }
    if !(1e-6..1e21).contains(&magnitude) && magnitude != 0.0 && magnitude.is_finite() {
        let text = format!("{value:e}");
        if let Some((digits, exponent)) = text.split_once('e') {
            let (sign, power) = match exponent.strip_prefix('-') {
                Some(power) => ('-', power),
                None => ('+', exponent),
            };
            let _ = write!(out, "{digits}e{sign}{power:0>2}");
            return;
        }
    }
    out.push_str(&promql_syntax::show_number(value));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_written_as_go_writes_them() {
        for (value, text) in [
            (1.5, "1.5"),
            (1e-7, "1e-07"),
            (1e21, "1e+21"),
            (1e20, "100000000000000000000"),
            (-0.0, "-0"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            let mut out = String::new();
            push_float(&mut out, value);
            assert_eq!(out, text);
        }
        for (ms, text) in [(1500, "1.500"), (-20, "-0.020"), (2000, "2")] {
            assert_eq!(Time(ms).to_string(), text);
        }
    }
}
