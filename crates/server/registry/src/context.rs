//! Rules over an authorization context: which login with a context gets which roles.
//!
//! A rule is an object whose operators must all hold. `AND` and `OR` take rules (a list, or an
//! object of them), `NOT` one. `MATCH` compares fields at the top of the context, `FIND` at any
//! depth; with `$` behind it the value must be the same, without it a list need only hold what is
//! asked for. A text `r'...'` is a regular expression, for names of fields too.
//!
//! Limits: [`DEPTH_MAX`], [`PATTERN_BYTES_MAX`], [`PATTERNS_MAX`]; what is beyond them matches
//! nothing. A regular expression is compiled once for a rule and a context.

use std::cell::RefCell;
use std::collections::HashMap;

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

/// Deepest nesting of rules and contexts that is looked at.
const DEPTH_MAX: usize = 32;
/// Largest compiled regular expression, bytes.
const PATTERN_BYTES_MAX: usize = 64 * 1024;

/// Most different regular expressions of a rule.
const PATTERNS_MAX: usize = 256;

/// The words that a rule is made of.
const OPERATORS: [&str; 7] = ["AND", "OR", "NOT", "MATCH", "MATCH$", "FIND", "FIND$"];

/// Whether a rule holds for an authorization context.
pub(crate) fn matches(rule: &Value, context: &Value) -> bool {
    Matcher::default().holds(rule, context, 0)
}

/// What was compiled for a rule so far; `None` is no regular expression.
#[derive(Default)]
struct Matcher(RefCell<HashMap<String, Option<Regex>>>);

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

impl Matcher {
    fn holds(&self, rule: &Value, context: &Value, depth: usize) -> bool {
        let Some(fields) = rule.as_object().filter(|_| depth < DEPTH_MAX) else { return false };
        let parts = |argument: &Value| -> Vec<bool> {
            match argument {
                Value::Array(rules) => {
                    rules.iter().map(|r| self.holds(r, context, depth + 1)).collect()
                }
                Value::Object(rules) => rules
                    .iter()
                    .map(|(word, inner)| self.operator(word, inner, context, depth + 1))
                    .collect(),
                _ => vec![false],
            }
        };
        !fields.is_empty()
            && fields.iter().all(|(word, argument)| match word.as_str() {
                "AND" => parts(argument).into_iter().all(|part| part),
                "OR" => parts(argument).into_iter().any(|part| part),
                _ => self.operator(word, argument, context, depth),
            })
    }

    fn operator(&self, word: &str, argument: &Value, context: &Value, depth: usize) -> bool {
        match word {
            "AND" | "OR" => {
                let mut one = Map::new();
                one.insert(word.to_owned(), argument.clone());
                self.holds(&Value::Object(one), context, depth)
            }
            "NOT" => argument.is_object() && !self.holds(argument, context, depth + 1),
            "MATCH" => self.has_fields(argument, context, false, 0),
            "MATCH$" => self.has_fields(argument, context, true, 0),
            "FIND" => self.anywhere(argument, context, false, 0),
            "FIND$" => self.anywhere(argument, context, true, 0),
            _ => false,
        }
    }

    fn anywhere(&self, wanted: &Value, context: &Value, exact: bool, depth: usize) -> bool {
        if depth >= DEPTH_MAX {
            return false;
        }
        let inside = |value: &Value| self.anywhere(wanted, value, exact, depth + 1);
        self.has_fields(wanted, context, exact, 0)
            || match context {
                Value::Object(fields) => fields.values().any(inside),
                Value::Array(items) => items.iter().any(inside),
                _ => false,
            }
    }

    /// Whether an object has every wanted field with a value that fits.
    fn has_fields(&self, wanted: &Value, context: &Value, exact: bool, depth: usize) -> bool {
        let (Value::Object(wanted), Value::Object(fields)) = (wanted, context) else {
            return false;
        };
        depth < DEPTH_MAX
            && wanted.iter().all(|(name, value)| {
                fields.iter().any(|(own, is)| {
                    self.same_text(name, own) && self.fits(value, is, exact, depth + 1)
                })
            })
    }

    fn fits(&self, wanted: &Value, is: &Value, exact: bool, depth: usize) -> bool {
        match (wanted, is) {
            (Value::Object(w), Value::Object(i)) => {
                (!exact || w.len() == i.len()) && self.has_fields(wanted, is, exact, depth)
            }
            (Value::Array(w), Value::Array(i)) => {
                (!exact || w.len() == i.len())
                    && depth < DEPTH_MAX
                    && w.iter().all(|w| i.iter().any(|i| self.fits(w, i, exact, depth + 1)))
            }
            (_, Value::Array(i)) if !exact && depth < DEPTH_MAX => {
                i.iter().any(|i| self.fits(wanted, i, exact, depth + 1))
            }
            (Value::String(wanted), Value::String(is)) => self.same_text(wanted, is),
            (wanted, is) => wanted == is,
        }
    }

    fn same_text(&self, wanted: &str, is: &str) -> bool {
        let pattern = wanted.strip_prefix("r'").and_then(|rest| rest.strip_suffix('\''));
        let Some(pattern) = pattern else { return wanted == is };
        let mut compiled = self.0.borrow_mut();
        if !compiled.contains_key(pattern) {
            if compiled.len() >= PATTERNS_MAX {
                return false;
            }
            let regex =
                RegexBuilder::new(&format!("^(?:{pattern})")).size_limit(PATTERN_BYTES_MAX).build();
            compiled.insert(pattern.to_owned(), regex.ok());
        }
        compiled.get(pattern).and_then(Option::as_ref).is_some_and(|regex| regex.is_match(is))
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
    fn a_pattern_is_compiled_once_whatever_the_size_of_the_context() {
        let fields: Map<String, Value> =
            (0..5_000).map(|n| (format!("k{n}"), json!({"area": n.to_string()}))).collect();
        let matcher = Matcher::default();
        let rule = json!({"FIND": {"r'^(x|y)+$'": "r'^never$'", "r'^ar'": "r'^4999$'"}});
        assert!(!matcher.holds(&rule, &Value::Object(fields.clone()), 0));
        assert!(matcher.0.borrow().len() <= 4);
        let many: Map<String, Value> =
            (0..=PATTERNS_MAX).map(|n| (format!("r'^{n}$'"), json!("x"))).collect();
        let rules: Vec<Value> =
            many.into_iter().map(|(name, value)| json!({"FIND": {name: value}})).collect();
        let matcher = Matcher::default();
        assert!(!matcher.holds(&json!({"OR": rules}), &Value::Object(fields), 0));
        assert_eq!(matcher.0.borrow().len(), PATTERNS_MAX, "what is compiled is bounded");
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
