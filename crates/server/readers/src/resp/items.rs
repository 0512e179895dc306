//! The items of RESP: lines, and bulk strings with a length.

use query::time::parse_int;
use series::{END_OF_SERIES, Value};

use crate::number::parse_float;

/// Longest item (line or bulk string), in bytes.
pub const ITEM_BYTES_MAX: usize = 16 << 10;
/// Longest bulk string that is passed over, in bytes. A longer one cannot be meant.
const PASSED_BYTES_MAX: usize = 512 << 20;
/// The value that marks the end of a series ([`END_OF_SERIES`]).
pub const STALE: &[u8] = b"stale";

/// One item of the stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Item<'a> {
    Text(&'a [u8]),
    Number(&'a [u8]),
    Array(&'a [u8]),
    Garbage(&'a [u8]),
}

impl<'a> Item<'a> {
    #[inline]
    pub(super) fn text(self) -> &'a [u8] {
        match self {
            Self::Text(t) | Self::Number(t) | Self::Array(t) | Self::Garbage(t) => t,
        }
    }
}

/// Reason to end a stream whose bulk string does not end where its length says.
pub(super) const WRONG_END: &str = "a text does not end where its length says; the connection ends";

/// The content that begins with a line.
pub(super) enum Found<'a> {
    /// An item, and the number of bytes that it takes.
    Item(Item<'a>, usize),
    /// A bulk string whose end did not come yet.
    Incomplete,
    /// A bulk string over the limit, with the length of its content.
    TooLong(usize),
    /// A bulk string after which nothing can be read; the reason.
    Broken(&'static str),
}

/// Returns what begins with a line. `behind` is the offset in `rest` of the next line.
#[inline]
pub(super) fn item<'a>(line: &'a [u8], rest: &'a [u8], behind: usize) -> Found<'a> {
    let text = line.get(1..).unwrap_or_default();
    let item = match line.first() {
        Some(b'+') => Item::Text(text),
        Some(b':') => Item::Number(text),
        Some(b'*') => Item::Array(text),
        // A null string has no content.
        Some(b'$') if text == b"-1" => Item::Garbage(line),
        Some(b'$') => return bulk_string(text, rest, behind),
        _ => Item::Garbage(line),
    };
    Found::Item(item, behind)
}

fn bulk_string<'a>(length: &[u8], rest: &'a [u8], behind: usize) -> Found<'a> {
    let length = match count_of(length).filter(|length| *length <= PASSED_BYTES_MAX) {
        Some(length) if length <= ITEM_BYTES_MAX => length,
        Some(length) => return Found::TooLong(length),
        None => return Found::Broken("no length of a text; the connection ends"),
    };
    let end = behind + length;
    let (Some(bulk), Some(last)) = (rest.get(behind..end), rest.get(end)) else {
        return Found::Incomplete;
    };
    match (last, rest.get(end + 1)) {
        (b'\n', _) => Found::Item(Item::Text(bulk), end + 1),
        (b'\r', Some(b'\n')) => Found::Item(Item::Text(bulk), end + 2),
        (b'\r', None) => Found::Incomplete,
        _ => Found::Broken(WRONG_END),
    }
}

#[inline]
pub(super) fn count_of(text: &[u8]) -> Option<usize> {
    parse_int(text).and_then(|n| usize::try_from(n).ok())
}

#[inline]
pub(super) fn number(item: Item<'_>) -> Option<Value> {
    match item {
        Item::Number(text) => parse_int(text).map(Value::I64),
        Item::Text(STALE) => Some(Value::F64(f64::from_bits(END_OF_SERIES))),
        Item::Text(text) => parse_float(text).map(Value::F64),
        _ => None,
    }
}

/// Returns true if an item can only be a series name: neither a time nor a number.
#[inline]
pub(super) fn is_name(item: Item<'_>) -> bool {
    matches!(item, Item::Text(text) if is_resp_name(text))
}

/// Returns true if a series name may precede its samples directly. A name that has no tags or
/// begins like a number can only be sent in a dictionary.
#[inline]
pub fn is_resp_name(text: &[u8]) -> bool {
    let letter = text.first().is_some_and(|c| !c.is_ascii_digit() && !b"+-.".contains(c));
    letter && text.contains(&b'=') && parse_float(text).is_none()
}
