//! Instants as text: RFC 3339 in UTC, as ECS documents and the REST API carry them.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Formats microseconds since the Unix epoch as RFC 3339 with six decimals, for example
/// `2026-11-21T18:52:02.000001Z`. An instant outside the years 0 to 9999 gives the epoch.
pub fn micros(us: u64) -> String {
    nanos(i128::from(us) * 1_000, 6)
}

/// Formats nanoseconds since the Unix epoch (negative before it) as RFC 3339 with nine decimals.
pub fn nanos_text(ns: i64) -> String {
    nanos(i128::from(ns), 9)
}

fn nanos(ns: i128, digits: usize) -> String {
    let at = OffsetDateTime::from_unix_timestamp_nanos(ns).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let mut fraction = format!("{:09}", at.nanosecond());
    fraction.truncate(digits);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{fraction}Z",
        at.year(),
        u8::from(at.month()),
        at.day(),
        at.hour(),
        at.minute(),
        at.second(),
    )
}

/// Formats seconds since the Unix epoch as the REST API prints dates: `2026-11-21T18:52:02+00:00`.
pub fn seconds_offset(seconds: i64) -> String {
    let mut text = String::with_capacity(25);
    push_seconds_offset(seconds, &mut text);
    text
}

/// Appends the same date to a text, without allocating a text per date.
pub fn push_seconds_offset(seconds: i64, text: &mut String) {
    let at = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let year = at.year().unsigned_abs().min(9999);
    let mut two = |number: u32, behind: char| {
        text.push(char::from(b'0' + (number / 10 % 10) as u8));
        text.push(char::from(b'0' + (number % 10) as u8));
        if behind != ' ' {
            text.push(behind);
        }
    };
    two(year / 100, ' ');
    two(year % 100, '-');
    two(u32::from(u8::from(at.month())), '-');
    two(u32::from(at.day()), 'T');
    two(u32::from(at.hour()), ':');
    two(u32::from(at.minute()), ':');
    two(u32::from(at.second()), '+');
    text.push_str("00:00");
}

/// Parses RFC 3339 into microseconds since the epoch; `None` if it is malformed or before the
/// epoch.
pub fn parse_micros(text: &str) -> Option<u64> {
    let at = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    u64::try_from(at.unix_timestamp_nanos() / 1_000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_micros_round_trip() {
        for us in [0, 1, 999_999, 1_732_215_122_000_001, 4_102_444_800_000_000] {
            assert_eq!(parse_micros(&micros(us)), Some(us));
        }
    }

    #[test]
    fn timestamps_have_documented_format() {
        assert_eq!(micros(1_763_751_122_000_001), "2025-11-21T18:52:02.000001Z");
        assert_eq!(nanos_text(-1), "1969-12-31T23:59:59.999999999Z");
        assert_eq!(seconds_offset(0), "1970-01-01T00:00:00+00:00");
        assert_eq!(seconds_offset(1_795_287_122), "2026-11-21T18:52:02+00:00");
        assert_eq!(seconds_offset(253_402_300_799), "9999-12-31T23:59:59+00:00");
        assert_eq!(parse_micros("yesterday"), None);
    }
}
