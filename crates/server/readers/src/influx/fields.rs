//! The fields of a record: names, and numbers or texts.

use memchr::{memchr2, memchr3};
use query::time::parse_int;
use series::Value;

use crate::collector::quoted;
use crate::number::parse_float;

/// One field of a line.
pub(super) struct Field<'a> {
    pub(super) name: &'a [u8],
    pub(super) value: FieldValue<'a>,
}

impl Field<'_> {
    pub(super) fn number(&self) -> Option<Value> {
        match self.value {
            FieldValue::Number(value) => Some(value),
            FieldValue::Text(_) => None,
        }
    }
}

pub(super) enum FieldValue<'a> {
    Number(Value),
    Text(&'a [u8]),
}

/// Parses the fields with which a text begins. Returns what follows them: the time.
pub(super) fn parse_fields<'a>(
    mut text: &'a [u8],
    fields: &mut Vec<Field<'a>>,
) -> Result<&'a [u8], String> {
    fields.clear();
    if text.is_empty() {
        return Err("no fields; write name,tag=value field=1 time".into());
    }
    loop {
        let equals = field_name_end(text).ok_or("a field is not name=value")?;
        let (name, rest) = text.split_at(equals);
        let rest = rest.get(1..).unwrap_or_default();
        let (value, rest) = rest.split_at(value_end(rest));
        if name.is_empty() {
            return Err("a field without a name".into());
        }
        let value = field_value(value).map_err(|e| format!("field {}: {e}", quoted(name)))?;
        fields.push(Field { name, value });
        let [b',', next @ ..] = rest else { return Ok(rest) };
        text = next;
        // A comma may end the fields.
        if matches!(text, [] | [b' ', ..]) {
            return Ok(text);
        }
    }
}

fn field_value(text: &[u8]) -> Result<FieldValue<'_>, String> {
    let number = |v| Ok(FieldValue::Number(v));
    match text {
        b"t" | b"T" | b"true" | b"True" | b"TRUE" => return number(Value::F64(1.0)),
        b"f" | b"F" | b"false" | b"False" | b"FALSE" => return number(Value::F64(0.0)),
        _ => {}
    }
    match text {
        [] => Err("no value".into()),
        [b'"', rest @ ..] => match find_unescaped(rest, b'"') {
            None => Err("the text has no closing quote".into()),
            Some(end) if end + 1 < rest.len() => Err("something follows the closing quote".into()),
            Some(end) => Ok(FieldValue::Text(rest.get(..end).unwrap_or_default())),
        },
        [digits @ .., b'i' | b'u'] => match parse_int(digits) {
            Some(integer) => number(Value::I64(integer)),
            None => Err(not_an_integer(digits)),
        },
        _ => match parse_float(text).filter(|f| f.is_finite()) {
            Some(float) => number(Value::F64(float)),
            None => Err(not_a_float(text)),
        },
    }
}

/// Returns the reason why [`parse_int`] refused a text.
pub(super) fn not_an_integer(text: &[u8]) -> String {
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    let integer = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let what = if integer { "is out of range; 64 bits are stored" } else { "is not an integer" };
    format!("{} {what}", quoted(text))
}

/// Returns the reason why a text is not a finite float.
fn not_a_float(text: &[u8]) -> String {
    let parsed = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    let what = match parsed {
        Some(_) if text.iter().any(u8::is_ascii_digit) => "is out of the range of a float",
        Some(_) => "is not a value of this protocol; leave the field out",
        None => "is not a number, boolean or quoted text",
    };
    format!("{} {what}", quoted(text))
}

/// Returns the position of the first unescaped byte of this value.
pub(super) fn find_unescaped(text: &[u8], wanted: u8) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr2(wanted, b'\\', text.get(at..)?)?;
        if text.get(at) == Some(&wanted) {
            return Some(at);
        }
        // Skip the escaped byte as well.
        at += 2;
    }
}

/// Returns the end of a field's name, an equals sign. There is none before a space that is not escaped.
fn field_name_end(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr3(b'=', b' ', b'\\', text.get(at..)?)?;
        match text.get(at)? {
            b'=' => return Some(at),
            b' ' => return None,
            // Skip the escaped byte as well.
            _ => at += 2,
        }
    }
}

/// Returns the end of a value: the first comma or space after its text, if it is one.
fn value_end(text: &[u8]) -> usize {
    let after = match text {
        [b'"', rest @ ..] => find_unescaped(rest, b'"').map_or(text.len(), |end| end + 2),
        _ => 0,
    };
    let end = text.get(after..).and_then(|rest| memchr2(b',', b' ', rest));
    end.map_or(text.len(), |end| after + end)
}

pub(super) fn unquote(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied().peekable();
    while let Some(c) = bytes.next() {
        let escaped = c == b'\\' && matches!(bytes.peek(), Some(b'"' | b'\\'));
        out.push(if escaped { bytes.next().unwrap_or(c) } else { c });
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Searches byte by byte, as a reference for the fast search: the first wanted byte that is not
    /// escaped by a backslash.
    fn slowly(text: &[u8], wanted: u8) -> Option<usize> {
        let mut escaped = false;
        text.iter().position(|c| {
            let plain = !std::mem::take(&mut escaped);
            escaped = plain && *c == b'\\';
            plain && *c == wanted
        })
    }

    proptest! {
        #[test]
        fn fast_influx_searches_equal_byte_by_byte_search(text in r#"[ab ,="\\]{0,40}"#) {
            let text = text.as_bytes();
            for wanted in *b" ,=" {
                prop_assert_eq!(find_unescaped(text, wanted), slowly(text, wanted));
            }
            let (equals, space) = (slowly(text, b'='), slowly(text, b' '));
            let name_end = equals.filter(|equals| space.is_none_or(|space| *equals < space));
            prop_assert_eq!(field_name_end(text), name_end);
        }
    }
}
