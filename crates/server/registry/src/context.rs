//! Rules over an authorization context: they decide the roles of a login with that context.
//!
//! A rule is an object whose operators must all be true. `AND` and `OR` take several rules (a list
//! or an object), `NOT` takes one. `MATCH` compares fields at the top of the context, `FIND` at any
//! depth; with a trailing `$` the value must be equal, without it a list only needs to contain the
//! wanted values. A text `r'...'` is a regular expression, also as the name of a field.
//!
//! Limits: [`DEPTH_MAX`], [`PATTERN_BYTES_MAX`], [`PATTERNS_MAX`]. A rule beyond them is refused
//! when it is written ([`check_rule`]). A rule that cannot be evaluated, because it is older than
//! that check or the context is nested too deeply, gives no role, even under `NOT`: the logic has
//! three values, as in SQL. A regular expression is compiled once per rule and context.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use regex::{Regex, RegexBuilder};
use serde_json::Value;

/// Deepest nesting of rules and contexts that is examined.
const DEPTH_MAX: usize = 32;
/// Largest compiled regular expression, bytes.
const PATTERN_BYTES_MAX: usize = 64 * 1024;

/// Most different regular expressions of a rule.
const PATTERNS_MAX: usize = 256;

/// Evaluates a rule for an authorization context; `None` if it cannot be evaluated.
pub(crate) fn matches(rule: &Value, context: &Value) -> Option<bool> {
    Matcher::default().holds(rule, context, 0)
}

/// Regular expressions compiled for a rule so far; `None` marks an invalid one.
#[derive(Default)]
struct Matcher(RefCell<HashMap<String, Option<Regex>>>);

/// Combines with AND: false if any part is false, else `None` if any part cannot be evaluated.
fn all(parts: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut holds = Some(true);
    for part in parts {
        match part {
            Some(false) => return Some(false),
            None => holds = None,
            Some(true) => {}
        }
    }
    holds
}

/// Combines with OR: true if any part is true, else `None` if any part cannot be evaluated.
fn any(parts: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    all(parts.map(|part| part.map(|part| !part))).map(|none| !none)
}

/// Checks that a rule can be evaluated: an object of operators with valid operands, within the
/// limits, with valid regular expressions.
///
/// # Errors
/// The problem and its location.
pub fn check_rule(rule: &Value) -> Result<(), String> {
    let mut patterns = HashSet::new();
    check_operators(rule, 0, &mut patterns)?;
    if patterns.len() > PATTERNS_MAX {
        return Err(format!("{} regular expressions: at most {PATTERNS_MAX}", patterns.len()));
    }
    Ok(())
}

fn check_operators<'a>(
    rule: &'a Value,
    depth: usize,
    patterns: &mut HashSet<&'a str>,
) -> Result<(), String> {
    check_depth(depth)?;
    let fields = rule.as_object().filter(|fields| !fields.is_empty());
    let fields = fields.ok_or("a rule is an object of operators")?;
    for (word, argument) in fields {
        match (word.as_str(), argument) {
            ("AND" | "OR", Value::Array(rules)) => {
                if rules.is_empty() {
                    return Err(format!("{word} takes at least one rule"));
                }
                rules.iter().try_for_each(|r| check_operators(r, depth + 1, patterns))?;
            }
            ("AND" | "OR" | "NOT", inner) => check_operators(inner, depth + 1, patterns)?,
            ("MATCH" | "MATCH$" | "FIND" | "FIND$", Value::Object(wanted))
                if !wanted.is_empty() =>
            {
                check_wanted(argument, 0, patterns)?;
            }
            ("MATCH" | "MATCH$" | "FIND" | "FIND$", _) => {
                return Err(format!("{word} takes an object of fields"));
            }
            _ => {
                return Err(format!(
                    "'{word:.40}' is no operator: AND, OR, NOT, MATCH, MATCH$, FIND, FIND$ are"
                ));
            }
        }
    }
    Ok(())
}

/// Checks the names and values that are compared with the context.
fn check_wanted<'a>(
    wanted: &'a Value,
    depth: usize,
    patterns: &mut HashSet<&'a str>,
) -> Result<(), String> {
    check_depth(depth)?;
    match wanted {
        Value::Object(fields) => fields.iter().try_for_each(|(name, value)| {
            check_text(name, patterns)?;
            check_wanted(value, depth + 1, patterns)
        }),
        Value::Array(items) => items.iter().try_for_each(|i| check_wanted(i, depth + 1, patterns)),
        Value::String(text) => check_text(text, patterns),
        _ => Ok(()),
    }
}

fn check_depth(depth: usize) -> Result<(), String> {
    if depth < DEPTH_MAX { Ok(()) } else { Err(format!("nested deeper than {DEPTH_MAX}")) }
}

fn check_text<'a>(text: &'a str, patterns: &mut HashSet<&'a str>) -> Result<(), String> {
    let Some(pattern) = pattern_of(text).filter(|pattern| patterns.insert(pattern)) else {
        return Ok(());
    };
    // At most one more than the limit is compiled to check a rule.
    if patterns.len() <= PATTERNS_MAX {
        compile(pattern).map_err(|e| format!("r'{pattern:.80}': {e}"))?;
    }
    Ok(())
}

/// Returns the pattern inside `r'...'`.
fn pattern_of(text: &str) -> Option<&str> {
    text.strip_prefix("r'")?.strip_suffix('\'')
}

fn compile(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(&format!("^(?:{pattern})")).size_limit(PATTERN_BYTES_MAX).build()
}

impl Matcher {
    fn holds(&self, rule: &Value, context: &Value, depth: usize) -> Option<bool> {
        let fields = rule.as_object().filter(|fields| depth < DEPTH_MAX && !fields.is_empty())?;
        all(fields.iter().map(|(word, inner)| self.operator(word, inner, context, depth)))
    }

    fn operator(
        &self,
        word: &str,
        argument: &Value,
        context: &Value,
        depth: usize,
    ) -> Option<bool> {
        match word {
            "AND" | "OR" => self.joined(word, argument, context, depth + 1),
            "NOT" => self.holds(argument, context, depth + 1).map(|holds| !holds),
            "MATCH" => self.has_fields(argument, context, false, 0),
            "MATCH$" => self.has_fields(argument, context, true, 0),
            "FIND" => self.anywhere(argument, context, false, 0),
            "FIND$" => self.anywhere(argument, context, true, 0),
            _ => None,
        }
    }

    /// Evaluates the rules in a list, or each operator of an object as a rule.
    fn joined(&self, word: &str, rules: &Value, context: &Value, depth: usize) -> Option<bool> {
        let join = |parts: &mut dyn Iterator<Item = Option<bool>>| {
            if word == "AND" { all(parts) } else { any(parts) }
        };
        match rules {
            _ if depth >= DEPTH_MAX => None,
            Value::Array(rules) => join(&mut rules.iter().map(|r| self.holds(r, context, depth))),
            Value::Object(rules) => join(
                &mut rules.iter().map(|(word, inner)| self.operator(word, inner, context, depth)),
            ),
            _ => None,
        }
    }

    fn anywhere(&self, wanted: &Value, context: &Value, exact: bool, depth: usize) -> Option<bool> {
        if depth >= DEPTH_MAX {
            return None;
        }
        let inside = |value: &Value| self.anywhere(wanted, value, exact, depth + 1);
        let here = std::iter::once_with(|| self.has_fields(wanted, context, exact, 0));
        match context {
            Value::Object(fields) => any(here.chain(fields.values().map(inside))),
            Value::Array(items) => any(here.chain(items.iter().map(inside))),
            _ => any(here),
        }
    }

    /// Returns true if an object has every wanted field with a matching value.
    fn has_fields(
        &self,
        wanted: &Value,
        context: &Value,
        exact: bool,
        depth: usize,
    ) -> Option<bool> {
        let (Value::Object(wanted), Value::Object(fields)) = (wanted, context) else {
            return Some(false);
        };
        if depth >= DEPTH_MAX {
            return None;
        }
        all(wanted.iter().map(|(name, value)| {
            any(fields.iter().map(|(own, is)| match self.same_text(name, own) {
                Some(true) => self.fits(value, is, exact, depth + 1),
                other => other,
            }))
        }))
    }

    fn fits(&self, wanted: &Value, is: &Value, exact: bool, depth: usize) -> Option<bool> {
        if depth >= DEPTH_MAX {
            return None;
        }
        match (wanted, is) {
            (Value::Object(w), Value::Object(i)) => {
                if exact && w.len() != i.len() {
                    return Some(false);
                }
                self.has_fields(wanted, is, exact, depth)
            }
            (Value::Array(w), Value::Array(i)) => {
                if exact && w.len() != i.len() {
                    return Some(false);
                }
                all(w.iter().map(|w| any(i.iter().map(|i| self.fits(w, i, exact, depth + 1)))))
            }
            (_, Value::Array(i)) if !exact => {
                any(i.iter().map(|i| self.fits(wanted, i, exact, depth + 1)))
            }
            (Value::String(wanted), Value::String(is)) => self.same_text(wanted, is),
            (wanted, is) => Some(wanted == is),
        }
    }

    fn same_text(&self, wanted: &str, is: &str) -> Option<bool> {
        let Some(pattern) = pattern_of(wanted) else { return Some(wanted == is) };
        let mut compiled = self.0.borrow_mut();
        if !compiled.contains_key(pattern) {
            if compiled.len() >= PATTERNS_MAX {
                return None;
            }
            compiled.insert(pattern.to_owned(), compile(pattern).ok());
        }
        compiled.get(pattern).and_then(Option::as_ref).map(|regex| regex.is_match(is))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use serde_json::Map;

    use super::*;

    #[test]
    fn rule_operators_match_expected_contexts() {
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
        ] {
            assert_eq!(matches(&rule, &context), Some(expected), "{rule}");
            assert_eq!(matches(&json!({"NOT": rule}), &context), Some(!expected), "NOT {rule}");
            assert_eq!(check_rule(&rule), Ok(()), "{rule}");
        }
    }

    #[test]
    fn too_deep_nesting_matches_nothing() {
        let mut rule = json!({"MATCH": {"a": 1}});
        let mut context = json!({"a": 1});
        for _ in 0..200 {
            rule = json!({"AND": [rule]});
            context = json!({"b": context});
        }
        for not in [&rule, &json!({"NOT": rule})] {
            assert_eq!(matches(not, &json!({"a": 1})), None);
            assert!(check_rule(not).unwrap_err().contains("nested"));
        }
        let find = json!({"FIND": {"a": 1}});
        for not in [&find, &json!({"NOT": find})] {
            assert_eq!(matches(not, &context), None);
        }
    }

    #[test]
    fn invalid_rule_never_matches_even_negated_and_fails_validation() {
        let context = json!({"office": "20", "inner": {"office": "20"}});
        for bad in [
            json!({"MATCH": {"office": "r'('"}}),
            json!({"FIND": {"office": "r'(?!it)'"}}),
            json!({"FIND": {"r'(?=x)'": "20"}}),
            json!({"MATCH": {"office": ["r'('"], "inner": {"office": "r'['"}}}),
            json!({"ELSE": {"office": "20"}}),
            json!({"NOT": []}),
            json!([]),
        ] {
            assert!(check_rule(&bad).is_err(), "{bad}");
            let not = json!({"NOT": bad});
            assert!(check_rule(&not).is_err(), "{not}");
            assert_ne!(matches(&bad, &context), Some(true), "{bad}");
        }
        for not in ["r'('", "r'(?!it)'", "r'[z-a]'"] {
            let rule = json!({"NOT": {"FIND": {"office": not}}});
            assert_eq!(matches(&rule, &context), None, "{rule}");
        }
        // A part that can be evaluated still determines the result.
        let (yes, bad) = (json!({"MATCH": {"office": "20"}}), json!({"FIND": {"office": "r'('"}}));
        let no = json!({"MATCH": {"office": "21"}});
        for (rule, expected) in [
            (json!({"AND": [yes, {"NOT": bad}]}), None),
            (json!({"AND": [bad, no]}), Some(false)),
            (json!({"NOT": {"AND": [bad, no]}}), Some(true)),
            (json!({"OR": [bad, yes]}), Some(true)),
            (json!({"OR": [bad, no]}), None),
            (json!({"NOT": {"OR": [no, bad]}}), None),
        ] {
            assert_eq!(matches(&rule, &context), expected, "{rule}");
        }
    }

    #[test]
    fn each_rule_pattern_is_compiled_once_per_context() {
        let fields: Map<String, Value> =
            (0..5_000).map(|n| (format!("k{n}"), json!({"area": n.to_string()}))).collect();
        let matcher = Matcher::default();
        let rule = json!({"FIND": {"r'^(x|y)+$'": "r'^never$'", "r'^ar'": "r'^4999$'"}});
        assert_eq!(matcher.holds(&rule, &Value::Object(fields.clone()), 0), Some(false));
        assert!(matcher.0.borrow().len() <= 4);
        let many: Map<String, Value> =
            (0..=PATTERNS_MAX).map(|n| (format!("r'^{n}$'"), json!("x"))).collect();
        let rules: Vec<Value> =
            many.into_iter().map(|(name, value)| json!({"FIND": {name: value}})).collect();
        let matcher = Matcher::default();
        let rule = json!({"OR": rules});
        assert!(check_rule(&rule).unwrap_err().contains("regular expressions"));
        assert_eq!(matcher.holds(&rule, &Value::Object(fields), 0), None);
        assert_eq!(matcher.0.borrow().len(), PATTERNS_MAX, "what is compiled is bounded");
    }

    #[test]
    fn only_objects_of_operators_are_rules() {
        let rule = json!({"AND": [{"FIND": {"a": "b"}}, {"NOT": {"MATCH$": {"a": 1}}}]});
        assert_eq!(check_rule(&rule), Ok(()));
        for bad in [json!({}), json!("x"), json!({"FIND": 1}), json!({"AND": []}), json!({"X": {}})]
        {
            assert!(check_rule(&bad).is_err(), "{bad}");
        }
    }
}
