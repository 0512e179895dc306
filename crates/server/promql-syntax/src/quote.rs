//! Strings: their quoted form, as Go writes it, and back.

use std::fmt::Write as _;

/// Returns the text in double quotes, with the escapes of Go.
pub fn quote(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            push_char(&mut out, c);
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out.push('"');
    out
}

fn push_char(out: &mut String, c: char) {
    let code = u32::from(c);
    let _ = match c {
        '"' => write!(out, "\\\""),
        '\\' => write!(out, "\\\\"),
        '\u{7}' => write!(out, "\\a"),
        '\u{8}' => write!(out, "\\b"),
        '\u{c}' => write!(out, "\\f"),
        '\n' => write!(out, "\\n"),
        '\r' => write!(out, "\\r"),
        '\t' => write!(out, "\\t"),
        '\u{b}' => write!(out, "\\v"),
        c if c.is_ascii_control() => write!(out, "\\x{code:02x}"),
        c if c.is_control() => write!(out, "\\u{code:04x}"),
        c => write!(out, "{c}"),
    };
}

/// Returns the bytes of a quoted string; `None` if an escape is wrong. The caller has read the text
/// as a string, so that both quotes are there.
pub(crate) fn unquote(text: &str) -> Option<Vec<u8>> {
    let quote = text.chars().next()?;
    let inner = text.get(1..text.len().checked_sub(1)?)?;
    if quote == '`' {
        return Some(inner.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(c) = rest.next() {
        if c == '\\' {
            escape(&mut rest, quote, &mut out)?;
        } else {
            push(&mut out, c);
        }
    }
    Some(out)
}

fn push(out: &mut Vec<u8>, c: char) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

/// Reads an escape after its backslash.
fn escape(rest: &mut std::str::Chars<'_>, quote: char, out: &mut Vec<u8>) -> Option<()> {
    let c = rest.next()?;
    let byte = match c {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        '\\' => b'\\',
        c if c == quote => u8::try_from(c).ok()?,
        'x' => u8::try_from(digits(rest, 0, 2, 16)?).ok()?,
        '0'..='7' => u8::try_from(digits(rest, c.to_digit(8)?, 2, 8)?).ok()?,
        'u' | 'U' => {
            let code = digits(rest, 0, if c == 'u' { 4 } else { 8 }, 16)?;
            push(out, char::from_u32(code)?);
            return Some(());
        }
        _ => return None,
    };
    out.push(byte);
    Some(())
}

/// Reads digits of a base and appends them to a number.
fn digits(rest: &mut std::str::Chars<'_>, first: u32, count: usize, base: u32) -> Option<u32> {
    (0..count).try_fold(first, |number, _| {
        let digit = rest.next()?.to_digit(base)?;
        number.checked_mul(base)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_is_unquoted_and_quoted_again() {
        for (text, bytes, quoted) in [
            (r#""a\n\t\"""#, &b"a\n\t\""[..], r#""a\n\t\"""#),
            (r"'it\'s'", b"it's", r#""it's""#),
            (r"`raw \n`", br"raw \n", r#""raw \\n""#),
            (r#""\xff\101\u00e9\U0001F600""#, b"\xffA\xc3\xa9\xf0\x9f\x98\x80", "\"\\xffAé😀\""),
            (r#""\x00\x7f""#, b"\0\x7f", r#""\x00\x7f""#),
        ] {
            assert_eq!(unquote(text).unwrap(), bytes, "{text}");
            assert_eq!(quote(bytes), quoted);
        }
        for bad in [r#""\'""#, r#""\q""#, r#""\x1""#, r#""\ud800""#, r#""\400""#] {
            assert_eq!(unquote(bad), None, "{bad}");
        }
    }
}
