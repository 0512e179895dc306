//! Parses and formats the times of the protocols: ISO 8601 basic format, RFC 3339, numbers in
//! seconds to nanoseconds, and steps.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Nanoseconds of a second.
pub(crate) const SECOND_NS: i64 = 1_000_000_000;
/// Seconds of a day.
const DAY_S: i64 = 86_400;
/// Numbers below this are seconds, if a protocol does not name the unit.
const SECONDS_MAX: i64 = 1 << 32;
/// Numbers from [`SECONDS_MAX`] up to this are milliseconds, and larger ones nanoseconds, if a
/// protocol does not name the unit.
const MILLIS_MAX: i64 = SECONDS_MAX * 1000;

/// Returns the days from the epoch to a date of the proleptic Gregorian calendar. Counts whole eras
/// of 400 years, in which a year begins in March.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Returns the year, month and day of a day since the epoch.
fn date(day: i64) -> (i64, i64, i64) {
    let shifted = day + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, of_month)
}

fn digits(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > 18 {
        return None;
    }
    text.iter().try_fold(0i64, |n, c| c.is_ascii_digit().then(|| n * 10 + i64::from(c - b'0')))
}

/// Parses `YYYYMMDDTHHMMSS[.fffffffff][Z]` in UTC to nanoseconds.
pub fn parse_iso(text: &[u8]) -> Option<i64> {
    let text = text.strip_suffix(b"Z").unwrap_or(text);
    let (whole, fraction) = match text.iter().position(|c| *c == b'.') {
        Some(dot) => (text.get(..dot)?, text.get(dot + 1..)?),
        None => (text, &[][..]),
    };
    if whole.len() != 15 || whole.get(8) != Some(&b'T') || fraction.len() > 9 {
        return None;
    }
    let part = |from: usize, to: usize| digits(whole.get(from..to)?);
    let (year, month, day) = (part(0, 4)?, part(4, 6)?, part(6, 8)?);
    let (hour, minute, second) = (part(9, 11)?, part(11, 13)?, part(13, 15)?);
    if !(1..=12).contains(&month) || date(days(year, month, day)) != (year, month, day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut nanos = if fraction.is_empty() { 0 } else { digits(fraction)? };
    for _ in fraction.len()..9 {
        nanos *= 10;
    }
    let seconds = days(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second;
    seconds.checked_mul(SECOND_NS)?.checked_add(if text.len() == 15 { 0 } else { nanos })
}

/// Parses an RFC 3339 text, `2026-11-28T00:00:00.5+01:00`, to nanoseconds.
pub(crate) fn parse_rfc3339(text: &str) -> Option<i64> {
    let at = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    i64::try_from(at.unix_timestamp_nanos()).ok()
}

/// Formats a time as `YYYYMMDDTHHMMSS.fffffffff` in UTC.
pub(crate) fn format_iso(time_ns: i64) -> String {
    let (seconds, nanos) = (time_ns.div_euclid(SECOND_NS), time_ns.rem_euclid(SECOND_NS));
    let (day, of_day) = (seconds.div_euclid(DAY_S), seconds.rem_euclid(DAY_S));
    let (year, month, day) = date(day);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}.{nanos:09}")
}

/// Parses a text that is an integer as a whole.
#[inline]
pub fn parse_int(text: &[u8]) -> Option<i64> {
    let (negative, rest) = match text.first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    if rest.is_empty() || rest.len() > 19 {
        return None;
    }
    rest.iter().try_fold(0i64, |n, c| {
        let digit = i64::from(c.is_ascii_digit().then(|| c - b'0')?);
        let n = n.checked_mul(10)?;
        if negative { n.checked_sub(digit) } else { n.checked_add(digit) }
    })
}

/// Parses a number in seconds, milliseconds or nanoseconds, distinguished by its size, or an ISO
/// text. Returns nanoseconds.
pub fn parse_any(text: &[u8]) -> Option<i64> {
    let Some(n) = parse_int(text) else { return parse_iso(text) };
    let unit = match n {
        0..SECONDS_MAX => SECOND_NS,
        SECONDS_MAX..MILLIS_MAX => 1_000_000,
        _ => 1,
    };
    n.checked_mul(unit)
}

/// Parses `<n>` with a unit: n, us, ms, s, m or min, h, d. Returns nanoseconds, the default unit.
pub(crate) fn parse_step(text: &str) -> Option<i64> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let unit = match unit.trim() {
        "" | "n" | "ns" => 1,
        "us" => 1000,
        "ms" => 1_000_000,
        "s" => SECOND_NS,
        "m" | "min" => 60 * SECOND_NS,
        "h" => 3600 * SECOND_NS,
        "d" => DAY_S * SECOND_NS,
        _ => return None,
    };
    digits(number.as_bytes())?.checked_mul(unit).filter(|n| *n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iso_times_round_trip() {
        let cases: &[(&str, i64)] = &[
            ("19700101T000000.000000000", 0),
            ("20150322T160645.999999999", 1_427_040_405_999_999_999),
            ("20000229T235959.000000001", 951_868_799_000_000_001),
            ("19691231T235959.000000000", -1_000_000_000),
        ];
        for (text, ns) in cases {
            assert_eq!(parse_iso(text.as_bytes()), Some(*ns), "{text}");
            assert_eq!(format_iso(*ns), *text);
        }
        for text in ["20150322T160645.5", "20150322T160645.5Z"] {
            assert_eq!(parse_iso(text.as_bytes()), Some(1_427_040_405_500_000_000));
        }
        for bad in
            ["", "2015", "20150230T000000", "20150322 160645", "20150322T240000", "20151322T000000"]
        {
            assert_eq!(parse_iso(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn time_units_are_inferred_from_magnitude() {
        assert_eq!(parse_any(b"1427040405"), Some(1_427_040_405_000_000_000));
        assert_eq!(parse_any(b"1427040405123"), Some(1_427_040_405_123_000_000));
        assert_eq!(parse_any(b"1427040405123456789"), Some(1_427_040_405_123_456_789));
        assert_eq!(parse_any(b"x"), None);
        assert_eq!(parse_int(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_int(b"9223372036854775808"), None);
        assert_eq!(parse_step("5min"), Some(300 * SECOND_NS));
        assert_eq!(parse_step("0s"), None);
        assert_eq!(parse_step("5 parsecs"), None);
    }
}
