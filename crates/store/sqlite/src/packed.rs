//! Digests and ids in half the bytes: text that is lower-case hex of 16 bytes or more is stored as
//! those bytes, anything else as text. Every stored blob came from such text, so it reads back as
//! exactly what was written.

use rusqlite::ToSql;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef};

/// Fewest bytes worth packing: MD5.
const BYTES_MIN: usize = 16;
/// Most bytes packed: SHA-512.
const BYTES_MAX: usize = 64;

/// A packed text to be stored.
#[derive(Debug)]
pub enum Packed<'a> {
    /// The bytes, and how many of them are used.
    Bytes([u8; BYTES_MAX], usize),
    Text(&'a str),
}

impl<'a> Packed<'a> {
    /// Packs a text.
    #[inline]
    pub fn new(text: &'a str) -> Self {
        let bytes = text.len() / 2;
        let mut packed = [0; BYTES_MAX];
        if let Some(into) = packed.get_mut(..bytes)
            && bytes >= BYTES_MIN
            && text.len() == bytes * 2
            && decode(text.as_bytes(), into)
        {
            return Self::Bytes(packed, bytes);
        }
        Self::Text(text)
    }
}

/// Value of each digit; every byte that is not a lower-case hex digit has the high bit set.
const DIGITS: [u8; 256] = {
    let mut digits = [0x80; 256];
    let mut value = 0;
    while value < 16 {
        let digit = if value < 10 { b'0' + value } else { b'a' + value - 10 };
        #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
        {
            digits[digit as usize] = value;
        }
        value += 1;
    }
    digits
};

/// Decodes two digits per byte of `into`; returns true if all of them were valid.
fn decode(text: &[u8], into: &mut [u8]) -> bool {
    let worth = |digit: u8| DIGITS.get(digit as usize).copied().unwrap_or(0x80);
    let mut seen = 0;
    for (byte, pair) in into.iter_mut().zip(text.chunks_exact(2)) {
        let [high, low] = pair else { return false };
        let (high, low) = (worth(*high), worth(*low));
        seen |= high | low;
        *byte = high << 4 | low;
    }
    seen & 0x80 == 0
}

impl ToSql for Packed<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Bytes(bytes, len) => ValueRef::Blob(bytes.get(..*len).unwrap_or_default()),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

/// A packed text read back.
#[derive(Debug)]
pub struct Unpacked(pub String);

impl FromSql for Unpacked {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value {
            ValueRef::Blob(bytes) => Ok(Self(hex::encode(bytes))),
            ValueRef::Text(_) => value.as_str().map(|text| Self(text.to_owned())),
            _ => Err(FromSqlError::InvalidType),
        }
    }
}

/// Returns an SQL expression that unpacks a column, for comparisons other than equality.
pub fn unpacked_sql(column: &str) -> String {
    format!("(CASE typeof({column}) WHEN 'blob' THEN lower(hex({column})) ELSE {column} END)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_packed(text: &str) -> bool {
        matches!(Packed::new(text), Packed::Bytes(..))
    }

    #[test]
    fn only_lower_case_hex_of_16_to_64_bytes_is_packed() {
        for text in ["ab".repeat(16), "00".repeat(20), "9f".repeat(32), "9f".repeat(64)] {
            assert!(is_packed(&text), "{text}");
        }
        let shouting = "AB".repeat(16);
        let odd = format!("{}a", "ab".repeat(16));
        let long = "ab".repeat(65);
        for text in ["", "abcd", "/etc/passwd", &shouting, &odd, &long] {
            assert!(!is_packed(text), "{text}");
        }
    }

    #[test]
    fn packed_text_reads_back_unchanged() {
        let db = rusqlite::Connection::open_in_memory().unwrap();
        for text in ["ab".repeat(16), "AB".repeat(16), "x".into(), "00".repeat(20), "äö".into()] {
            let back: Unpacked =
                db.query_row("SELECT ?1", [Packed::new(&text)], |r| r.get(0)).unwrap();
            assert_eq!(back.0, text);
            let sql = format!("SELECT {} FROM (SELECT ?1 AS v)", unpacked_sql("v"));
            let shown: String = db.query_row(&sql, [Packed::new(&text)], |r| r.get(0)).unwrap();
            assert_eq!(shown, text);
        }
    }
}
