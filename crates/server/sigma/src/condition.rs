//! The condition of a detection: `selection and not (filter or 1 of other_*)`. Keywords are
//! case-insensitive. `not` binds closest, then `and`, then `or`, as in the Sigma specification.
//! Aggregations after `|` were removed from that specification and are refused.

use crate::error::RuleError;
use crate::limits::{CONDITION_BYTES_MAX, CONDITION_DEPTH_MAX};

/// Checks that a condition can be parsed and names only existing selections.
///
/// # Errors
/// `Condition`, `NoSuchSelection`.
pub(crate) fn check(text: &str, selections: &[&str]) -> Result<(), RuleError> {
    if text.len() > CONDITION_BYTES_MAX {
        return Err(wrong(format!("longer than {CONDITION_BYTES_MAX} bytes")));
    }
    let words = words(text)?;
    if words.is_empty() {
        return Err(wrong("it is empty: name a selection"));
    }
    let mut reader = Reader { words: &words, at: 0, selections };
    reader.either(0)?;
    match reader.peek() {
        None => Ok(()),
        Some(word) => Err(wrong(format!("{word:?} stands where and, or, or the end should be"))),
    }
}

fn wrong(why: impl Into<String>) -> RuleError {
    RuleError::Condition(why.into())
}

/// Splits a condition into words; each parenthesis is a word.
fn words(text: &str) -> Result<Vec<&str>, RuleError> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '*' | '-' | '.');
        let end = match first {
            '(' | ')' => 1,
            '|' => {
                return Err(wrong(
                    "an aggregation behind | is not supported: write a rule without",
                ));
            }
            c if fits(c) => rest.find(|c| !fits(c)).unwrap_or(rest.len()),
            c => return Err(wrong(format!("{c:?} belongs to no condition"))),
        };
        let (word, behind) = rest.split_at(end);
        words.push(word);
        rest = behind.trim_start();
    }
    Ok(words)
}

struct Reader<'a> {
    words: &'a [&'a str],
    at: usize,
    selections: &'a [&'a str],
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    fn next(&mut self) -> Option<&'a str> {
        let word = self.peek();
        self.at += usize::from(word.is_some());
        word
    }

    fn take_word(&mut self, wanted: &str) -> bool {
        let fits = self.peek().is_some_and(|word| word.eq_ignore_ascii_case(wanted));
        self.at += usize::from(fits);
        fits
    }

    fn either(&mut self, depth: usize) -> Result<(), RuleError> {
        if depth > CONDITION_DEPTH_MAX {
            return Err(wrong(format!("nested deeper than {CONDITION_DEPTH_MAX} levels")));
        }
        self.both(depth)?;
        while self.take_word("or") {
            self.both(depth)?;
        }
        Ok(())
    }

    fn both(&mut self, depth: usize) -> Result<(), RuleError> {
        self.one(depth)?;
        while self.take_word("and") {
            self.one(depth)?;
        }
        Ok(())
    }

    fn one(&mut self, depth: usize) -> Result<(), RuleError> {
        while self.take_word("not") {}
        if self.take_word("(") {
            self.either(depth + 1)?;
            return if self.take_word(")") { Ok(()) } else { Err(wrong("a ( is not closed")) };
        }
        let Some(word) = self.next() else {
            return Err(wrong("it ends where a selection should stand"));
        };
        let counts = word.eq_ignore_ascii_case("all") || word.parse::<u32>().is_ok();
        if counts && self.take_word("of") {
            return self.some_of(word);
        }
        if matches!(word, ")" | "and" | "or" | "of" | "them") {
            return Err(wrong(format!("{word:?} stands where a selection should be")));
        }
        self.check_selection_exists(word)
    }

    /// Parses what follows `1 of` or `all of`.
    fn some_of(&mut self, count: &str) -> Result<(), RuleError> {
        if count == "0" {
            return Err(wrong("0 of anything always holds: write not 1 of"));
        }
        match self.next() {
            None => Err(wrong(format!("{count} of what? Name selections, or them"))),
            Some(word) if word.eq_ignore_ascii_case("them") => Ok(()),
            Some(pattern) => self.check_selection_exists(pattern),
        }
    }

    /// Checks that a selection exists or that at least one matches the pattern.
    fn check_selection_exists(&self, name: &str) -> Result<(), RuleError> {
        if self.selections.iter().any(|own| fits(name, own)) {
            Ok(())
        } else {
            Err(RuleError::NoSuchSelection(name.to_owned()))
        }
    }
}

/// Returns true if a name matches a pattern; `*` matches any text.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match name.find(part) {
            Some(at) => name = name.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    name.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["selection", "filter_a", "filter_b", "other-1.x"];

    #[test]
    fn valid_conditions_of_every_form_parse() {
        for text in [
            "selection",
            "selection and not filter_a",
            "NOT selection OR filter_b AND other-1.x",
            "selection and not (filter_a or filter_b)",
            "1 of filter_*",
            "all of them and not 2 of filter*",
            "selection and 1 of *_b",
            "not not ((selection))",
        ] {
            assert_eq!(check(text, &NAMES), Ok(()), "{text}");
        }
    }

    #[test]
    fn invalid_condition_is_rejected_with_its_reason() {
        for (text, part) in [
            ("", "empty"),
            ("  ", "empty"),
            ("selection and", "ends where"),
            ("and selection", "\"and\" stands where"),
            ("selection filter_a", "\"filter_a\" stands where"),
            ("(selection", "not closed"),
            ("selection)", "\")\" stands where"),
            ("()", "\")\" stands where"),
            ("1 of", "1 of what"),
            ("0 of them", "always holds"),
            ("selection | count() > 5", "aggregation"),
            ("selection & filter_a", "'&' belongs"),
            ("nobody", "names \"nobody\""),
            ("1 of other_*", "names \"other_*\""),
            ("all", "names \"all\""),
        ] {
            let error = check(text, &NAMES).unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn too_deep_or_too_long_condition_is_refused() {
        let deep = format!("{}selection{}", "(".repeat(1_000), ")".repeat(1_000));
        assert!(check(&deep, &NAMES).unwrap_err().to_string().contains("deeper"));
        assert!(check(&"not ".repeat(1_100), &NAMES).unwrap_err().to_string().contains("longer"));
    }

    #[test]
    fn selection_pattern_matches_whole_names() {
        assert!(fits("*", "") && fits("a*", "a") && fits("a*c", "abc") && fits("*b*", "abc"));
        assert!(!fits("a", "ab") && !fits("a*a", "a") && !fits("*x*", "abc") && !fits("b*", "abc"));
    }
}
