//! Messages as senders build them. The reader does not: see [`super::RemoteReader`].

use prost::Message;

/// A request.
#[derive(Clone, PartialEq, Message)]
pub struct WriteRequest {
    /// The series with their samples.
    #[prost(message, repeated, tag = "1")]
    pub timeseries: Vec<TimeSeries>,
}

/// One series.
#[derive(Clone, PartialEq, Message)]
pub struct TimeSeries {
    /// Its labels; `__name__` is the metric.
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
    /// Its samples.
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
}

/// One label.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Label {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// One sample.
#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    /// The value.
    #[prost(double, tag = "1")]
    pub value: f64,
    /// Milliseconds since the epoch.
    #[prost(int64, tag = "2")]
    pub timestamp: i64,
}
