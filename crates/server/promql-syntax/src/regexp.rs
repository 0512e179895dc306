//! Regular expressions with the syntax of Go, which matches a whole value: anchored at both ends, `.`
//! matches a newline, and `\d`, `\w`, `\s` and `\b` are ASCII.

use std::fmt::Write as _;
use std::iter::Peekable;
use std::str::Chars;

/// Most bytes of a compiled expression.
const SIZE_MAX: usize = 1 << 20;
/// Highest number in `{n,m}`, as in Go.
const REPEAT_MAX: u32 = 1000;
/// Most characters of `n,m`.
const REPEAT_CHARS_MAX: usize = 16;

/// A compiled regular expression.
#[derive(Debug, Clone)]
pub struct Regexp {
    text: String,
    compiled: regex::Regex,
}

impl PartialEq for Regexp {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Regexp {
    /// Compiles an expression.
    ///
    /// # Errors
    /// Returns the text of the error.
    pub fn new(text: &str) -> Result<Self, String> {
        let failed = |why: &str| format!("error parsing regexp: {why}: `{text}`");
        let translated = translate(text).map_err(failed)?;
        let compiled = regex::RegexBuilder::new(&format!("^(?s:{translated})$"))
            .size_limit(SIZE_MAX)
            .build()
            .map_err(|error| failed(last_line(&error.to_string())))?;
        Ok(Self { text: text.to_owned(), compiled })
    }

    /// Returns a template with the groups of the value in it (`$1`, `${name}`); `None` if the whole
    /// value does not match.
    pub fn expand(&self, value: &str, template: &str) -> Option<String> {
        let mut out = String::new();
        self.compiled.captures(value)?.expand(template, &mut out);
        Some(out)
    }

    /// Returns true if the whole value matches.
    pub fn is_match(&self, value: &str) -> bool {
        self.compiled.is_match(value)
    }
}

/// Returns the reason in the error of the `regex` crate, which draws the place above it.
fn last_line(error: &str) -> &str {
    let line = error.lines().last().unwrap_or_default();
    line.trim_start_matches("error: ")
}

/// Returns the expression in the syntax of the `regex` crate.
fn translate(text: &str) -> Result<String, &'static str> {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text.chars().peekable();
    let mut open = 0_usize;
    while let Some(c) = rest.next() {
        match c {
            '(' => {
                open += 1;
                check_flags(&rest)?;
                out.push('(');
            }
            // The anchors stand around all alternatives: no group of the text may end theirs.
            ')' => {
                open = open.checked_sub(1).ok_or("unexpected )")?;
                out.push(')');
            }
            '\\' => escape(&mut rest, &mut out, false)?,
            '[' => class(&mut rest, &mut out)?,
            '{' => match repetition(&rest)? {
                Some(length) => {
                    out.push('{');
                    out.extend(rest.by_ref().take(length));
                }
                None => out.push_str("\\{"),
            },
            '}' => out.push_str("\\}"),
            c => out.push(c),
        }
    }
    Ok(out)
}

/// Refuses the flags of a group that Go does not have.
fn check_flags(rest: &Peekable<Chars<'_>>) -> Result<(), &'static str> {
    let mut flags = rest.clone();
    let opens = flags.next() == Some('?');
    let unknown =
        flags.take_while(|c| c.is_ascii_alphabetic() || *c == '-').any(|c| "xuR".contains(c));
    if opens && unknown { Err("invalid or unsupported Perl syntax") } else { Ok(()) }
}

/// Returns the number of characters of `n}`, `n,}` or `n,m}` after a `{`; `None` if it is a literal
/// `{`.
fn repetition(rest: &Peekable<Chars<'_>>) -> Result<Option<usize>, &'static str> {
    let is_part = |c: &char| c.is_ascii_digit() || *c == ',';
    let text: String = rest.clone().take(REPEAT_CHARS_MAX).take_while(is_part).collect();
    if rest.clone().nth(text.len()) != Some('}') {
        return Ok(None);
    }
    let (least, most) = text.split_once(',').map_or((&*text, ""), |(least, most)| (least, most));
    if least.is_empty() || most.contains(',') {
        return Ok(None);
    }
    let is_large = |number: &str| number.parse::<u32>().is_ok_and(|number| number > REPEAT_MAX);
    if is_large(least) || is_large(most) {
        return Err("invalid repeat count");
    }
    Ok(Some(text.len() + 1))
}

/// Translates an escape after its backslash.
fn escape(
    rest: &mut Peekable<Chars<'_>>,
    out: &mut String,
    in_class: bool,
) -> Result<(), &'static str> {
    let c = rest.next().ok_or("trailing backslash at end of expression")?;
    let ascii = match c {
        'd' => Some("[0-9]"),
        'D' => Some("[^0-9]"),
        'w' => Some("[0-9A-Za-z_]"),
        'W' => Some("[^0-9A-Za-z_]"),
        's' => Some("[\\t\\n\\f\\r ]"),
        'S' => Some("[^\\t\\n\\f\\r ]"),
        'b' if !in_class => Some("(?-u:\\b)"),
        'B' if !in_class => Some("(?-u:\\B)"),
        _ => None,
    };
    if let Some(ascii) = ascii {
        out.push_str(ascii);
        return Ok(());
    }
    match c {
        'Q' if !in_class => {
            let mut quoted = String::new();
            while let Some(c) = rest.next() {
                if c == '\\' && rest.next_if_eq(&'E').is_some() {
                    break;
                }
                quoted.push(c);
            }
            out.push_str(&regex::escape(&quoted));
        }
        // An octal number: `\0`, `\012`, or at least two digits.
        '0'..='7' => {
            let digits: String =
                rest.clone().take(2).take_while(|c| ('0'..='7').contains(c)).collect();
            if c != '0' && digits.is_empty() {
                return Err("invalid escape sequence");
            }
            rest.by_ref().take(digits.len()).for_each(drop);
            let code = u32::from_str_radix(&format!("{c}{digits}"), 8).unwrap_or_default();
            let _ = write!(out, "\\x{{{code:x}}}");
        }
        c if c.is_ascii_alphanumeric() && !"AzaftnrvxpPBb".contains(c) => {
            return Err("invalid escape sequence");
        }
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => {
            out.push_str(&regex::escape(&c.to_string()));
        }
        c if !c.is_ascii() => return Err("invalid escape sequence"),
        c => {
            out.push('\\');
            out.push(c);
            // The code of a character or the name of a class: `\x{e9}`, `\p{Greek}`.
            if "xpP".contains(c) && rest.peek() == Some(&'{') {
                copy_through(rest, out, '}');
            }
        }
    }
    Ok(())
}

/// Copies the characters up to `last` and `last` itself.
fn copy_through(rest: &mut Peekable<Chars<'_>>, out: &mut String, last: char) {
    for c in rest.by_ref() {
        out.push(c);
        if c == last {
            return;
        }
    }
}

/// Translates a class after its `[`. Go has no operators between classes.
fn class(rest: &mut Peekable<Chars<'_>>, out: &mut String) -> Result<(), &'static str> {
    out.push('[');
    if rest.next_if_eq(&'^').is_some() {
        out.push('^');
    }
    let mut first = true;
    loop {
        let c = rest.next().ok_or("missing closing ]")?;
        match c {
            ']' if !first => break,
            '\\' => escape(rest, out, true)?,
            '[' if rest.peek() == Some(&':') => {
                // The name of an ASCII class, which both have: `[:alpha:]`.
                out.push('[');
                copy_through(rest, out, ']');
            }
            '[' | ']' | '&' | '~' => {
                out.push('\\');
                out.push(c);
            }
            // `--` is a range from `-` in Go, and a difference in the other syntax.
            '-' if rest.peek() == Some(&'-') || first => out.push_str("\\-"),
            c => out.push(c),
        }
        first = false;
    }
    out.push(']');
    Ok(())
}
