//! Values of JSON as columns need them.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

/// A string, borrowed where the JSON has no escapes.
#[derive(Deserialize, Default)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

impl Text<'_> {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A whole number, or a string that holds one.
pub(crate) struct Integer(Option<i64>);

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct AnyValue;
        impl Visitor<'_> for AnyValue {
            type Value = Integer;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Integer, E> {
                Ok(Integer(text.parse::<u64>().ok().map(|n| n as i64)))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Integer, E> {
                Ok(Integer(Some(number as i64)))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Integer, E> {
                Ok(Integer(Some(number)))
            }
        }
        from.deserialize_any(AnyValue)
    }
}

pub(crate) fn text<'b>(text: Option<&'b Text<'_>>) -> Option<&'b str> {
    text.map(Text::as_str)
}

pub(crate) fn integer(number: Option<&Integer>) -> Option<i64> {
    number.and_then(|n| n.0)
}
