//! Checks that bytes are exactly one JSON object: syntax, UTF-8, nesting of at most 127. Builds no
//! value.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Returns true if `bytes` are one JSON object and nothing else.
pub(crate) fn is_object(bytes: &[u8]) -> bool {
    let opens = bytes.iter().find(|b| !b.is_ascii_whitespace());
    opens == Some(&b'{') && serde_json::from_slice::<AnyValue>(bytes).is_ok()
}

struct AnyValue;

impl<'de> Deserialize<'de> for AnyValue {
    /// Unlike [`IgnoredAny`], decodes every text and counts the nesting.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyVisitor)
    }
}

struct AnyVisitor;

impl<'de> Visitor<'de> for AnyVisitor {
    type Value = AnyValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<AnyValue, E> {
        Ok(AnyValue)
    }

    fn visit_bool<E>(self, _: bool) -> Result<AnyValue, E> {
        Ok(AnyValue)
    }

    fn visit_i64<E>(self, _: i64) -> Result<AnyValue, E> {
        Ok(AnyValue)
    }

    fn visit_u64<E>(self, _: u64) -> Result<AnyValue, E> {
        Ok(AnyValue)
    }

    fn visit_f64<E>(self, _: f64) -> Result<AnyValue, E> {
        Ok(AnyValue)
    }

    fn visit_str<E>(self, _: &str) -> Result<AnyValue, E> {
        Ok(AnyValue)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<AnyValue, A::Error> {
        while seq.next_element::<AnyValue>()?.is_some() {}
        Ok(AnyValue)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AnyValue, A::Error> {
        while map.next_entry::<IgnoredAny, AnyValue>()?.is_some() {}
        Ok(AnyValue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_single_json_object_is_accepted() {
        for ok in ["{}", " {\"a\":[1,-2.5e3,null,true,\"\\u00e4\",{\"b\":{}}]}\n"] {
            assert!(is_object(ok.as_bytes()), "{ok}");
        }
        for bad in [
            "",
            "[]",
            "1",
            "null",
            "\"{}\"",
            "{",
            "{}{}",
            "{} x",
            "{\"a\":}",
            "{a:1}",
            "{\"a\":01}",
        ] {
            assert!(!is_object(bad.as_bytes()), "{bad}");
        }
        assert!(!is_object(b"{\"a\":\"\xff\"}"), "not UTF-8");
        assert!(!is_object(br#"{"a":"\ud800"}"#), "half a surrogate pair");
    }

    #[test]
    fn deeply_nested_json_body_is_rejected() {
        let nested = |n: usize| format!("{{\"a\":{}{}}}", "[".repeat(n), "]".repeat(n));
        assert!(is_object(nested(100).as_bytes()));
        assert!(!is_object(nested(100_000).as_bytes()));
    }
}
