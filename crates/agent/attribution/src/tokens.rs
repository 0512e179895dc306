//! Tokens that are recognised by their form.
//!
//! Sources: the documentation of the services that issue them, and RFC 7519 for `eyJ`, the beginning of
//! a JSON Web Token.

/// Beginnings of tokens, with the least number of characters that follow.
const FORMS: &[(&str, usize)] = &[
    ("AKIA", 16),
    ("ASIA", 16),
    ("ghp_", 20),
    ("gho_", 20),
    ("ghu_", 20),
    ("ghs_", 20),
    ("ghr_", 20),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("xoxa-", 10),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("xoxr-", 10),
    ("xoxs-", 10),
    ("npm_", 30),
    ("pypi-", 30),
    ("hvs.", 20),
    ("AIza", 30),
    ("eyJ", 17),
];
/// Least length of a user in an address that is taken for a token.
const RANDOM_MIN: usize = 20;

/// Replaces every token of a known form.
pub(crate) fn mask(text: &str, with: &str) -> String {
    let mut masked = String::new();
    let mut rest = text;
    while let Some((at, end)) = next(rest) {
        let (before, from) = rest.split_at(at);
        masked.push_str(before);
        masked.push_str(with);
        rest = from.get(end..).unwrap_or_default();
    }
    masked + rest
}

/// Returns the place of the first token, and its length.
fn next(text: &str) -> Option<(usize, usize)> {
    let found = FORMS.iter().filter_map(|(form, least)| {
        text.match_indices(form).find_map(|(at, _)| {
            let before = text.get(..at)?.chars().next_back();
            if before.is_some_and(|c| c.is_ascii_alphanumeric()) {
                return None;
            }
            let token = text.get(at..)?;
            let length = token.find(|c| !is_of_token(c)).unwrap_or(token.len());
            (length >= form.len() + least).then_some((at, length))
        })
    });
    found.min()
}

fn is_of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

/// Returns true for a text that is long, has a digit and a letter, and no character that a token has
/// not.
pub(crate) fn looks_random(text: &str) -> bool {
    text.len() >= RANDOM_MIN
        && text.chars().all(is_of_token)
        && text.contains(|c: char| c.is_ascii_digit())
        && text.contains(|c: char| c.is_ascii_alphabetic())
}
