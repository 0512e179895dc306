//! The filter language `q`: `status=active;(name~web,name~db)`.
//!
//! `expression = all ("," all)*`, `all = term (";" term)*`, `term = "(" expression ")" | field operator
//! value`: `;` (and) binds more tightly than `,` (or). Operators: `=`, `!=`, `<`, `>` and `~`
//! (contains), all case-insensitive. A value extends to the next `;`, `,` or `)` outside parentheses
//! of its own, or is enclosed in single or double quotes. Codes: 1407 syntax error (also for a trailing separator), 1408 unknown
//! field, 1409 unknown operator.
//!
//! Limits: `DEPTH_MAX`, `TERMS_MAX`. Fields come from a fixed list; values are passed on as bound
//! values.

use crate::code::Code;
use crate::error::Failure;
use crate::http::parameters::timeframe;

/// Deepest nesting of parentheses.
const DEPTH_MAX: usize = 16;
const TERMS_MAX: usize = 100;

/// A comparison operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Equal,
    NotEqual,
    Less,
    Greater,
    Contains,
}

/// A parsed expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Query<C> {
    All(Vec<Query<C>>),
    Any(Vec<Query<C>>),
    Compare { column: C, op: Op, value: String },
}

/// Parses an expression over the listed fields.
pub fn parse<C: Copy>(text: &str, columns: &[(&'static str, C)]) -> Result<Query<C>, Failure> {
    let mut parser = Parser { text, at: 0, terms: 0, columns };
    let query = parser.expression(0)?;
    match parser.peek() {
        None => Ok(query),
        Some(_) => Err(parser.wrong("nothing opens this parenthesis")),
    }
}

struct Parser<'a, C> {
    text: &'a str,
    /// Byte offset of the next character.
    at: usize,
    terms: usize,
    columns: &'a [(&'static str, C)],
}

impl<C: Copy> Parser<'_, C> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn consume(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> String {
        let end = self.rest().find(|c| !wanted(c)).unwrap_or(self.rest().len());
        let taken = self.rest().get(..end).unwrap_or_default().to_owned();
        self.at += end;
        taken
    }

    fn wrong(&self, what: &str) -> Failure {
        let near: String = self.rest().chars().take(20).collect();
        Failure::detailed(Code::QueryInvalid, format!("q is not understood: {what}, at '{near}'"))
    }

    fn expression(&mut self, depth: usize) -> Result<Query<C>, Failure> {
        if depth > DEPTH_MAX {
            return Err(self.wrong("too deeply nested"));
        }
        let mut any = vec![self.all(depth)?];
        while self.consume(',') {
            any.push(self.all(depth)?);
        }
        Ok(one_or(any, Query::Any))
    }

    fn all(&mut self, depth: usize) -> Result<Query<C>, Failure> {
        let mut all = vec![self.term(depth)?];
        while self.consume(';') {
            all.push(self.term(depth)?);
        }
        Ok(one_or(all, Query::All))
    }

    fn term(&mut self, depth: usize) -> Result<Query<C>, Failure> {
        if self.consume('(') {
            let inner = self.expression(depth + 1)?;
            return if self.consume(')') { Ok(inner) } else { Err(self.wrong("a ) is missing")) };
        }
        self.terms += 1;
        if self.terms > TERMS_MAX {
            return Err(self.wrong("too many conditions"));
        }
        let column = self.column()?;
        let op = self.operator()?;
        let value = self.value()?;
        Ok(Query::Compare { column, op, value })
    }

    fn column(&mut self) -> Result<C, Failure> {
        let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        if name.is_empty() {
            return Err(self.wrong("a field is missing"));
        }
        if let Some((_, column)) = self.columns.iter().find(|(known, _)| *known == name) {
            return Ok(*column);
        }
        let known: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        let detail = format!("q: no such field: '{name}': allowed are {}", known.join(", "));
        Err(Failure::detailed(Code::QueryFieldInvalid, detail))
    }

    fn operator(&mut self) -> Result<Op, Failure> {
        let text = self.take_while(|c| "=!<>~".contains(c));
        match text.as_str() {
            "=" => Ok(Op::Equal),
            "!=" => Ok(Op::NotEqual),
            "<" => Ok(Op::Less),
            ">" => Ok(Op::Greater),
            "~" => Ok(Op::Contains),
            "" => Err(self.wrong("an operator is missing")),
            other => Err(Failure::detailed(
                Code::QueryOperatorInvalid,
                format!("q: no such operator: '{other}'"),
            )),
        }
    }

    fn value(&mut self) -> Result<String, Failure> {
        for quote in ['"', '\''] {
            if !self.consume(quote) {
                continue;
            }
            let value = self.take_while(|c| c != quote);
            return if self.consume(quote) {
                Ok(value)
            } else {
                Err(self.wrong("a quote is open"))
            };
        }
        let mut open = 0_usize;
        let end = self.rest().find(|c| {
            match c {
                '(' => open += 1,
                ')' if open > 0 => open -= 1,
                _ => return open == 0 && ";,)".contains(c),
            }
            false
        });
        let value = self.rest().get(..end.unwrap_or(self.rest().len())).unwrap_or_default();
        let value = value.to_owned();
        self.at += value.len();
        match (value.is_empty(), open) {
            (true, _) => Err(self.wrong("a value is missing")),
            (_, 1..) => Err(self.wrong("a ) is missing")),
            _ => Ok(value),
        }
    }
}

fn one_or<C>(mut list: Vec<Query<C>>, join: fn(Vec<Query<C>>) -> Query<C>) -> Query<C> {
    match list.pop() {
        Some(only) if list.is_empty() => only,
        Some(last) => {
            list.push(last);
            join(list)
        }
        None => join(list),
    }
}

/// Parses an instant and returns it with the operator to use, in microseconds since the epoch. An age
/// (`1d`) becomes the instant that long ago with the operator reversed, because older means earlier; a
/// date is `2026-11-21`, optionally followed by a space or `T` and `18:52:02`.
pub fn instant(op: Op, value: &str, now_us: u64) -> Result<(Op, u64), Failure> {
    if let Some(seconds) = timeframe(value) {
        let op = match op {
            Op::Less => Op::Greater,
            Op::Greater => Op::Less,
            other => other,
        };
        return Ok((op, now_us.saturating_sub(seconds.saturating_mul(1_000_000))));
    }
    let mut text = value.replacen(' ', "T", 1);
    if !text.contains('T') {
        text.push_str("T00:00:00");
    }
    let bare = !text.ends_with('Z') && !text.contains('+');
    let text = if bare { format!("{text}Z") } else { text };
    match model::timestamp::parse_micros(&text) {
        Some(micros) => Ok((op, micros)),
        None => {
            Err(Failure::detailed(Code::DateInvalid, format!("q: not a date or an age: '{value}'")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [(&str, u8); 3] = [("name", 1), ("os.name", 2), ("id", 3)];

    /// Returns the tree as text: `&[..]`, `|[..]`, `column op value`.
    fn show(query: &Query<u8>) -> String {
        let list = |q: &[Query<u8>]| q.iter().map(show).collect::<Vec<_>>().join(" ");
        match query {
            Query::All(q) => format!("&[{}]", list(q)),
            Query::Any(q) => format!("|[{}]", list(q)),
            Query::Compare { column, op, value } => format!("{column}{op:?}:{value}"),
        }
    }

    #[test]
    fn and_binds_more_tightly_than_or_except_in_parentheses() {
        for (text, tree) in [
            ("name=a", "1Equal:a"),
            ("name=a;id>1,id<9", "|[&[1Equal:a 3Greater:1] 3Less:9]"),
            ("name=a;(id>1,id<9)", "&[1Equal:a |[3Greater:1 3Less:9]]"),
            ("((name!=a))", "1NotEqual:a"),
            ("os.name~Debian GNU/Linux", "2Contains:Debian GNU/Linux"),
            ("name=\"a;b,(c)\"", "1Equal:a;b,(c)"),
            ("name='it\"s'", "1Equal:it\"s"),
            ("name=' OR 1=1 --'", "1Equal: OR 1=1 --"),
            ("name=x=y", "1Equal:x=y"),
            ("(name~a (b;c);id=3)", "&[1Contains:a (b;c) 3Equal:3]"),
        ] {
            assert_eq!(show(&parse(text, &COLUMNS).unwrap()), tree, "{text}");
        }
    }

    #[test]
    fn unparsable_query_is_refused_with_its_code() {
        let deep = format!("{}name=a{}", "(".repeat(17), ")".repeat(17));
        let long = vec!["name=a"; 101].join(";");
        for (text, code) in [
            ("", Code::QueryInvalid),
            ("name", Code::QueryInvalid),
            ("name=", Code::QueryInvalid),
            ("=a", Code::QueryInvalid),
            ("name=a;", Code::QueryInvalid),
            ("name=a,", Code::QueryInvalid),
            (";name=a", Code::QueryInvalid),
            ("name=a;;id=1", Code::QueryInvalid),
            ("(name=a", Code::QueryInvalid),
            ("name=a)", Code::QueryInvalid),
            ("()", Code::QueryInvalid),
            ("name=\"a", Code::QueryInvalid),
            ("name=\"a\"b", Code::QueryInvalid),
            ("name=a(id=1", Code::QueryInvalid),
            (&deep, Code::QueryInvalid),
            (&long, Code::QueryInvalid),
            ("password=a", Code::QueryFieldInvalid),
            ("1=1", Code::QueryFieldInvalid),
            ("name==a", Code::QueryOperatorInvalid),
            ("name<>a", Code::QueryOperatorInvalid),
            ("name=~a", Code::QueryOperatorInvalid),
        ] {
            assert_eq!(parse(text, &COLUMNS).unwrap_err().code, Some(code), "{text}");
        }
    }

    #[test]
    fn relative_age_reverses_the_comparison() {
        let now = 1_795_287_122_000_000;
        assert_eq!(instant(Op::Less, "1d", now).unwrap(), (Op::Greater, now - 86_400_000_000));
        assert_eq!(instant(Op::Equal, "5s", now).unwrap(), (Op::Equal, now - 5_000_000));
        for text in ["2026-11-21T18:52:02Z", "2026-11-21 18:52:02", "2026-11-21T18:52:02+00:00"] {
            assert_eq!(instant(Op::Less, text, 0).unwrap(), (Op::Less, now), "{text}");
        }
        assert_eq!(instant(Op::Less, "1970-01-02", 0).unwrap(), (Op::Less, 86_400_000_000));
        for bad in ["soon", "", "2026-13-01", "' OR 1=1"] {
            assert_eq!(
                instant(Op::Less, bad, now).unwrap_err().code,
                Some(Code::DateInvalid),
                "{bad}"
            );
        }
    }
}
