//! Numbers, digests and instants as text, written straight into a buffer.

/// Longest decimal number, bytes.
const NUMBER_BYTES_MAX: usize = 20;
/// The last second of the year 9999; text has four digits for a year.
const SECONDS_MAX: i64 = 253_402_300_799;
const SECONDS_PER_DAY: i64 = 86_400;

/// Decimal.
#[inline]
pub(crate) fn number(into: &mut Vec<u8>, mut n: u64) {
    let mut digits = [0; NUMBER_BYTES_MAX];
    let mut at = digits.len();
    for pair in digits.as_chunks_mut().0.iter_mut().rev() {
        *pair = two((n % 100) as u32);
        n /= 100;
        at -= if n == 0 && pair[0] == b'0' { 1 } else { 2 };
        if n == 0 {
            break;
        }
    }
    into.extend_from_slice(digits.get(at..).unwrap_or_default());
}

/// At least four octal digits.
pub(crate) fn octal(into: &mut Vec<u8>, mode: u32) {
    if mode > 0o7777 {
        into.extend_from_slice(format!("{mode:04o}").as_bytes());
        return;
    }
    into.extend_from_slice(&[9, 6, 3, 0].map(|shift| b'0' + (mode >> shift & 7) as u8));
}

/// Lower-case hex.
pub(crate) fn hex(into: &mut Vec<u8>, bytes: &[u8]) {
    let start = into.len();
    into.resize(start + bytes.len() * 2, 0);
    hex_to(into.get_mut(start..).unwrap_or_default(), bytes);
}

/// Lower-case hex into a place of exactly its length.
#[inline]
pub(crate) fn hex_to(place: &mut [u8], bytes: &[u8]) {
    let digit = |n: u8| n + if n < 10 { b'0' } else { b'a' - 10 };
    for (pair, byte) in place.as_chunks_mut().0.iter_mut().zip(bytes) {
        *pair = [digit(byte >> 4), digit(byte & 15)];
    }
}

/// How many decimals an instant has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decimals {
    Micros,
    Nanos,
}

/// An instant as [`crate::timestamp`] writes it: seconds since the epoch and the nanoseconds
/// behind them.
pub(crate) fn instant(into: &mut Vec<u8>, seconds: i64, nanos: u32, decimals: Decimals) {
    let (seconds, nanos) = if seconds > SECONDS_MAX { (0, 0) } else { (seconds, nanos) };
    let (year, month, day) = date(seconds.div_euclid(SECONDS_PER_DAY));
    let second = seconds.rem_euclid(SECONDS_PER_DAY) as u32;
    into.extend_from_slice(&two(year / 100));
    into.extend_from_slice(
        [
            part(year % 100, b'-'),
            part(month, b'-'),
            part(day, b'T'),
            part(second / 3600, b':'),
            part(second / 60 % 60, b':'),
            part(second % 60, b'.'),
        ]
        .as_flattened(),
    );
    let micros = nanos / 1000;
    let pairs = [two(micros / 10_000), two(micros / 100 % 100), two(micros % 100)];
    into.extend_from_slice(pairs.as_flattened());
    if decimals == Decimals::Nanos {
        let rest = nanos % 1000;
        into.push(b'0' + (rest / 100) as u8);
        into.extend_from_slice(&two(rest % 100));
    }
    into.push(b'Z');
}

/// Year, month and day of a number of days since the epoch, from the year 0 on: counted from
/// March, so that the leap day is a year's last (H. Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms", `civil_from_days`).
fn date(days: i64) -> (u32, u32, u32) {
    const DAYS_FROM_YEAR_0: i64 = 719_468;
    const DAYS_PER_ERA: i64 = 146_097;
    let (era, day) = {
        let days = days + DAYS_FROM_YEAR_0;
        (days.div_euclid(DAYS_PER_ERA), days.rem_euclid(DAYS_PER_ERA) as u32)
    };
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era as u32 * 400 + u32::from(month <= 2), month, day)
}

/// A number below 100 as two digits.
#[inline]
fn two(n: u32) -> [u8; 2] {
    [b'0' + (n / 10 % 10) as u8, b'0' + (n % 10) as u8]
}

/// [`two`] digits and a sign.
#[inline]
fn part(n: u32, sign: u8) -> [u8; 3] {
    let [tens, ones] = two(n);
    [tens, ones, sign]
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;

    use super::*;

    #[test]
    fn every_day_from_1600_to_2500_is_the_calendars() {
        for days in -135_140..193_500 {
            let at = OffsetDateTime::from_unix_timestamp(days * SECONDS_PER_DAY).unwrap();
            let (year, month, day) = date(days);
            assert_eq!(
                (at.year(), u8::from(at.month()), at.day()),
                (year as i32, month as u8, day as u8)
            );
        }
    }

    #[test]
    fn digits_are_as_everywhere() {
        let text = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = Vec::new();
            write(&mut bytes);
            String::from_utf8(bytes).unwrap()
        };
        for n in [0, 9, 10, 99, 100, 101, 1_000_000, 12_345_678_901, u64::MAX] {
            assert_eq!(text(&|into| number(into, n)), n.to_string());
        }
        for mode in [0, 0o644, 0o7777, 0o10_000] {
            assert_eq!(text(&|into| octal(into, mode)), format!("{mode:04o}"));
        }
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(text(&|into| hex(into, &bytes)), hex::encode(&bytes));
    }
}
