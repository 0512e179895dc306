//! The answers' envelopes: a list, plain data, a message, or raw bytes.

use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::error::{Failure, text_of};

/// A successful answer.
#[derive(Debug)]
pub(crate) enum Answer {
    /// `{"data": ..., "error": 0}`
    Plain(Value),
    /// `{"message": ..., "error": 0}`
    Message(String),
    /// The list envelope.
    List(List),
    /// Not an envelope.
    Raw { status: StatusCode, content_type: &'static str, body: Vec<u8> },
}

/// A page of items and what failed.
#[derive(Debug, Default)]
pub(crate) struct List {
    items: Vec<Value>,
    total: u64,
    failed: Vec<(u16, Vec<String>)>,
    messages: [&'static str; 3],
    more: Map<String, Value>,
}

impl List {
    /// Items of this page and the total before paging. The messages say that all, some or none of
    /// what was asked for could be done.
    pub(crate) fn new(items: Vec<Value>, total: u64, messages: [&'static str; 3]) -> Self {
        Self { items, total, messages, ..Self::default() }
    }

    /// An id that failed with a code; ids of one code stand together.
    pub(crate) fn fail(&mut self, code: u16, id: String) {
        match self.failed.iter_mut().find(|(other, _)| *other == code) {
            Some((_, ids)) => ids.push(id),
            None => self.failed.push((code, vec![id])),
        }
    }

    /// A field of our own beside the envelope's.
    pub(crate) fn with(mut self, name: &str, value: Value) -> Self {
        self.more.insert(name.into(), value);
        self
    }

    fn failures(&self) -> usize {
        self.failed.iter().map(|(_, ids)| ids.len()).sum()
    }

    /// 0 all fine, 1 nothing but failures, 2 some failed.
    fn error(&self) -> u8 {
        match (self.failures(), self.total) {
            (0, _) => 0,
            (_, 0) => 1,
            _ => 2,
        }
    }

    fn into_value(self) -> Value {
        let failures = self.failures();
        let error = self.error();
        let [all, some, none] = self.messages;
        let message = match error {
            0 if self.total == 0 && !none.is_empty() => none,
            0 => all,
            1 => none,
            _ => some,
        };
        let failed: Vec<Value> = self
            .failed
            .into_iter()
            .map(|(code, ids)| {
                let (text, remedy) = text_of(code);
                json!({
                    "error": {"code": code, "message": text, "remediation": remedy},
                    "id": ids,
                })
            })
            .collect();
        let mut data = Map::new();
        data.insert("affected_items".into(), Value::Array(self.items));
        data.insert("total_affected_items".into(), self.total.into());
        data.insert("total_failed_items".into(), failures.into());
        data.insert("failed_items".into(), Value::Array(failed));
        data.extend(self.more);
        json!({"data": data, "message": message, "error": error})
    }
}

impl Answer {
    /// Plain data of a serialisable value.
    pub(crate) fn data(value: &impl Serialize) -> Result<Self, Failure> {
        to_value(value).map(Self::Plain)
    }

    /// Status, content type and bytes.
    pub(crate) fn render(self, pretty: bool) -> (StatusCode, &'static str, Vec<u8>) {
        let value = match self {
            Self::Raw { status, content_type, body } => return (status, content_type, body),
            Self::Plain(data) => json!({"data": data, "error": 0}),
            Self::Message(message) => json!({"message": message, "error": 0}),
            Self::List(list) => list.into_value(),
        };
        (StatusCode::OK, JSON, to_bytes(&value, pretty))
    }
}

/// `Content-Type` of an answer.
pub(crate) const JSON: &str = "application/json";
/// `Content-Type` of a failure.
pub(crate) const PROBLEM: &str = "application/problem+json";

/// A JSON value as bytes.
pub(crate) fn to_bytes(value: &Value, pretty: bool) -> Vec<u8> {
    // A value whose keys are texts always serialises.
    let bytes = if pretty { serde_json::to_vec_pretty(value) } else { serde_json::to_vec(value) };
    bytes.unwrap_or_default()
}

/// A serialisable value as JSON.
pub(crate) fn to_value(value: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(value).map_err(|e| Failure::internal(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGES: [&str; 3] = ["all", "some", "none"];

    #[test]
    fn the_error_number_tells_all_some_and_none() {
        let all = List::new(vec![json!(1)], 7, MESSAGES).into_value();
        assert_eq!((&all["error"], &all["message"]), (&json!(0), &json!("all")));
        assert_eq!(all["data"]["total_affected_items"], 7);

        let mut some = List::new(vec![json!(1)], 1, MESSAGES);
        some.fail(1701, "003".into());
        some.fail(1703, "000".into());
        some.fail(1701, "004".into());
        let some = some.into_value();
        assert_eq!((&some["error"], &some["message"]), (&json!(2), &json!("some")));
        assert_eq!(some["data"]["total_failed_items"], 3);
        assert_eq!(some["data"]["failed_items"][0]["id"], json!(["003", "004"]));
        assert_eq!(some["data"]["failed_items"][1]["error"]["code"], 1703);

        let mut none = List::new(Vec::new(), 0, MESSAGES);
        none.fail(1701, "003".into());
        let none = none.into_value();
        assert_eq!((&none["error"], &none["message"]), (&json!(1), &json!("none")));
    }

    #[test]
    fn pretty_is_for_people() {
        let (_, _, body) = Answer::Message("done".into()).render(true);
        assert!(String::from_utf8(body).unwrap().contains("\n  \"message\""));
    }
}
