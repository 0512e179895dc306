//! Numbers: decimal, hexadecimal, octal with a leading zero, with `_` between digits.

/// A number that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadNumber {
    Syntax,
    OutOfRange,
}

/// Returns the value of a number without sign.
pub(crate) fn number(text: &str) -> Result<f64, BadNumber> {
    match text.to_ascii_lowercase().as_str() {
        "inf" => return Ok(f64::INFINITY),
        "nan" => return Ok(f64::NAN),
        _ => {}
    }
    if !separates_digits(text) {
        return Err(BadNumber::Syntax);
    }
    let plain: String = text.chars().filter(|c| *c != '_').collect();
    let (digits, base) = match plain.get(..2) {
        Some("0x" | "0X") => (plain.get(2..).unwrap_or_default(), 16),
        Some(_) if plain.starts_with('0') => (plain.get(1..).unwrap_or_default(), 8),
        _ => (plain.as_str(), 10),
    };
    if let Ok(integer) = i64::from_str_radix(digits, base) {
        return Ok(integer as f64);
    }
    if base == 16 {
        return Err(BadNumber::Syntax);
    }
    match plain.parse::<f64>() {
        Ok(value) if value.is_infinite() => Err(BadNumber::OutOfRange),
        Ok(value) => Ok(value),
        Err(_) => Err(BadNumber::Syntax),
    }
}

/// Returns true if each `_` is between two digits, or between a base and a digit.
fn separates_digits(text: &str) -> bool {
    let hexadecimal = text.starts_with("0x") || text.starts_with("0X");
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (hexadecimal && byte.is_ascii_hexdigit());
    let bytes = text.as_bytes();
    bytes.iter().enumerate().filter(|(_, byte)| **byte == b'_').all(|(at, _)| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        let opens = hexadecimal && at == 2;
        (opens || before.is_some_and(is_digit)) && bytes.get(at + 1).is_some_and(is_digit)
    })
}

/// Returns the value of a float in text, such as the bound of a bucket; `None` if it is none.
pub fn parse_float(text: &str) -> Option<f64> {
    let magnitude = text.strip_prefix(['+', '-']).unwrap_or(text);
    let value = match magnitude.to_ascii_lowercase().as_str() {
        "inf" | "infinity" => f64::INFINITY,
        "nan" => f64::NAN,
        _ if magnitude.starts_with(|c: char| c.is_ascii_digit() || c == '.') => {
            magnitude.parse().ok()?
        }
        _ => return None,
    };
    Some(if text.starts_with('-') { -value } else { value })
}

/// Returns a number as Go prints it with the fewest digits, and without an exponent.
pub fn show(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_has_the_value_of_its_base() {
        for (text, value) in [
            ("1", 1.0),
            ("0x1F", 31.0),
            ("0X_1f", 31.0),
            ("0755", 493.0),
            ("08", 8.0),
            ("1_000.5", 1000.5),
            (".5e-3", 0.0005),
            ("9223372036854775808", 9_223_372_036_854_775_808.0),
            ("Inf", f64::INFINITY),
        ] {
            assert_eq!(number(text), Ok(value), "{text}");
        }
        assert!(number("NaN").unwrap().is_nan());
        assert_eq!(number("1e400"), Err(BadNumber::OutOfRange));
        for bad in ["1__0", "0x", "1_.5"] {
            assert_eq!(number(bad), Err(BadNumber::Syntax), "{bad}");
        }
    }
}
