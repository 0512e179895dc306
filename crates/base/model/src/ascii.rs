//! Numbers, digests and instants as text, written straight into a buffer.

/// Longest decimal number, bytes.
const NUMBER_BYTES_MAX: usize = 20;
/// The last second of the year 9999; text has four digits for a year.
const SECONDS_MAX: i64 = 253_402_300_799;
const SECONDS_PER_DAY: i64 = 86_400;

#[inline]
pub(crate) fn number(into: &mut Vec<u8>, n: u64) {
    into.extend_from_slice(Decimal::new(n).text());
}

/// A number as decimal text.
pub(crate) struct Decimal {
    digits: [u8; NUMBER_BYTES_MAX],
    from: usize,
}

impl Decimal {
    #[inline]
    pub(crate) fn new(mut n: u64) -> Self {
        let mut digits = [0; NUMBER_BYTES_MAX];
        let mut from = digits.len();
        for pair in digits.as_chunks_mut().0.iter_mut().rev() {
            *pair = two((n % 100) as u32);
            n /= 100;
            from -= 2;
            if n == 0 {
                from += usize::from(pair[0] == b'0');
                break;
            }
        }
        Self { digits, from }
    }

    #[inline]
    pub(crate) fn text(&self) -> &[u8] {
        self.digits.get(self.from..).unwrap_or_default()
    }
}

/// Appends at least four octal digits.
pub(crate) fn octal(into: &mut Vec<u8>, mode: u32) {
    if mode > 0o7777 {
        into.extend_from_slice(format!("{mode:04o}").as_bytes());
        return;
    }
    into.extend_from_slice(&[9, 6, 3, 0].map(|shift| b'0' + (mode >> shift & 7) as u8));
}

/// Writes lower-case hex into a slice of exactly its length.
#[inline]
pub(crate) fn hex_to(place: &mut [u8], bytes: &[u8]) {
    for (pair, byte) in place.as_chunks_mut().0.iter_mut().zip(bytes) {
        *pair = HEX.get(usize::from(*byte)).copied().unwrap_or_default();
    }
}

/// Two lower-case hex digits for each byte value.
#[expect(
    clippy::indexing_slicing,
    reason = "counted when it is compiled: a wrong place is no program"
)]
const HEX: [[u8; 2]; 256] = {
    let (digits, mut all, mut n) = (*b"0123456789abcdef", [[0; 2]; 256], 0);
    while n < all.len() {
        all[n] = [digits[n >> 4], digits[n & 15]];
        n += 1;
    }
    all
};

/// Returns true if the bytes need no escapes in a JSON string: printable ASCII without quotation
/// mark and backslash.
#[inline]
#[expect(clippy::needless_bitwise_bool, reason = "a branch for each byte is what it saves")]
pub(crate) fn is_plain(bytes: &[u8]) -> bool {
    // There is no branch per byte: names are short, and nearly all are plain.
    let plain = |b: u8| (b.wrapping_sub(b' ') < 0x5f) & (b != b'"') & (b != b'\\');
    bytes.iter().fold(true, |all, byte| all & plain(*byte))
}

/// `2026-11-21T18:52:02.000001Z`, bytes.
pub(crate) const MICROS_BYTES: usize = 27;
/// The same with nine decimals, bytes.
pub(crate) const NANOS_BYTES: usize = 30;

/// The day formatted last; most instants are on the same day as the one before.
#[derive(Debug)]
pub(crate) struct Day {
    days: i64,
    /// `2026-11-21T`
    text: [u8; 11],
}

impl Default for Day {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Day {
    /// Returns the day that is this number of days after the epoch.
    fn new(days: i64) -> Self {
        let Date { year, month, day } = date(days);
        let [thousands, hundreds] = two(year / 100);
        let [year, month, day] = [part(year % 100, b'-'), part(month, b'-'), part(day, b'T')];
        let mut text = [thousands, hundreds, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for (place, byte) in text.iter_mut().skip(2).zip([year, month, day].as_flattened()) {
            *place = *byte;
        }
        Self { days, text }
    }

    /// Formats an instant as [`crate::timestamp`] does, from seconds since the epoch and the
    /// microseconds of the second.
    #[inline]
    pub(crate) fn micros(&mut self, seconds: i64, micros: u32) -> [u8; MICROS_BYTES] {
        let (seconds, micros) = if seconds > SECONDS_MAX { (0, 0) } else { (seconds, micros) };
        let mut text = [0; MICROS_BYTES];
        let rest = copy_to_front(&mut text, self.second(seconds));
        let rest = copy_to_front(rest, three(micros / 1000));
        let rest = copy_to_front(rest, three(micros % 1000));
        copy_to_front(rest, *b"Z");
        text
    }

    /// As [`Day::micros`], with the nanoseconds behind the seconds.
    #[inline]
    pub(crate) fn nanos(&mut self, seconds: i64, nanos: u32) -> [u8; NANOS_BYTES] {
        let (seconds, nanos) = if seconds > SECONDS_MAX { (0, 0) } else { (seconds, nanos) };
        let mut text = [0; NANOS_BYTES];
        let rest = copy_to_front(&mut text, self.second(seconds));
        let rest = copy_to_front(rest, three(nanos / 1_000_000));
        let rest = copy_to_front(rest, three(nanos / 1000 % 1000));
        let rest = copy_to_front(rest, three(nanos % 1000));
        copy_to_front(rest, *b"Z");
        text
    }

    /// Formats the part `2026-11-21T18:52:02.` of an instant.
    #[inline]
    fn second(&mut self, seconds: i64) -> [u8; 20] {
        let days = seconds.div_euclid(SECONDS_PER_DAY);
        if days != self.days {
            *self = Self::new(days);
        }
        let second = seconds.rem_euclid(SECONDS_PER_DAY) as u32;
        let mut text = [0; 20];
        let rest = copy_to_front(&mut text, self.text);
        let rest = copy_to_front(rest, part(second / 3600, b':'));
        let rest = copy_to_front(rest, part(second / 60 % 60, b':'));
        copy_to_front(rest, part(second % 60, b'.'));
        text
    }
}

/// Copies the piece to the beginning of the slice; returns the rest of the slice.
#[inline]
fn copy_to_front<const N: usize>(place: &mut [u8], piece: [u8; N]) -> &mut [u8] {
    match place.split_first_chunk_mut() {
        Some((first, rest)) => {
            *first = piece;
            rest
        }
        None => &mut [],
    }
}

struct Date {
    year: u32,
    /// Month, from 1.
    month: u32,
    /// Day of the month, from 1.
    day: u32,
}

/// Returns the date of a number of days since the epoch, from the year 0 on: counted from March, so
/// that the leap day is a year's last (H. Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms", `civil_from_days`).
fn date(days: i64) -> Date {
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
    Date { year: year + era as u32 * 400 + u32::from(month <= 2), month, day }
}

/// Returns the last two decimal digits of a number.
#[inline]
fn two(n: u32) -> [u8; 2] {
    DIGITS.get((n % 100) as usize).copied().unwrap_or_default()
}

/// Every number below 100 as two digits.
#[expect(
    clippy::indexing_slicing,
    reason = "counted when it is compiled: a wrong place is no program"
)]
const DIGITS: [[u8; 2]; 100] = {
    let (mut all, mut n) = ([[0; 2]; 100], 0);
    while n < all.len() {
        all[n] = [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
        n += 1;
    }
    all
};

/// Returns a number below 1,000 as three digits.
#[inline]
fn three(n: u32) -> [u8; 3] {
    let [tens, ones] = two(n);
    [b'0' + (n / 100) as u8, tens, ones]
}

/// Returns [`two`] digits and a sign.
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
    fn dates_from_1600_to_2500_match_the_time_crate() {
        for days in -135_140..193_500 {
            let at = OffsetDateTime::from_unix_timestamp(days * SECONDS_PER_DAY).unwrap();
            let Date { year, month, day } = date(days);
            assert_eq!(
                (at.year(), u8::from(at.month()), at.day()),
                (year as i32, month as u8, day as u8)
            );
        }
    }

    #[test]
    fn characters_without_escape_match_the_json_library() {
        for byte in 0..=255 {
            let text = char::from(byte).to_string();
            let same = serde_json::to_string(&text).unwrap() == format!("\"{text}\"");
            let (first, last) = ([&[byte][..], b"aaaa"].concat(), [b"aaaa", &[byte][..]].concat());
            assert_eq!(is_plain(&first), same && byte.is_ascii() && byte != 0x7f, "{byte}");
            assert_eq!(is_plain(&first), is_plain(&last));
        }
    }

    #[test]
    fn decimal_octal_and_hex_match_std_formatting() {
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
        let hex = |into: &mut Vec<u8>| {
            into.resize(bytes.len() * 2, 0);
            hex_to(into, &bytes);
        };
        assert_eq!(text(&hex), hex::encode(&bytes));
    }
}
