//! Numbers as the line-based protocols write them.

/// Parses a whole text of at most 64 bytes as a float; `nan` and `inf` are accepted. Returns `None`
/// if the digits exceed the range of a float.
#[inline]
pub(crate) fn parse_float(text: &[u8]) -> Option<f64> {
    if let Some(number) = parse_short(text) {
        return Some(number);
    }
    if text.len() > FLOAT_BYTES_MAX {
        return None;
    }
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let overflows = number.is_infinite() && text.iter().any(u8::is_ascii_digit);
    (!overflows).then_some(number)
}

/// Parses a number of up to 15 digits without an exponent; returns `None` for any other text. The
/// digits as an integer and the power of ten are both exact as floats, so their quotient is rounded
/// once and correctly (Clinger 1990, "How to read floating point numbers accurately", the fast
/// path).
fn parse_short(text: &[u8]) -> Option<f64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.len() > SHORT_DIGITS_MAX + 1 {
        return None;
    }
    let (mut mantissa, mut point) = (0u64, None);
    for (i, c) in digits.iter().enumerate() {
        match c {
            b'0'..=b'9' => mantissa = mantissa * 10 + u64::from(c - b'0'),
            b'.' if point.is_none() => point = Some(i),
            _ => return None,
        }
    }
    let count = digits.len() - usize::from(point.is_some());
    if count == 0 || count > SHORT_DIGITS_MAX {
        return None;
    }
    let decimals = point.map_or(0, |point| digits.len() - point - 1);
    let number = mantissa as f64 / POWERS_OF_TEN.get(decimals)?;
    Some(if negative { -number } else { number })
}

/// Number of digits with which any integer is below 2^53.
const SHORT_DIGITS_MAX: usize = 15;
const POWERS_OF_TEN: [f64; SHORT_DIGITS_MAX + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// Longest text of a float, in bytes.
const FLOAT_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn short_number_parsing_equals_the_standard_library(
            text in r"[-+]?[0-9]{0,9}[.]?[0-9]{0,9}|[-+.0-9e]{0,8}"
        ) {
            // These characters cannot spell `inf`, so an infinite result means that the digits
            // exceed the range of a float.
            let expected = text.parse::<f64>().ok().filter(|number| number.is_finite());
            let bits = |number: Option<f64>| number.map(f64::to_bits);
            prop_assert_eq!(bits(parse_float(text.as_bytes())), bits(expected));
            if let Some(number) = parse_short(text.as_bytes()) {
                prop_assert_eq!(bits(Some(number)), bits(expected));
            }
        }
    }

    #[test]
    fn numbers_up_to_fifteen_digits_use_the_fast_path() {
        for text in ["-0", "+0.1", "5.", ".5", "123456789012345", "0.00000000000001"] {
            assert_eq!(parse_short(text.as_bytes()), text.parse().ok(), "{text}");
        }
        assert!(parse_short(b"-0").is_some_and(f64::is_sign_negative));
        for text in ["", "-", ".", "+.", "1e5", "--1", "1.2.3", "1234567890123456", "nan"] {
            assert_eq!(parse_short(text.as_bytes()), None, "{text}");
        }
    }
}
