//! Envelopes of answers: a list, plain data, a message, or raw bytes.

use std::borrow::Cow;

use axum::http::StatusCode;
use model::AgentId;
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::code::Code;
use crate::error::Failure;

/// A successful answer.
#[derive(Debug)]
pub enum Answer {
    /// `{"data": ..., "error": 0}`
    Plain(Value),
    /// `{"data": ..., "message": ..., "error": 0}`
    Told(Value, &'static str),
    /// `{"message": ..., "error": 0}`
    Message(String),
    /// The list envelope.
    List(List),
    /// Bytes without an envelope.
    Raw { status: StatusCode, content_type: &'static str, body: Vec<u8> },
    /// A body that is sent while it is generated.
    Stream(Stream),
}

/// An answer that is sent while it is generated; see [`crate::http::stream`].
#[derive(Debug)]
pub struct Stream {
    pub content_type: &'static str,
    pub body: axum::body::Body,
}

/// Items of a list.
#[derive(Debug)]
enum Items {
    Values(Vec<Value>),
    /// Already serialized, separated by commas.
    Written(Vec<u8>),
}

impl Default for Items {
    fn default() -> Self {
        Self::Values(Vec::new())
    }
}

/// A writer that serializes items one by one, without building a tree of values.
#[derive(Debug, Default)]
pub struct ItemWriter(Vec<u8>);

impl ItemWriter {
    /// Appends one item.
    pub fn push(&mut self, item: &impl Serialize) -> Result<(), Failure> {
        if !self.0.is_empty() {
            self.0.push(b',');
        }
        serde_json::to_writer(&mut self.0, item).map_err(|e| Failure::internal(&e))
    }

    /// Returns the serialized items, separated by commas.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Ids that failed with one code; `text` replaces the code's own text.
#[derive(Debug)]
struct Failed {
    code: Code,
    text: Option<String>,
    ids: Vec<FailedId>,
}

/// An id that failed: a number for users, roles and policies, otherwise a text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(untagged)]
pub enum FailedId {
    Number(u32),
    Text(String),
}

impl FailedId {
    /// Returns the key by which ids are sorted. Of two texts of digits, the longer one is larger.
    fn order(&self) -> (usize, &Self) {
        let digits = |text: &&String| text.bytes().all(|byte| byte.is_ascii_digit());
        let Self::Text(text) = self else { return (0, self) };
        (Some(text).filter(digits).map_or(usize::MAX, String::len), self)
    }
}

impl From<u32> for FailedId {
    fn from(number: u32) -> Self {
        Self::Number(number)
    }
}

impl From<String> for FailedId {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<AgentId> for FailedId {
    fn from(agent: AgentId) -> Self {
        Self::Text(agent.to_string())
    }
}

/// A page of items and the ids that failed.
#[derive(Debug, Default)]
pub struct List {
    items: Items,
    total: u64,
    failed: Vec<Failed>,
    messages: [Cow<'static, str>; 3],
    more: Map<String, Value>,
}

impl List {
    /// Returns a list of the items of one page with the total before paging. The messages are for
    /// the cases that all, some or none of the requested items were processed.
    pub fn new(items: Vec<Value>, total: u64, messages: [&'static str; 3]) -> Self {
        let messages = messages.map(Cow::Borrowed);
        Self { items: Items::Values(items), total, messages, ..Self::default() }
    }

    /// Returns the same as [`List::new`], for items that are already serialized.
    pub fn written(items: ItemWriter, total: u64, messages: [&'static str; 3]) -> Self {
        let messages = messages.map(Cow::Borrowed);
        Self { items: Items::Written(items.0), total, messages, ..Self::default() }
    }

    /// Replaces the messages given to [`List::new`] by ones that name the object.
    #[must_use]
    pub fn with_messages(mut self, messages: [String; 3]) -> Self {
        self.messages = messages.map(Cow::Owned);
        self
    }

    /// Adds an id that failed with a code; ids with the same code are grouped.
    pub fn fail(&mut self, code: Code, id: impl Into<FailedId>) {
        let id = id.into();
        match self.failed.iter_mut().find(|other| other.code == code && other.text.is_none()) {
            Some(other) => other.ids.push(id),
            None => self.failed.push(Failed { code, text: None, ids: vec![id] }),
        }
    }

    /// Adds ids that failed, each with its code.
    #[must_use]
    pub fn with_failed(
        mut self,
        failed: impl IntoIterator<Item = (Code, impl Into<FailedId>)>,
    ) -> Self {
        failed.into_iter().for_each(|(code, id)| self.fail(code, id));
        self
    }

    /// Adds an id that failed with a code, with a specific text.
    pub fn fail_detailed(&mut self, code: Code, text: String, id: impl Into<FailedId>) {
        self.failed.push(Failed { code, text: Some(text), ids: vec![id.into()] });
    }

    /// Adds a field to the envelope.
    #[must_use]
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.more.insert(name.into(), value);
        self
    }

    /// Returns true if nothing was affected and nothing failed.
    pub fn is_empty(&self) -> bool {
        self.total == 0 && self.failed.is_empty()
    }

    fn failures(&self) -> usize {
        self.failed.iter().map(|failed| failed.ids.len()).sum()
    }

    /// Returns 0 if nothing failed, 1 if everything failed, 2 if some items failed.
    pub fn error(&self) -> u8 {
        match (self.failures(), self.total) {
            (0, _) => 0,
            (_, 0) => 1,
            _ => 2,
        }
    }

    fn message(&self) -> &str {
        let [all, some, none] = &self.messages;
        match self.error() {
            0 if self.total == 0 && !none.is_empty() => none,
            0 => all,
            1 => none,
            _ => some,
        }
    }

    /// Returns the failures by code, each with its ids in order.
    fn failed_items(&self) -> Vec<Value> {
        let item = |failed: &Failed| {
            let mut ids: Vec<&FailedId> = failed.ids.iter().collect();
            ids.sort_unstable_by_key(|id| id.order());
            let (text, remedy) = (failed.code.text(), failed.code.remedy());
            let text = failed.text.as_deref().unwrap_or(text);
            json!({
                "error": {"code": failed.code.number(), "message": text, "remediation": remedy},
                "id": ids,
            })
        };
        let mut failed: Vec<&Failed> = self.failed.iter().collect();
        failed.sort_by_key(|failed| failed.code.number());
        failed.into_iter().map(item).collect()
    }

    /// Returns the fields that follow the items.
    fn tail(&self) -> Map<String, Value> {
        let mut data = Map::new();
        data.insert("total_affected_items".into(), self.total.into());
        data.insert("total_failed_items".into(), self.failures().into());
        data.insert("failed_items".into(), Value::Array(self.failed_items()));
        data.extend(self.more.clone());
        data
    }

    /// Returns the bytes before and after the items, for a list whose items are streamed.
    pub fn frame(&self) -> (Vec<u8>, Vec<u8>) {
        let tail = Value::Object(self.tail());
        let end = json!({"message": self.message(), "error": self.error()});
        // Both are JSON objects; the brace that opens each is cut off, as the list continues an
        // object.
        let (tail, end) = (to_bytes(&tail, false), to_bytes(&end, false));
        let mut behind = b"],".to_vec();
        behind.extend(tail.get(1..).unwrap_or_default());
        behind.push(b',');
        behind.extend(end.get(1..).unwrap_or_default());
        (br#"{"data":{"affected_items":["#.to_vec(), behind)
    }

    fn into_bytes(self, pretty: bool) -> Vec<u8> {
        let (mut whole, behind) = self.frame();
        match &self.items {
            Items::Written(bytes) => whole.extend(bytes),
            Items::Values(values) => {
                let bytes = serde_json::to_vec(values).unwrap_or_default();
                // Leave out the enclosing brackets.
                whole.extend(bytes.get(1..bytes.len().saturating_sub(1)).unwrap_or_default());
            }
        }
        whole.extend(behind);
        if !pretty {
            return whole;
        }
        match serde_json::from_slice::<Value>(&whole) {
            Ok(value) => to_bytes(&value, true),
            Err(_) => whole,
        }
    }
}

impl Answer {
    /// Returns a plain answer with a serializable value.
    pub fn data(value: &impl Serialize) -> Result<Self, Failure> {
        to_value(value).map(Self::Plain)
    }

    /// Returns the status, content type and body.
    pub fn render(self, pretty: bool) -> (StatusCode, &'static str, Vec<u8>) {
        let value = match self {
            Self::Raw { status, content_type, body } => return (status, content_type, body),
            Self::Plain(data) => json!({"data": data, "error": 0}),
            Self::Told(data, message) => json!({"data": data, "message": message, "error": 0}),
            Self::Message(message) => json!({"message": message, "error": 0}),
            Self::List(list) => return (StatusCode::OK, JSON, list.into_bytes(pretty)),
            Self::Stream(stream) => return (StatusCode::OK, stream.content_type, Vec::new()),
        };
        (StatusCode::OK, JSON, to_bytes(&value, pretty))
    }
}

/// `Content-Type` of an answer.
pub const JSON: &str = "application/json";
/// `Content-Type` of a failure.
pub const PROBLEM: &str = "application/problem+json";

/// Serializes a JSON value.
pub fn to_bytes(value: &Value, pretty: bool) -> Vec<u8> {
    // The keys of a JSON value are strings, so serialization cannot fail.
    let bytes = if pretty { serde_json::to_vec_pretty(value) } else { serde_json::to_vec(value) };
    bytes.unwrap_or_default()
}

/// Converts a serializable value to JSON.
pub fn to_value(value: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(value).map_err(|e| Failure::internal(&e))
}

/// An error of the API, `application/problem+json`.
#[derive(Serialize, ToSchema)]
pub struct Problem {
    /// Class of the error.
    title: String,
    /// Description of the problem with this request.
    detail: String,
    /// Remedy.
    remediation: Option<String>,
    /// The code, if there is one.
    error: Option<u16>,
    /// The error of each node, if there is a code.
    dapi_errors: Option<Map<String, Value>>,
}

/// Ids that failed with one error.
#[derive(Serialize, ToSchema)]
pub struct FailedItem {
    error: FailedError,
    id: Vec<String>,
}

/// Error of ids that failed.
#[derive(Serialize, ToSchema)]
pub struct FailedError {
    code: u16,
    message: String,
    remediation: String,
}

/// An answer without data.
#[derive(Serialize, ToSchema)]
pub struct MessageAnswer {
    message: String,
    error: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGES: [&str; 3] = ["all", "some", "none"];

    impl List {
        fn into_value(self) -> Value {
            serde_json::from_slice(&self.into_bytes(false)).unwrap()
        }
    }

    #[test]
    fn preserialized_items_render_like_json_values() {
        let items = [json!({"a": 1}), json!("b"), json!([2])];
        let mut writer = ItemWriter::default();
        for item in &items {
            writer.push(item).unwrap();
        }
        let early = List::written(writer, 3, MESSAGES).into_value();
        assert_eq!(early, List::new(items.to_vec(), 3, MESSAGES).into_value());
        let empty = List::written(ItemWriter::default(), 0, MESSAGES).into_value();
        assert_eq!(empty["data"]["affected_items"], json!([]));
    }

    #[test]
    fn error_number_distinguishes_all_some_and_none() {
        let all = List::new(vec![json!(1)], 7, MESSAGES).into_value();
        assert_eq!((&all["error"], &all["message"]), (&json!(0), &json!("all")));
        assert_eq!(all["data"]["total_affected_items"], 7);

        let mut some = List::new(vec![json!(1)], 1, MESSAGES);
        some.fail(Code::AgentMissing, "003".to_owned());
        some.fail(Code::ServerItself, "000".to_owned());
        some.fail(Code::AgentMissing, "004".to_owned());
        let some = some.into_value();
        assert_eq!((&some["error"], &some["message"]), (&json!(2), &json!("some")));
        assert_eq!(some["data"]["total_failed_items"], 3);
        assert_eq!(some["data"]["failed_items"][0]["id"], json!(["003", "004"]));
        assert_eq!(some["data"]["failed_items"][1]["error"]["code"], 1703);

        let mut none = List::new(Vec::new(), 0, MESSAGES);
        none.fail(Code::AgentMissing, "003".to_owned());
        let none = none.into_value();
        assert_eq!((&none["error"], &none["message"]), (&json!(1), &json!("none")));
    }

    #[test]
    fn pretty_renders_indented_json() {
        let (_, _, body) = Answer::Message("done".into()).render(true);
        assert!(String::from_utf8(body).unwrap().contains("\n  \"message\""));
    }
}
