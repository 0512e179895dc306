//! Values of configuration files and their bounds, with errors that name the key.

use std::fmt;
use std::time::Duration;

use serde::Deserializer;
use serde::de::{Error, Unexpected, Visitor};

/// A value as it is written in a configuration.
pub trait ConfigValue: PartialOrd {
    fn written(&self) -> String;
}

impl ConfigValue for Duration {
    fn written(&self) -> String {
        let ms = self.as_millis();
        let units = [("days", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
        let whole = units.into_iter().find(|(_, unit)| ms > 0 && ms.is_multiple_of(*unit));
        match whole {
            _ if self.is_zero() => "0s".into(),
            Some((name, unit)) if self.subsec_nanos().is_multiple_of(1_000_000) => {
                format!("{}{name}", ms / unit)
            }
            _ => humantime::format_duration(*self).to_string(),
        }
    }
}

macro_rules! written_as_shown {
    ($($number:ty),*) => {$(
        impl ConfigValue for $number {
            fn written(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
written_as_shown!(u8, u32, u64, usize);

/// A value outside of its bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} = {value}: must be from {least} to {most}")]
pub struct OutOfBounds {
    key: String,
    value: String,
    least: String,
    most: String,
}

/// Checks that the value of a key is within its bounds.
pub fn within<T: ConfigValue>(
    key: &str,
    value: &T,
    least: &T,
    most: &T,
) -> Result<(), OutOfBounds> {
    if value >= least && value <= most {
        return Ok(());
    }
    let (value, least, most) = (value.written(), least.written(), most.written());
    Err(OutOfBounds { key: key.to_owned(), value, least, most })
}

/// Reads a duration as text: `10s`, `5m`, `12h`, `400d`.
pub fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    from.deserialize_any(DurationText)
}

/// The visitor of a duration. It accepts text only, because a bare number has no unit.
struct DurationText;

impl Visitor<'_> for DurationText {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as \"10s\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
        humantime::parse_duration(text)
            .map_err(|e| E::custom(format!("`{text}` is not a duration such as \"10s\": {e}")))
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<Duration, E> {
        let minutes = if n > 0 && n.is_multiple_of(60) {
            format!(" or \"{}m\"", n / 60)
        } else {
            String::new()
        };
        Err(E::custom(format!("`{n}` has no unit: write \"{n}s\"{minutes}")))
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<Duration, E> {
        match u64::try_from(n) {
            Ok(n) => self.visit_u64(n),
            Err(_) => Err(E::invalid_type(Unexpected::Signed(n), &self)),
        }
    }
}
