//! Durations with units, such as `1h30m`.

use std::fmt::Write as _;

/// Units from the largest to the smallest, milliseconds.
const UNITS: [(&str, i64); 7] = [
    ("y", 365 * DAY),
    ("w", 7 * DAY),
    ("d", DAY),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];
const DAY: i64 = 86_400_000;
/// Longest duration, milliseconds: that of 64 bits of nanoseconds, as in Prometheus.
const MS_MAX: i64 = i64::MAX / 1_000_000;

/// Returns a duration in milliseconds. The units are in order, each at most once.
///
/// # Errors
/// Returns Prometheus' text of the error.
pub fn parse(text: &str) -> Result<i64, String> {
    let not_valid = || format!("not a valid duration string: {text:?}");
    let mut rest = text;
    let mut units = &UNITS[..];
    let mut total = 0_i64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(not_valid)?;
        let (number, after) = rest.split_at(digits);
        let number: i64 = number.parse().map_err(|_| not_valid())?;
        let end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        if UNITS.iter().all(|(name, _)| *name != unit) {
            return Err(format!("unknown unit {unit:?} in duration {text:?}"));
        }
        let at = units.iter().position(|(name, _)| *name == unit).ok_or_else(not_valid)?;
        let milliseconds = units.get(at).map_or(0, |(_, milliseconds)| *milliseconds);
        units = units.get(at + 1..).unwrap_or_default();
        rest = after;
        let sum = number.checked_mul(milliseconds).and_then(|more| total.checked_add(more));
        total = sum.filter(|sum| *sum <= MS_MAX).ok_or("duration out of range")?;
    }
    Ok(total)
}

/// Returns the text of a duration that is not negative. Years and weeks are used only if nothing is
/// left over.
pub(crate) fn show(milliseconds: i64) -> String {
    if milliseconds == 0 {
        return "0s".into();
    }
    let mut left = milliseconds;
    let mut out = String::new();
    for (unit, length) in UNITS {
        let exact = matches!(unit, "y" | "w");
        if (exact && left % length != 0) || left < length {
            continue;
        }
        let _ = write!(out, "{}{unit}", left / length);
        left %= length;
    }
    out
}
