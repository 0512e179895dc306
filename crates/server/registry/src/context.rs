//! Rules over an authorization context: which login with a context gets which roles.
//!
//! A rule is an object whose operators must all hold. `AND` and `OR` take rules (a list, or an
//! object of them), `NOT` one. `MATCH` compares fields at the top of the context, `FIND` at any
//! depth; with `$` behind it the value must be the same, without it a list need only hold what is
//! asked for. A text `r'...'` is a regular expression, for names of fields too.
//!
//! Limits: [`DEPTH_MAX`], [`PATTERN_BYTES_MAX`]; what is beyond them matches nothing.

use regex::RegexBuilder;
use serde_json::{Map, Value};

/// Deepest nesting of rules and contexts that is looked at.
const DEPTH_MAX: usize = 32;
/// Largest compiled regular expression, bytes.
const PATTERN_BYTES_MAX: usize = 64 * 1024;

/// The words that a rule is made of.
const OPERATORS: [&str; 7] = ["AND", "OR", "NOT", "MATCH", "MATCH$", "FIND", "FIND$"];

/// Whether a rule holds for an authorization context.
pub(crate) fn matches(rule: &Value, context: &Value) -> bool {
    holds(rule, context, 0)
}

/// Whether a rule is one: an object of operators with what they take.
pub fn is_rule(rule: &Value) -> bool {
    let Some(fields) = rule.as_object().filter(|fields| !fields.is_empty()) else { return false };
    fields.iter().all(|(word, argument)| match word.as_str() {
        "AND" | "OR" => match argument {
            Value::Array(rules) => !rules.is_empty() && rules.iter().all(is_rule),
            other => is_rule(other),
        },
        "NOT" => is_rule(argument),
        other => OPERATORS.contains(&other) && argument.as_object().is_some_and(|f| !f.is_empty()),
    })
}

fn holds(rule: &Value, context: &Value, depth: usize) -> bool {
    let Some(fields) = rule.as_object().filter(|_| depth < DEPTH_MAX) else { return false };
    let parts = |argument: &Value| -> Vec<bool> {
        match argument {
            Value::Array(rules) => rules.iter().map(|r| holds(r, context, depth + 1)).collect(),
            Value::Object(rules) => rules
                .iter()
                .map(|(word, inner)| operator(word, inner, context, depth + 1))
                .collect(),
            _ => vec![false],
        }
    };
    !fields.is_empty()
        && fields.iter().all(|(word, argument)| match word.as_str() {
            "AND" => parts(argument).into_iter().all(|part| part),
            "OR" => parts(argument).into_iter().any(|part| part),
            _ => operator(word, argument, context, depth),
        })
}

fn operator(word: &str, argument: &Value, context: &Value, depth: usize) -> bool {
    match word {
        "AND" | "OR" => {
            let mut one = Map::new();
            one.insert(word.to_owned(), argument.clone());
            holds(&Value::Object(one), context, depth)
        }
        "NOT" => argument.is_object() && !holds(argument, context, depth + 1),
        "MATCH" => has_fields(argument, context, false, 0),
        "MATCH$" => has_fields(argument, context, true, 0),
        "FIND" => anywhere(argument, context, false, 0),
        "FIND$" => anywhere(argument, context, true, 0),
        _ => false,
    }
}

fn anywhere(wanted: &Value, context: &Value, exact: bool, depth: usize) -> bool {
    if depth >= DEPTH_MAX {
        return false;
    }
    let inside = |value: &Value| anywhere(wanted, value, exact, depth + 1);
    has_fields(wanted, context, exact, 0)
        || match context {
            Value::Object(fields) => fields.values().any(inside),
            Value::Array(items) => items.iter().any(inside),
            _ => false,
        }
}

/// Whether an object has every wanted field with a value that fits.
fn has_fields(wanted: &Value, context: &Value, exact: bool, depth: usize) -> bool {
    let (Value::Object(wanted), Value::Object(fields)) = (wanted, context) else { return false };
    depth < DEPTH_MAX
        && wanted.iter().all(|(name, value)| {
            fields.iter().any(|(own, is)| same_text(name, own) && fits(value, is, exact, depth + 1))
        })
}

fn fits(wanted: &Value, is: &Value, exact: bool, depth: usize) -> bool {
    match (wanted, is) {
        (Value::Object(w), Value::Object(i)) => {
            (!exact || w.len() == i.len()) && has_fields(wanted, is, exact, depth)
        }
        (Value::Array(w), Value::Array(i)) => {
            (!exact || w.len() == i.len())
                && depth < DEPTH_MAX
                && w.iter().all(|w| i.iter().any(|i| fits(w, i, exact, depth + 1)))
        }
        (_, Value::Array(i)) if !exact && depth < DEPTH_MAX => {
            i.iter().any(|i| fits(wanted, i, exact, depth + 1))
        }
        (Value::String(wanted), Value::String(is)) => same_text(wanted, is),
        (wanted, is) => wanted == is,
    }
}

fn same_text(wanted: &str, is: &str) -> bool {
    let pattern = wanted.strip_prefix("r'").and_then(|rest| rest.strip_suffix('\''));
    match pattern {
        None => wanted == is,
        Some(pattern) => RegexBuilder::new(&format!("^(?:{pattern})"))
            .size_limit(PATTERN_BYTES_MAX)
            .build()
            .is_ok_and(|pattern| pattern.is_match(is)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn operators_hold_for_what_they_say_and_for_nothing_else() {
        let context = json!({
            "office": "20",
            "department": ["Technical", "Systems"],
            "bindings": {"authLevel": ["basic", "advanced"], "area": "agents"},
            "n": 3
        });
        for (rule, expected) in [
            (json!({"MATCH": {"office": "20"}}), true),
            (json!({"MATCH": {"office": "21"}}), false),
            (json!({"MATCH": {"area": "agents"}}), false),
            (json!({"FIND": {"area": "agents"}}), true),
            (json!({"FIND": {"area": "r'^age'"}}), true),
            (json!({"FIND": {"r'^ar.*'": "agents"}}), true),
            (json!({"MATCH": {"department": "Technical"}}), true),
            (json!({"MATCH$": {"department": "Technical"}}), false),
            (json!({"MATCH": {"department": ["Technical"]}}), true),
            (json!({"MATCH$": {"department": ["Technical"]}}), false),
            (json!({"MATCH$": {"department": ["Systems", "Technical"]}}), true),
            (json!({"MATCH": {"bindings": {"area": "agents"}}}), true),
            (json!({"MATCH$": {"bindings": {"area": "agents"}}}), false),
            (json!({"FIND$": {"authLevel": ["basic", "advanced"]}}), true),
            (json!({"FIND$": {"authLevel": ["basic"]}}), false),
            (json!({"MATCH": {"n": 3}}), true),
            (json!({"MATCH": {"n": "3"}}), false),
            (json!({"NOT": {"MATCH": {"office": "21"}}}), true),
            (json!({"AND": [{"MATCH": {"office": "20"}}, {"FIND": {"area": "x"}}]}), false),
            (json!({"OR": [{"MATCH": {"office": "20"}}, {"FIND": {"area": "x"}}]}), true),
            (json!({"OR": {"MATCH": {"office": "1"}, "FIND": {"area": "agents"}}}), true),
            (json!({"AND": {"MATCH": {"office": "20"}, "NOT": {"FIND": {"x": "y"}}}}), true),
            (json!({"MATCH": {"office": "r'('"}}), false),
            (json!({"ELSE": {"office": "20"}}), false),
            (json!({}), false),
            (json!([]), false),
        ] {
            assert_eq!(matches(&rule, &context), expected, "{rule}");
        }
    }

    #[test]
    fn what_is_nested_too_deeply_matches_nothing_and_costs_little() {
        let mut rule = json!({"MATCH": {"a": 1}});
        let mut context = json!({"a": 1});
        for _ in 0..200 {
            rule = json!({"AND": [rule]});
            context = json!({"b": context});
        }
        assert!(!matches(&rule, &json!({"a": 1})));
        assert!(!matches(&json!({"FIND": {"a": 1}}), &context));
    }

    #[test]
    fn only_objects_of_operators_are_rules() {
        assert!(is_rule(&json!({"AND": [{"FIND": {"a": "b"}}, {"NOT": {"MATCH$": {"a": 1}}}]})));
        for bad in [json!({}), json!("x"), json!({"FIND": 1}), json!({"AND": []}), json!({"X": {}})]
        {
            assert!(!is_rule(&bad), "{bad}");
        }
    }
}
