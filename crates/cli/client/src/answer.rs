//! Answers of the API.

use std::io::Write as _;

use anyhow::bail;
use serde_json::Value;

/// Returns the value at a JSON pointer (RFC 6901), or null.
pub fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

/// Returns the items of a list.
pub(crate) fn items(answer: &Value) -> Vec<Value> {
    at(answer, "/data/affected_items").as_array().cloned().unwrap_or_default()
}

/// Formats a value for a table or a line: escaped for terminals, lists with commas, `-` for nothing.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) if text.is_empty() => "-".into(),
        Value::String(text) => model::path::show_terminal(text.as_bytes()),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        Value::Array(values) if values.is_empty() => "-".into(),
        Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(", "),
        other => model::path::show_terminal(other.to_string().as_bytes()),
    }
}

/// Words of the API's remedies, and those of the command that does the same.
const COMMANDS: &[(&str, &str)] = &[
    ("GET /agents lists", "`holdfast agents` lists"),
    ("GET /groups/GROUP/agents lists", "`holdfast groups show GROUP` lists"),
    ("name one of the existing groups", "`holdfast groups` lists the groups"),
    ("GET /rules/files lists", "`holdfast rules` lists"),
    ("GET /security/roles lists", "`holdfast users roles` lists"),
    ("GET /security/roles shows what it has", "`holdfast users roles` lists the roles"),
    ("GET /security/users lists", "`holdfast users` lists"),
    ("GET /security/users shows what it has", "`holdfast users` shows its roles"),
    ("add overwrite=true to", "use --replace to"),
    ("ask for less, or add wait_for_complete=true", "ask for less"),
    ("ask for pages with offset and limit", "give a smaller --limit"),
];

/// Formats the message of an error with its remedy, in the words of the command line.
pub(crate) fn with_remedy(message: &Value, remedy: &Value) -> Option<String> {
    let message = message.as_str().filter(|text| !text.is_empty())?;
    let remedy = remedy.as_str().filter(|text| !text.is_empty());
    let message = in_words(message).unwrap_or_else(|| message.to_owned());
    let both = remedy.map_or(message.clone(), |remedy| format!("{message}: {remedy}"));
    let own = COMMANDS.iter().fold(both, |text, (api, command)| text.replace(api, command));
    Some(model::path::show_terminal(own.as_bytes()))
}

/// Formats the API's message about a value of the wrong form; `None` for another message. The API
/// names the form by a word of its own.
fn in_words(message: &str) -> Option<String> {
    let (value, rest) = message.strip_prefix('\'')?.split_once("' is not a '")?;
    let (_, rest) = rest.split_once("' - '")?;
    let (parameter, example) = rest.split_once("', for example ")?;
    Some(format!("{value}: not usable as {parameter}; an example is {example}"))
}

/// The objects that a command line names, with their numbers: what the API names by number is
/// printed as it was given.
#[derive(Debug, Default)]
pub(crate) struct GivenNames {
    /// Number and given text of each.
    pub(crate) given: Vec<(String, String)>,
    /// Lines about those that there are none of.
    pub(crate) unknown: Vec<String>,
}

impl GivenNames {
    /// Returns the numbers, separated by commas.
    pub(crate) fn numbers(&self) -> String {
        self.given.iter().map(|(number, _)| number.as_str()).collect::<Vec<_>>().join(",")
    }

    /// Formats an item of the API, or a list of items. A number that was given as a name is printed
    /// as that name.
    pub(crate) fn text(&self, item: &Value) -> String {
        if let Value::Array(items) = item {
            return items.iter().map(|one| self.text(one)).collect::<Vec<_>>().join(", ");
        }
        let shown = text(item);
        let named = self.given.iter().find(|(number, given)| {
            *number == shown && !given.bytes().all(|byte| byte.is_ascii_digit())
        });
        named.map_or(shown, |(_, given)| text(&Value::from(given.as_str())))
    }
}

/// Prints on stderr what failed, one line for each error.
///
/// # Errors
/// If something failed.
pub(crate) fn expect_all(answer: &Value) -> anyhow::Result<()> {
    expect_all_of(answer, &GivenNames::default())
}

/// As [`expect_all`], for objects that the command line names.
pub(crate) fn expect_all_of(answer: &Value, names: &GivenNames) -> anyhow::Result<()> {
    let done = items(answer).len();
    let mut lines = names.unknown.clone();
    lines.extend(failures(answer, names));
    let of_ids = at(answer, "/data/failed_items").as_array().into_iter().flatten();
    let ids: usize = of_ids.map(|item| at(item, "/id").as_array().map_or(1, Vec::len)).sum();
    let failed = names.unknown.len() + ids;
    if failed + done > 1 && failed > 0 {
        lines.push(format!("{failed} of {} failed", failed + done));
    }
    fail_with(lines)
}

/// Returns a line for each error of an answer.
pub(crate) fn failures(answer: &Value, names: &GivenNames) -> Vec<String> {
    let failed = at(answer, "/data/failed_items").as_array();
    let line = |item: &Value| {
        let error = with_remedy(at(item, "/error/message"), at(item, "/error/remediation"));
        format!("{}: {}", names.text(at(item, "/id")), error.unwrap_or_default())
    };
    failed.into_iter().flatten().map(line).collect()
}

/// Fails with the last line and prints the others on stderr; does nothing without a line.
///
/// # Errors
/// If there is a line.
pub(crate) fn fail_with(mut lines: Vec<String>) -> anyhow::Result<()> {
    let Some(last) = lines.pop() else { return Ok(()) };
    for line in lines {
        let _ = writeln!(std::io::stderr(), "{line}");
    }
    bail!(last)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_formatted_for_a_terminal() {
        for (value, expected) in [
            (json!(null), "-"),
            (json!(""), "-"),
            (json!([]), "-"),
            (json!(["default", "web"]), "default, web"),
            (json!("a\u{1b}[2J"), "a\\u{1b}[2J"),
            (json!(7), "7"),
            (json!(true), "yes"),
        ] {
            assert_eq!(text(&value), expected);
        }
    }

    #[test]
    fn failed_items_make_the_command_fail() {
        let failed =
            json!([{"error": {"code": 1701, "message": "agent does not exist"}, "id": ["007"]}]);
        let answer = json!({"data": {"affected_items": ["001"], "total_failed_items": 1,
            "failed_items": failed}});
        assert_eq!(expect_all(&answer).unwrap_err().to_string(), "1 of 2 failed");
        assert!(expect_all(&json!({"data": {"affected_items": ["001"]}})).is_ok());
    }

    #[test]
    fn value_of_a_wrong_form_is_explained_in_words() {
        let message = "'a;b*' is not a 'search' - 'search', for example web-1";
        let expected = "a;b*: not usable as search; an example is web-1";
        assert_eq!(with_remedy(&json!(message), &json!(null)).unwrap(), expected);
        let other = "'a' is not known";
        assert_eq!(with_remedy(&json!(other), &json!(null)).unwrap(), other);
    }

    #[test]
    fn failure_names_the_object_as_given_and_a_command() {
        let error = json!({"code": 1701, "message": "agent does not exist",
            "remediation": "GET /agents lists the agents"});
        let answer = json!({"data": {"failed_items": [{"error": error, "id": ["007"]}]}});
        let given = |text: &str| GivenNames {
            given: vec![("007".to_owned(), text.to_owned())],
            unknown: Vec::new(),
        };
        let says = |names: &GivenNames| expect_all_of(&answer, names).unwrap_err().to_string();
        let expected = "web1: agent does not exist: `holdfast agents` lists the agents";
        assert_eq!(says(&given("web1")), expected);
        assert!(says(&given("7")).starts_with("007: "), "a number is printed in full");
    }

    /// Each remedy of the API that names one of its operations is said as a command, unless no
    /// command meets it.
    #[test]
    fn remedies_name_commands() {
        const WITHOUT_COMMAND: [&str; 5] = [
            "GET /cluster/nodes lists the nodes",
            "GET /security/policies lists the policies",
            "GET /security/rules lists the rules",
            "GET /security/roles shows what gives it",
            "ask an administrator for PUT /security/users/{user_id}/run_as",
        ];
        // A row of the table of codes: number, status, message and remedy.
        let reference = include_str!("../../../../docs/reference/api.md");
        let rows = reference.lines().map(|line| line.split(" | ").collect::<Vec<_>>());
        let remedies = rows.filter(|row| row.len() == 4 && row[1].parse::<u16>().is_ok());
        let remedies = remedies.map(|row| row[3].trim_end_matches(" |"));
        let of_api =
            |text: &str| ["GET /", "PUT /", "=true"].iter().any(|part| text.contains(part));
        let remedies: Vec<&str> = remedies.filter(|text| of_api(text)).collect();
        assert!(remedies.len() > 10, "{remedies:?}");
        for remedy in remedies.into_iter().filter(|text| !WITHOUT_COMMAND.contains(text)) {
            let own = with_remedy(&json!("failed"), &json!(remedy)).unwrap();
            assert!(!of_api(&own), "{own}");
        }
    }
}
