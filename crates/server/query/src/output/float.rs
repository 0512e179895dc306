//! Formats floats as C's `%.17g` does.

use std::io::Write as _;

/// Number of decimal digits that distinguish any two floats.
const DIGITS: i32 = 17;
/// The smallest number of 17 digits.
const LEAST: u64 = 10_000_000_000_000_000;
/// Absolute values of the floats that [`plain`] writes.
const PLAIN: std::ops::Range<f64> = 1e-4..1e15;

/// Powers of ten for the digits after the decimal point of floats in [`PLAIN`].
#[expect(clippy::indexing_slicing, reason = "checked when it is compiled")]
const POWERS: [u128; 22] = {
    let mut powers = [1; 22];
    let mut i = 1;
    while i < powers.len() {
        powers[i] = powers[i - 1] * 10;
        i += 1;
    }
    powers
};

/// Writes a float as `%.17g` does, so that it can be parsed back exactly.
pub(super) fn push(out: &mut Vec<u8>, f: f64) {
    // A whole number is written as an integer. The bits are compared because an integer has no
    // negative zero.
    let whole = f as i64;
    if (whole as f64).to_bits() == f.to_bits() && f.abs() < 1e15 {
        super::integer(out, whole);
    } else if PLAIN.contains(&f.abs()) {
        plain(out, f);
    } else if f.is_finite() {
        any(out, f);
    } else {
        let text = match f {
            f if f.is_nan() => "nan",
            f if f > 0.0 => "inf",
            _ => "-inf",
        };
        out.extend_from_slice(text.as_bytes());
    }
}

/// Writes any finite float.
fn any(out: &mut Vec<u8>, f: f64) {
    let text = format!("{f:.*e}", (DIGITS - 1) as usize);
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (digits, tail) = if (-4..DIGITS).contains(&exponent) {
        (format!("{f:.*}", (DIGITS - 1 - exponent) as usize), String::new())
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        (digits.to_owned(), format!("e{sign}{:02}", exponent.abs()))
    };
    let trimmed = digits.trim_end_matches('0').trim_end_matches('.');
    let digits = if digits.contains('.') { trimmed } else { &digits };
    // Writing to memory does not fail.
    let _ = write!(out, "{digits}{tail}");
}

/// Returns the 17 digits of `mantissa / 2^shift`, the first of which has the weight 10^`exponent`.
/// Rounds half to even.
fn digits_of(mantissa: u64, shift: u32, exponent: i32) -> u64 {
    let power = POWERS.get((DIGITS - 1 - exponent) as usize).copied().unwrap_or(1);
    // The factors have at most 53 and 70 bits.
    let wide = u128::from(mantissa) * power;
    let (whole, rest, half) = (wide >> shift, wide & ((1 << shift) - 1), 1 << (shift - 1));
    let up = rest > half || (rest == half && whole & 1 == 1);
    (whole + u128::from(up)) as u64
}

/// Writes a float in [`PLAIN`]. Its digits are computed exactly by one multiplication in 128 bits.
fn plain(out: &mut Vec<u8>, f: f64) {
    let bits = f.abs().to_bits();
    let mantissa = (bits & ((1 << 52) - 1)) | (1 << 52);
    // The shift is 3 to 66 in this range.
    let shift = 1075 - (bits >> 52) as u32;
    // The decimal exponent, estimated from the binary one: it is exact or one too low.
    let mut exponent = ((52 - shift as i32) * 1233) >> 12;
    let mut digits = digits_of(mantissa, shift, exponent);
    if digits >= 10 * LEAST {
        exponent += 1;
        digits = digits_of(mantissa, shift, exponent);
    }
    if f < 0.0 {
        out.push(b'-');
    }
    let text = super::digits(digits);
    let text = text.as_flattened().get(super::DIGITS_MAX - DIGITS as usize..).unwrap_or_default();
    // Trailing zeros after the decimal point are not written.
    let kept = text.iter().rposition(|c| *c != b'0').map_or(0, |last| last + 1);
    let point = usize::try_from(exponent + 1).unwrap_or(0);
    match text.get(..point) {
        None | Some([]) => out.push(b'0'),
        Some(whole) => out.extend_from_slice(whole),
    }
    if let Some(behind) = text.get(point..kept).filter(|behind| !behind.is_empty()) {
        out.push(b'.');
        out.extend((exponent + 1..0).map(|_| b'0'));
        out.extend_from_slice(behind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(f: f64) -> String {
        let mut out = Vec::new();
        push(&mut out, f);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn floats_are_formatted_with_seventeen_digits() {
        let cases = [
            (3.4, "3.3999999999999999"),
            (0.5, "0.5"),
            (-0.0, "-0"),
            (100.0, "100"),
            (1e300, "1.0000000000000001e+300"),
            (0.0001, "0.0001"),
            (1.5e-7, "1.4999999999999999e-07"),
            (-132.43, "-132.43000000000001"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, shown) in cases {
            assert_eq!(text(value), shown);
        }
    }

    #[test]
    fn fast_float_formatting_equals_the_slow_one() {
        let mut state = 88_172_645_463_325_252u64;
        let mut draw = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let powers = (-4..15).map(|i| 10f64.powi(i));
        let edges = powers.flat_map(|p| [p, p.next_down(), p.next_up(), p * 1.5]);
        let mut cases: Vec<f64> = edges.collect();
        for _ in 0..100_000 {
            let bits = draw();
            let binary =
                f64::from_bits((bits & ((1 << 52) - 1)) | ((1009 + (bits >> 52) % 64) << 52));
            cases.extend([
                binary,
                (bits % 100_000_000) as f64 / 100.0,
                -((bits >> 11) as f64) / 1e6,
            ]);
        }
        cases.retain(|f| PLAIN.contains(&f.abs()));
        assert!(cases.len() > 200_000);
        for f in cases {
            let (mut short, mut long) = (Vec::new(), Vec::new());
            plain(&mut short, f);
            any(&mut long, f);
            assert_eq!(short, long, "{f:?}");
        }
    }
}
