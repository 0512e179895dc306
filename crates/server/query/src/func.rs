//! The aggregation functions.

use series::{Summary, Value};

/// The aggregation function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Func {
    Count,
    Min,
    Max,
    Sum,
    Mean,
    First,
    Last,
    MinTimestamp,
    MaxTimestamp,
    FirstTimestamp,
    LastTimestamp,
}

/// Names of the aggregation functions.
const FUNCS: &[(&str, Func)] = &[
    ("count", Func::Count),
    ("min", Func::Min),
    ("max", Func::Max),
    ("sum", Func::Sum),
    ("mean", Func::Mean),
    ("first", Func::First),
    ("last", Func::Last),
    ("min_timestamp", Func::MinTimestamp),
    ("max_timestamp", Func::MaxTimestamp),
    ("first_timestamp", Func::FirstTimestamp),
    ("last_timestamp", Func::LastTimestamp),
];

impl Func {
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        let found = FUNCS.iter().find(|(known, _)| *known == name);
        found.map(|(_, func)| *func).ok_or_else(|| format!("Unknown aggregation function: {name}"))
    }

    pub(super) fn name(self) -> &'static str {
        FUNCS.iter().find(|(_, func)| *func == self).map_or("", |(name, _)| name)
    }

    pub(super) fn time(self, s: &Summary) -> Option<i64> {
        Some(match self {
            Self::MinTimestamp => s.min_ns,
            Self::MaxTimestamp => s.max_ns,
            Self::FirstTimestamp => s.first_ns,
            Self::LastTimestamp => s.last_ns,
            _ => return None,
        })
    }

    pub(super) fn value(self, s: &Summary) -> Value {
        Value::F64(match self {
            Self::Count => s.count as f64,
            Self::Min => s.min,
            Self::Max => s.max,
            Self::Sum => s.sum,
            Self::Mean => s.mean(),
            Self::First => s.first,
            Self::Last => s.last,
            Self::MinTimestamp
            | Self::MaxTimestamp
            | Self::FirstTimestamp
            | Self::LastTimestamp => {
                return Value::I64(self.time(s).unwrap_or_default());
            }
        })
    }
}
