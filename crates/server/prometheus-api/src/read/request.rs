//! The request of remote read: a snappy block of one protobuf message (`prompb/remote.proto`).

use promql_syntax::limits::REGEXPS_MAX;
use promql_syntax::{LabelMatcher, MatchOp, Regexp};
use prost::Message;
use series::TimeRange;

use crate::{Refusal, SELECTORS_MAX};

/// Largest message after decompression, bytes.
const MESSAGE_BYTES_MAX: usize = 256 << 10;

/// Number of the response type of samples.
const SAMPLES: i32 = 0;
/// Number of the response type of streamed chunks.
const STREAMED_XOR_CHUNKS: i32 = 1;

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseType {
    Samples,
    Chunks,
}

#[derive(Clone, PartialEq, Message)]
struct ReadRequest {
    #[prost(message, repeated, tag = "1")]
    queries: Vec<QueryMessage>,
    /// Response types, the preferred one first.
    #[prost(int32, repeated, tag = "2")]
    accepted: Vec<i32>,
}

/// One query. Its hints are ignored: they only allow a server to return less.
#[derive(Clone, PartialEq, Message)]
struct QueryMessage {
    #[prost(int64, tag = "1")]
    start_ms: i64,
    #[prost(int64, tag = "2")]
    end_ms: i64,
    #[prost(message, repeated, tag = "3")]
    matchers: Vec<MatcherMessage>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct MatcherMessage {
    #[prost(int32, tag = "1")]
    op: i32,
    #[prost(string, tag = "2")]
    label: String,
    #[prost(string, tag = "3")]
    value: String,
}

/// The series and times of one query.
#[derive(Debug, PartialEq)]
pub(super) struct SeriesRequest {
    pub(super) start_ms: i64,
    /// Time of the last sample that is read.
    pub(super) end_ms: i64,
    pub(super) matchers: Vec<LabelMatcher>,
}

impl SeriesRequest {
    /// Returns the range of the store that it selects.
    pub(super) fn range(&self) -> TimeRange {
        let nanoseconds = |ms: i64| ms.saturating_mul(1_000_000);
        let to_ns = nanoseconds(self.end_ms.saturating_add(1));
        TimeRange { from_ns: nanoseconds(self.start_ms), to_ns }
    }
}

/// A decoded request. Its regular expressions are not compiled yet.
#[derive(Debug, PartialEq)]
pub(super) struct Request {
    pub(super) response: ResponseType,
    pub(super) queries: Vec<SeriesRequest>,
}

impl Request {
    /// Decodes the body of a request. Chunks are taken as not accepted unless they can be streamed.
    pub(super) fn decode(body: &[u8], can_stream: bool) -> Result<Self, Refusal> {
        let snappy = |error: snap::Error| Refusal::bad_data(format!("body: snappy: {error}"));
        let length = snap::raw::decompress_len(body).map_err(snappy)?;
        if length > MESSAGE_BYTES_MAX {
            return Err(Refusal::bad_data(format!(
                "body: {length} bytes decompressed; at most {MESSAGE_BYTES_MAX} are allowed"
            )));
        }
        let message = snap::raw::Decoder::new().decompress_vec(body).map_err(snappy)?;
        let message = ReadRequest::decode(&*message)
            .map_err(|error| Refusal::bad_data(format!("body: protobuf: {error}")))?;
        let response = negotiate(&message.accepted, can_stream)?;
        if message.queries.len() > SELECTORS_MAX {
            return Err(Refusal::bad_data(format!(
                "{} queries; at most {SELECTORS_MAX} are allowed",
                message.queries.len()
            )));
        }
        let matchers = message.queries.iter().flat_map(|query| &query.matchers);
        if matchers.filter(|matcher| matcher.op > 1).count() > REGEXPS_MAX {
            let text = format!("the request has more than {REGEXPS_MAX} regular expressions");
            return Err(Refusal::bad_data(text));
        }
        let queries: Result<_, _> = message.queries.into_iter().map(wanted).collect();
        Ok(Self { response, queries: queries? })
    }

    /// Compiles the regular expressions.
    pub(super) fn compile(&mut self) -> Result<(), Refusal> {
        for matcher in self.queries.iter_mut().flat_map(|query| &mut query.matchers) {
            if matches!(matcher.op, MatchOp::Regexp | MatchOp::NotRegexp) {
                let text = String::from_utf8_lossy(&matcher.value);
                matcher.regexp = Some(Regexp::new(&text).map_err(Refusal::bad_data)?);
            }
        }
        Ok(())
    }
}

/// Returns the first response type that there is; that of samples if none is named.
fn negotiate(accepted: &[i32], can_stream: bool) -> Result<ResponseType, Refusal> {
    if accepted.is_empty() {
        return Ok(ResponseType::Samples);
    }
    let known = accepted.iter().find_map(|number| match *number {
        SAMPLES => Some(ResponseType::Samples),
        STREAMED_XOR_CHUNKS if can_stream => Some(ResponseType::Chunks),
        _ => None,
    });
    known.ok_or_else(|| {
        Refusal::bad_data(format!(
            "no accepted response type is supported: {accepted:?}; supported are {SAMPLES} (samples) \
             and, over HTTP/1.1 or later, {STREAMED_XOR_CHUNKS} (streamed chunks)"
        ))
    })
}

fn wanted(query: QueryMessage) -> Result<SeriesRequest, Refusal> {
    let matcher = |message: MatcherMessage| {
        let op = match message.op {
            0 => MatchOp::Equal,
            1 => MatchOp::NotEqual,
            2 => MatchOp::Regexp,
            3 => MatchOp::NotRegexp,
            other => return Err(Refusal::bad_data(format!("invalid matcher type {other}"))),
        };
        let value = message.value.into_bytes();
        Ok(LabelMatcher { label: message.label, op, value, regexp: None })
    };
    let matchers: Result<_, _> = query.matchers.into_iter().map(matcher).collect();
    Ok(SeriesRequest { start_ms: query.start_ms, end_ms: query.end_ms, matchers: matchers? })
}
