//! Durations as people write them, and bounds.

use std::fmt::Display;
use std::time::Duration;

use serde::{Deserializer, Serialize, Serializer};

use crate::bounds;

/// A duration; as text `10s`, `5m`, `12h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl Span {
    /// Reads a duration within its bounds.
    pub(crate) fn bounded<'de, D: Deserializer<'de>>(
        from: D,
        least: Duration,
        most: Duration,
    ) -> Result<Self, D::Error> {
        let read = bounds::duration(from)?;
        within(Self(read), &Self(least), &Self(most))
    }
}

/// Checks that a value is within its bounds.
pub(crate) fn within<T: PartialOrd + Display, E: serde::de::Error>(
    value: T,
    least: &T,
    most: &T,
) -> Result<T, E> {
    if value < *least || value > *most {
        return Err(E::custom(format!("{value}: must be from {least} to {most}")));
    }
    Ok(value)
}
