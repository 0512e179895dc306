//! Parameters of a request, validated against the operation's description before its code runs. A
//! parameter that is not described is rejected, so that a misspelt filter never selects everything.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use model::{AgentId, timestamp};

use crate::code::Code;
use crate::error::Failure;
use crate::http::operation::{Kind, Operation, Parameter, ParameterLocation};
use crate::limits::PARAMETER_BYTES_MAX;

/// Minimum length of an agent number in a path, digits.
const NUMBER_DIGITS_MIN: usize = 3;

/// A validated value.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Whole(u64),
    Flag(bool),
    Text(String),
    List(Vec<String>),
    Agents(Vec<AgentId>),
    /// Seconds, and the original text.
    Timeframe(u64, String),
    Micros(u64),
}

/// The validated parameters of one request.
#[derive(Debug, Default)]
pub struct Parameters(HashMap<&'static str, Value>);

impl Parameters {
    /// Validates the raw path and query parameters of a request.
    pub fn read(
        operation: &Operation,
        path: &[(String, String)],
        query: &[(String, String)],
    ) -> Result<Self, Failure> {
        let known = |name: &str| {
            operation.parameters().any(|p| p.place == ParameterLocation::Query && p.name == name)
        };
        let mut extra: Vec<&str> =
            query.iter().map(|(name, _)| name.as_str()).filter(|name| !known(name)).collect();
        if !extra.is_empty() {
            extra.sort_unstable();
            extra.dedup();
            let names = extra.join(", ");
            return Err(Failure::bad(format!("Extra query parameter(s) {names} not in spec")));
        }
        let mut values = HashMap::new();
        for parameter in operation.parameters() {
            let source = if parameter.place == ParameterLocation::Path { path } else { query };
            let given = source.iter().filter(|(name, _)| name == parameter.name);
            let given: Vec<&str> = given.map(|(_, text)| text.as_str()).collect();
            match one_text(operation, parameter, &given)? {
                Some(text) => {
                    values.insert(parameter.name, check(parameter, &text)?);
                }
                None if parameter.required => {
                    return Err(Failure::bad(format!(
                        "Missing query parameter '{}'",
                        parameter.name
                    )));
                }
                None => {}
            }
        }
        for parameter in operation.parameters() {
            let default = match parameter.kind {
                Kind::Whole { default, .. } => Some(Value::Whole(default)),
                Kind::Offset => Some(Value::Whole(0)),
                Kind::Timeframe(Some(text)) => read_timeframe(text),
                _ => None,
            };
            if let Some(default) = default {
                values.entry(parameter.name).or_insert(default);
            }
        }
        Ok(Self(values))
    }

    /// Returns a whole number, or its default if absent.
    pub fn whole(&self, name: &str) -> u64 {
        match self.0.get(name) {
            Some(Value::Whole(number)) => *number,
            _ => 0,
        }
    }

    /// Returns `offset` for a list that a database pages.
    pub fn database_offset(&self) -> Result<u64, Failure> {
        let offset = self.whole("offset");
        i64::try_from(offset).map_err(|_| Failure::code(Code::OffsetTooLarge))?;
        Ok(offset)
    }

    /// Returns a whole number without a default.
    pub fn position(&self, name: &str) -> Option<u64> {
        match self.0.get(name) {
            Some(Value::Whole(number)) => Some(*number),
            _ => None,
        }
    }

    /// Returns a flag, or `false` if absent.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.0.get(name), Some(Value::Flag(true)))
    }

    /// Returns a flag; `None` if absent.
    pub fn flag_given(&self, name: &str) -> Option<bool> {
        match self.0.get(name) {
            Some(Value::Flag(flag)) => Some(*flag),
            _ => None,
        }
    }

    /// Returns a text if it is present and not empty.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.0.get(name) {
            Some(Value::Text(text)) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    /// Returns the values of a list; empty if absent.
    pub fn list(&self, name: &str) -> &[String] {
        match self.0.get(name) {
            Some(Value::List(list)) => list,
            _ => &[],
        }
    }

    /// Returns the agent numbers of a list; `None` if absent.
    pub fn agents(&self, name: &str) -> Option<&[AgentId]> {
        match self.0.get(name) {
            Some(Value::Agents(list)) => Some(list),
            _ => None,
        }
    }

    /// Returns the agent in the path.
    pub fn agent(&self) -> Result<AgentId, Failure> {
        match self.agents("agent_id") {
            Some([agent]) => Ok(*agent),
            _ => Err(Failure::code(Code::AgentMissing)),
        }
    }

    /// Returns a timeframe in seconds, or its default if absent.
    pub fn seconds(&self, name: &str) -> Option<u64> {
        match self.0.get(name) {
            Some(Value::Timeframe(seconds, _)) => Some(*seconds),
            _ => None,
        }
    }

    /// Returns a timeframe as written in the request.
    pub fn timeframe(&self, name: &str) -> Option<&str> {
        match self.0.get(name) {
            Some(Value::Timeframe(_, text)) => Some(text),
            _ => None,
        }
    }

    /// Returns an instant, microseconds since the epoch.
    pub fn micros(&self, name: &str) -> Option<u64> {
        match self.0.get(name) {
            Some(Value::Micros(micros)) => Some(*micros),
            _ => None,
        }
    }
}

/// Fails if the text is too long, or empty where that would mean no filter.
fn has_length(parameter: &Parameter, text: &str) -> Result<(), Failure> {
    if text.len() > PARAMETER_BYTES_MAX
        && !matches!(parameter.kind, Kind::Numbers | Kind::NumbersOrAll)
    {
        return Err(Failure::bad(format!(
            "'{}' is too long: {} bytes of at most {PARAMETER_BYTES_MAX}",
            parameter.name,
            text.len()
        )));
    }
    let filters = matches!(
        parameter.kind,
        Kind::Text
            | Kind::Alphanumeric
            | Kind::Name
            | Kind::AgentName
            | Kind::GroupName
            | Kind::Search
            | Kind::Sort
            | Kind::Word(_)
    );
    if text.is_empty() && filters {
        // An empty filter would select everything, for example if a script's variable was never set.
        return Err(Failure::bad(format!(
            "'{}' is empty: leave it out or name one",
            parameter.name
        )));
    }
    Ok(())
}

/// Returns the text of a parameter that may be given several times: the joined items of a list, or
/// the last value of any other parameter, as in HTML forms. A request that changes something must not
/// give two values.
fn one_text<'a>(
    operation: &Operation,
    parameter: &Parameter,
    given: &[&'a str],
) -> Result<Option<Cow<'a, str>>, Failure> {
    let Some((last, others)) = given.split_last() else { return Ok(None) };
    let is_flag = parameter.kind == Kind::Flag;
    let same = |other: &&str| other == last || is_flag && flag(other) == flag(last);
    if others.iter().all(same) {
        return Ok(Some((*last).into()));
    }
    let numbers = matches!(parameter.kind, Kind::Numbers | Kind::NumbersOrAll);
    if numbers || matches!(parameter.kind, Kind::Words(_) | Kind::Names | Kind::GroupNames) {
        // Each value is checked alone, so that an empty one is not lost between commas.
        given.iter().try_for_each(|text| has_length(parameter, text))?;
        return Ok(Some(given.join(",").into()));
    }
    if operation.writes() {
        let name = parameter.name;
        return Err(Failure::bad(format!("'{name}' is given twice with different values")));
    }
    Ok(Some((*last).into()))
}

fn check(parameter: &Parameter, text: &str) -> Result<Value, Failure> {
    has_length(parameter, text)?;
    match parameter.kind {
        Kind::Whole { min, max, .. } => whole(parameter, text, min, max),
        Kind::Offset => offset(parameter, text),
        Kind::Flag => match flag(text) {
            Some(set) => Ok(Value::Flag(set)),
            None => Err(wrong_type(parameter, "boolean")),
        },
        Kind::Text => Ok(Value::Text(text.to_owned())),
        Kind::Alphanumeric => {
            formed(parameter, text, "alphanumeric", text.chars().all(is_alphanumeric))
        }
        Kind::AgentName if text.chars().count() > NAME_CHARS_MAX => {
            let name = parameter.name;
            let rule = format!("Failed validating 'maxLength' in schema - '{name}'");
            Err(Failure::bad(format!("'{}' is too long. {rule}", shorten(text))))
        }
        Kind::Name | Kind::AgentName => formed(parameter, text, "names", text.chars().all(is_name)),
        Kind::GroupName => formed(parameter, text, "group_names", is_group(text)),
        Kind::Sort => formed(parameter, text, "sort", text.chars().all(is_sort)),
        Kind::Search => formed(parameter, text, "search", !text.contains(NOT_SEARCHED)),
        Kind::Word(words) => match words.iter().find(|word| **word == text) {
            Some(word) => Ok(Value::Text((*word).to_owned())),
            None => Err(no_word(parameter, text, words)),
        },
        Kind::Words(words) => {
            let known = |item: &String| {
                let word = words.iter().find(|word| word.eq_ignore_ascii_case(item));
                word.map(|word| (*word).to_owned()).ok_or_else(|| no_word(parameter, item, words))
            };
            split(parameter, text)?.iter().map(known).collect::<Result<_, _>>().map(Value::List)
        }
        Kind::Names => named(parameter, text, "names", |item| item.chars().all(is_name)),
        // No group can have the name `all`.
        Kind::GroupNames if text.contains(',') => {
            named(parameter, text, "group_names", |name| is_group(name) && name != "all")
        }
        Kind::GroupNames => named(parameter, text, "group_names", is_group),
        Kind::NumbersOrAll if text == "all" => Ok(Value::Text(text.to_owned())),
        Kind::Numbers | Kind::NumbersOrAll => numbers(parameter, text),
        Kind::Id => {
            if text.bytes().all(|b| b.is_ascii_digit()) {
                numbers(parameter, text)
            } else {
                Err(no_format(parameter, text, "numbers"))
            }
        }
        Kind::Position => whole(parameter, text, 0, i64::MAX as u64),
        Kind::Number if text.len() >= NUMBER_DIGITS_MIN => numbers(parameter, text),
        Kind::Number => Err(no_format(parameter, text, "numbers")),
        Kind::Timeframe(_) => {
            read_timeframe(text).ok_or_else(|| no_format(parameter, text, "timeframe"))
        }
        Kind::Digest if (32..=128).contains(&text.len()) && is_hex(text) => {
            Ok(Value::Text(text.to_ascii_lowercase()))
        }
        Kind::Digest => Err(no_format(parameter, text, "hash")),
        Kind::Instant => match timestamp::parse_micros(text) {
            Some(micros) => Ok(Value::Micros(micros)),
            None => Err(Failure::detailed(
                Code::DateInvalid,
                format!("{}: not a date: {text}", parameter.name),
            )),
        },
    }
}

/// Parses a flag regardless of case: clients send `true`, `True` and `TRUE`.
fn flag(text: &str) -> Option<bool> {
    let is = |word: &str| text.eq_ignore_ascii_case(word);
    is("true").then_some(true).or_else(|| is("false").then_some(false))
}

/// Returns a flag of a query before its parameters are validated; as in HTML forms, the last of several
/// values counts.
pub fn flag_of(query: &[(String, String)], name: &str) -> bool {
    let last = query.iter().rev().find(|(known, _)| known == name);
    last.and_then(|(_, text)| flag(text)).unwrap_or(false)
}

/// Longest name of a group, characters.
const GROUP_NAME_CHARS_MAX: usize = 128;
/// Longest name of an agent, characters.
pub const NAME_CHARS_MAX: usize = 128;
/// Characters that a text to search for must not contain.
const NOT_SEARCHED: &[char] = &[';', '|', '&', '^', '*', '>'];

fn is_alphanumeric(c: char) -> bool {
    c.is_alphanumeric() || " _,-.+:/()".contains(c)
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || "_-.%".contains(c)
}

fn is_sort(c: char) -> bool {
    c.is_alphanumeric() || "_-,+. ".contains(c)
}

/// Returns true if the text is a valid group name. The name `all` is rejected only on creation.
pub fn is_group(text: &str) -> bool {
    (1..=GROUP_NAME_CHARS_MAX).contains(&text.len())
        && ![".", ".."].contains(&text)
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

fn formed(parameter: &Parameter, text: &str, format: &str, fits: bool) -> Result<Value, Failure> {
    if fits { Ok(Value::Text(text.to_owned())) } else { Err(no_format(parameter, text, format)) }
}

/// Parses a list whose items must have a format.
fn named(
    parameter: &Parameter,
    text: &str,
    format: &str,
    fits: impl Fn(&str) -> bool,
) -> Result<Value, Failure> {
    let list = split(parameter, text)?;
    match list.iter().find(|item| !fits(item)) {
        Some(item) => Err(no_format(parameter, item, format)),
        None => Ok(Value::List(list)),
    }
}

fn read_timeframe(text: &str) -> Option<Value> {
    timeframe(text).map(|seconds| Value::Timeframe(seconds, text.to_owned()))
}

fn whole(parameter: &Parameter, text: &str, min: u64, max: u64) -> Result<Value, Failure> {
    let Ok(number) = text.parse::<i128>() else {
        return Err(wrong_type(parameter, "integer"));
    };
    let failed =
        |which: &str| format!("Failed validating '{which}' in schema - '{}'", parameter.name);
    if number < i128::from(min) {
        let rule = failed("minimum");
        return Err(Failure::bad(format!("{number} is less than the minimum of {min}. {rule}")));
    }
    if number > i128::from(max) {
        let rule = failed("maximum");
        return Err(Failure::bad(format!("{number} is greater than the maximum of {max}. {rule}")));
    }
    Ok(Value::Whole(number as u64))
}

/// Parses an offset. One beyond 64 bits is behind the end of every list, like the largest.
fn offset(parameter: &Parameter, text: &str) -> Result<Value, Failure> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(Value::Whole(text.parse().unwrap_or(u64::MAX)));
    }
    whole(parameter, text, 0, u64::MAX)
}

fn split(parameter: &Parameter, text: &str) -> Result<Vec<String>, Failure> {
    let list: Vec<String> = text.split(',').map(str::to_owned).collect();
    if list.iter().any(String::is_empty) {
        return Err(no_format(parameter, text, parameter.name));
    }
    Ok(list)
}

fn numbers(parameter: &Parameter, text: &str) -> Result<Value, Failure> {
    let (mut list, mut seen) = (Vec::new(), HashSet::new());
    for item in text.split(',') {
        if item.is_empty() || !item.bytes().all(|b| b.is_ascii_digit()) {
            return Err(no_format(parameter, text, "numbers"));
        }
        // A number that is out of range belongs to no agent.
        let number = item.parse().unwrap_or(u32::MAX);
        // Drop duplicates.
        if seen.insert(number) {
            list.push(AgentId(number));
        }
    }
    if parameter.kind == Kind::Number && list.len() != 1 {
        return Err(no_format(parameter, text, "numbers"));
    }
    Ok(Value::Agents(list))
}

/// Parses `7d`, `10h`, `5m`, `30s` or `60` and returns seconds.
pub fn timeframe(text: &str) -> Option<u64> {
    let (digits, unit) = match text.char_indices().last()? {
        (at, 'd') => (text.get(..at)?, 86_400),
        (at, 'h') => (text.get(..at)?, 3_600),
        (at, 'm') => (text.get(..at)?, 60),
        (at, 's') => (text.get(..at)?, 1),
        _ => (text, 1),
    };
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse::<u64>().ok().filter(|_| plain)?.checked_mul(unit)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn wrong_type(parameter: &Parameter, wanted: &str) -> Failure {
    Failure::bad(format!(
        "Wrong type, expected '{wanted}' for query parameter '{}'",
        parameter.name
    ))
}

/// Returns the refusal of a text: the first half is that of the 4.x API.
fn no_format(parameter: &Parameter, text: &str, format: &str) -> Failure {
    let example = match format {
        "numbers" => "001",
        "group_names" => "web",
        "timeframe" => "7d",
        "hash" => "d41d8cd98f00b204e9800998ecf8427e",
        "sort" => "-name",
        _ => "web-1",
    };
    let (text, name) = (shorten(text), parameter.name);
    Failure::bad(format!("'{text}' is not a '{format}' - '{name}', for example {example}"))
}

fn no_word(parameter: &Parameter, text: &str, words: &[&str]) -> Failure {
    let (text, name) = (shorten(text), parameter.name);
    Failure::bad(format!("'{text}' is not one of {words:?} - '{name}'"))
}

/// Shortens a caller's text for use in an answer.
fn shorten(text: &str) -> String {
    text.chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeframes_accept_only_d_h_m_s_or_seconds() {
        let good = ["7d", "2h", "10m", "5s", "60"].map(timeframe);
        assert_eq!(good, [604_800, 7_200, 600, 5, 60].map(Some));
        for bad in ["", "d", "-1d", "+1d", "1w", "1.5h", "99999999999999999999d", "1 d", "é"] {
            assert_eq!(timeframe(bad), None, "{bad}");
        }
    }
}
