//! Parameters: text, times and durations.

use std::time::Duration;

use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use model::timestamp;

use crate::refusal::Refusal;

/// Most parameters of a request.
const PARAMETERS_MAX: usize = 1000;

/// The parameters of a request. Those of the form come first.
pub(crate) struct Form(Vec<(Vec<u8>, Vec<u8>)>);

impl<S: Send + Sync> FromRequest<S> for Form {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let query = request.uri().query().map(str::to_owned);
        let form =
            Bytes::from_request(request, state).await.map_err(IntoResponse::into_response)?;
        Self::new(query.as_deref(), &form).map_err(IntoResponse::into_response)
    }
}

impl Form {
    fn new(query: Option<&str>, form: &[u8]) -> Result<Self, Refusal> {
        let mut pairs = Vec::new();
        let texts = [form, query.unwrap_or_default().as_bytes()];
        let parameters = |text: &[u8]| text.split(|byte| *byte == b'&').count();
        if texts.iter().map(|text| parameters(text)).sum::<usize>() > PARAMETERS_MAX {
            let text = format!("more than {PARAMETERS_MAX} parameters: send fewer");
            return Err(Refusal::bad_data(text));
        }
        for text in texts {
            for pair in text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
                let mut parts = pair.splitn(2, |byte| *byte == b'=');
                let (name, value) = (parts.next(), parts.next());
                let decoded = |part: Option<&[u8]>| decode(part.unwrap_or_default());
                pairs.push((decoded(name)?, decoded(value)?));
            }
        }
        Ok(Self(pairs))
    }

    fn bytes(&self, wanted: &str) -> Option<&[u8]> {
        let found = self.0.iter().find(|(name, _)| name == wanted.as_bytes());
        found.map(|(_, value)| value.as_slice()).filter(|value| !value.is_empty())
    }

    /// Returns all values of a parameter.
    pub(crate) fn texts(&self, wanted: &str) -> Result<Vec<String>, Refusal> {
        let found = self.0.iter().filter(|(name, _)| name == wanted.as_bytes());
        let text = |(_, value): &(_, Vec<u8>)| {
            let text = String::from_utf8(value.clone());
            text.map_err(|_| Refusal::parameter(wanted, "invalid UTF-8 rune"))
        };
        found.map(text).collect()
    }

    /// Returns a parameter; empty if it is missing.
    pub(crate) fn text(&self, name: &str) -> Result<String, Refusal> {
        let value = self.bytes(name).unwrap_or_default();
        let text = std::str::from_utf8(value);
        text.map(str::to_owned).map_err(|_| Refusal::parameter(name, "invalid UTF-8 rune"))
    }

    /// Returns a time in milliseconds: seconds since the epoch, or RFC 3339.
    pub(crate) fn time(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let text = self.text(name)?;
        if text.is_empty() {
            return Ok(None);
        }
        let of_seconds = text.parse::<f64>().ok().filter(|seconds| seconds.is_finite());
        let seconds = of_seconds.map(|seconds| (seconds * 1000.0).round() as i64);
        let milliseconds = seconds
            .or_else(|| timestamp::parse_micros(&text).map(|micros| (micros / 1000).cast_signed()));
        milliseconds.map(Some).ok_or_else(|| {
            Refusal::parameter(name, format!("cannot parse {text:?} to a valid timestamp"))
        })
    }

    /// Returns a duration in milliseconds: seconds, or a text such as `5m`.
    pub(crate) fn duration(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let text = self.text(name)?;
        if text.is_empty() {
            return Ok(None);
        }
        let seconds = text.parse::<f64>().ok().filter(|seconds| seconds.is_finite());
        let milliseconds = match seconds {
            Some(seconds) => Some((seconds * 1000.0) as i64),
            None => promql_syntax::parse_duration(&text).ok(),
        };
        milliseconds.map(Some).ok_or_else(|| {
            Refusal::parameter(name, format!("cannot parse {text:?} to a valid duration"))
        })
    }

    /// Returns the timeout of a query, at most `most`.
    pub(crate) fn timeout(&self, most: Duration) -> Result<Duration, Refusal> {
        let asked = self.duration("timeout")?;
        let asked = asked.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
        Ok(asked.map_or(most, |asked| asked.min(most)))
    }

    /// Returns the largest number of series of an answer; 0 is no limit.
    pub(crate) fn limit(&self) -> Result<usize, Refusal> {
        let text = self.text("limit")?;
        if text.is_empty() {
            return Ok(0);
        }
        text.parse().map_err(|_| {
            Refusal::parameter("limit", format!("strconv.Atoi: parsing {text:?}: invalid syntax"))
        })
    }
}

/// Decodes the escapes of a form.
fn decode(text: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        let decoded = match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<&u8>| (*byte? as char).to_digit(16);
                let (high, low) = (digit(rest.next()), digit(rest.next()));
                let code = high.zip(low).and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
                code.ok_or_else(|| {
                    Refusal::bad_data("error parsing form values: invalid URL escape")
                })?
            }
            other => *other,
        };
        out.push(decoded);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_read() {
        let form = Form::new(Some("a=1&time=2.5"), b"a=x%20y+z&step=1m&empty=").unwrap();
        assert_eq!(form.text("a").unwrap(), "x y z");
        assert_eq!(form.time("time").unwrap(), Some(2500));
        assert_eq!(form.duration("step").unwrap(), Some(60_000));
        assert_eq!(form.time("empty").unwrap(), None);
        let late = Form::new(Some("time=2026-11-27T12%3A00%3A00.5Z"), b"").unwrap();
        assert_eq!(late.time("time").unwrap(), Some(1_795_780_800_500));
        assert!(Form::new(Some("a=%FF"), b"").unwrap().text("a").is_err());
        assert!(Form::new(Some("a=%zz"), b"").is_err());
        assert!(Form::new(None, "a&".repeat(PARAMETERS_MAX / 2).as_bytes()).is_ok());
        assert!(Form::new(None, "a&".repeat(PARAMETERS_MAX).as_bytes()).is_err());
        let bad = Form::new(Some("time=soon&limit=x"), b"").unwrap();
        let text = "invalid parameter \"time\": cannot parse \"soon\" to a valid timestamp";
        assert_eq!(bad.time("time").unwrap_err(), Refusal::bad_data(text));
        assert!(bad.limit().is_err());
    }
}
