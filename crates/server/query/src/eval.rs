//! Arithmetic over the columns of a row: `x / y * 100`.
//!
//! An expression consists of numbers, names of columns, `+ - * / ^`, brackets and the functions of
//! [`FUNCTIONS`]. If a row lacks one of the columns, it has no result.

/// Most nodes of one expression.
const NODES_MAX: usize = 1000;
/// Deepest brackets of one expression.
const DEPTH_MAX: usize = 64;

/// A function of one value, and its name.
type Named = (&'static str, fn(f64) -> f64);

/// Functions of one value, by name.
const FUNCTIONS: &[Named] = &[
    ("abs", f64::abs),
    ("ceil", f64::ceil),
    ("cos", f64::cos),
    ("exp", f64::exp),
    ("floor", f64::floor),
    ("ln", f64::ln),
    ("log10", f64::log10),
    ("log2", f64::log2),
    ("round", f64::round),
    ("sin", f64::sin),
    ("sqrt", f64::sqrt),
    ("tan", f64::tan),
];

/// A step of a calculation on a stack.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    Number(f64),
    Column(String),
    /// Index in [`FUNCTIONS`].
    Call(usize),
    Negate,
    Of(char),
}

/// A checked expression, in the order of evaluation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Expression(Vec<Step>);

struct Parser<'a> {
    rest: &'a str,
    steps: Vec<Step>,
    depth: usize,
}

impl Expression {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { rest: text, steps: Vec::new(), depth: 0 };
        parser.sum()?;
        parser.skip();
        if !parser.rest.is_empty() {
            return Err(format!("Expression cannot be read at: {}", parser.rest));
        }
        Ok(Self(parser.steps))
    }

    /// Returns the names of the columns in the expression.
    pub(super) fn columns(&self) -> Vec<&str> {
        let steps = self.0.iter();
        steps
            .filter_map(|step| match step {
                Step::Column(name) => Some(name.as_str()),
                _ => None,
            })
            .collect()
    }

    /// Returns the value of the expression, or `None` if a column is missing. `column` returns the
    /// value of a column by name.
    pub(super) fn value(&self, column: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        let mut stack: Vec<f64> = Vec::new();
        for step in &self.0 {
            let value = match step {
                Step::Number(n) => *n,
                Step::Column(name) => column(name)?,
                Step::Call(which) => FUNCTIONS.get(*which).map(|(_, f)| f)?(stack.pop()?),
                Step::Negate => -stack.pop()?,
                Step::Of(operator) => {
                    let (b, a) = (stack.pop()?, stack.pop()?);
                    match operator {
                        '+' => a + b,
                        '-' => a - b,
                        '*' => a * b,
                        '/' => a / b,
                        _ => a.powf(b),
                    }
                }
            };
            stack.push(value);
        }
        stack.pop()
    }
}

impl Parser<'_> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take_char(&mut self, any: &[char]) -> Option<char> {
        self.skip();
        let found = self.rest.chars().next().filter(|c| any.contains(c))?;
        self.rest = self.rest.get(found.len_utf8()..)?;
        Some(found)
    }

    fn push(&mut self, step: Step) -> Result<(), String> {
        self.steps.push(step);
        let fits = self.steps.len() <= NODES_MAX;
        if fits { Ok(()) } else { Err(format!("Expression has more than {NODES_MAX} parts")) }
    }

    fn sum(&mut self) -> Result<(), String> {
        self.product()?;
        while let Some(operator) = self.take_char(&['+', '-']) {
            self.product()?;
            self.push(Step::Of(operator))?;
        }
        Ok(())
    }

    fn product(&mut self) -> Result<(), String> {
        self.sign()?;
        while let Some(operator) = self.take_char(&['*', '/']) {
            self.sign()?;
            self.push(Step::Of(operator))?;
        }
        Ok(())
    }

    fn sign(&mut self) -> Result<(), String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("Expression is nested more than {DEPTH_MAX} deep"));
        }
        match self.take_char(&['-', '+']) {
            Some('-') => {
                self.sign()?;
                self.push(Step::Negate)?;
            }
            Some(_) => self.sign()?,
            None => {
                self.term()?;
                if self.take_char(&['^']).is_some() {
                    self.sign()?;
                    self.push(Step::Of('^'))?;
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn brackets(&mut self) -> Result<(), String> {
        self.sum()?;
        self.take_char(&[')']).map(|_| ()).ok_or_else(|| "Expression lacks a )".to_owned())
    }

    fn term(&mut self) -> Result<(), String> {
        if self.take_char(&['(']).is_some() {
            return self.brackets();
        }
        let digits = self.number_bytes();
        if let Some((number, rest)) =
            self.rest.split_at_checked(digits).filter(|(n, _)| !n.is_empty())
        {
            let value =
                number.parse().map_err(|_| format!("Expression has no number: {number}"))?;
            self.rest = rest;
            return self.push(Step::Number(value));
        }
        let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | ':');
        let end = self.rest.find(|c| !part(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        if name.is_empty() {
            return Err(format!("Expression cannot be read at: {}", self.rest));
        }
        self.rest = rest;
        if self.take_char(&['(']).is_none() {
            return self.push(Step::Column(name.to_owned()));
        }
        let which = FUNCTIONS.iter().position(|(known, _)| *known == name);
        let which = which.ok_or_else(|| format!("Expression has an unknown function: {name}"))?;
        self.brackets()?;
        self.push(Step::Call(which))
    }

    /// Returns the length of the number at the current position, 0 if there is none.
    fn number_bytes(&self) -> usize {
        let bytes = self.rest.as_bytes();
        if !bytes.first().is_some_and(|b| b.is_ascii_digit() || *b == b'.') {
            return 0;
        }
        let mut before = 0;
        let end = bytes.iter().position(|b| {
            let inside = b.is_ascii_digit()
                || matches!(b, b'.' | b'e' | b'E')
                || (matches!(b, b'-' | b'+') && matches!(before, b'e' | b'E'));
            before = *b;
            !inside
        });
        end.unwrap_or(bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_follow_arithmetic_precedence() {
        let cases = [
            ("x/y*100", Some(25.0)),
            ("1 + 2 * 3 ^ 2", Some(19.0)),
            ("-(x + 1.5e1) * -y", Some(64.0)),
            ("-2 ^ 2", Some(-4.0)),
            ("2 ^ 3 ^ 2", Some(512.0)),
            ("sqrt(y) - abs(-x)", Some(1.0)),
            ("8 - 4 - 2", Some(2.0)),
            ("cpu.user + 1", Some(8.0)),
            ("z", None),
        ];
        for (text, expected) in cases {
            let column = |name: &str| match name {
                "x" => Some(1.0),
                "y" => Some(4.0),
                "cpu.user" => Some(7.0),
                _ => None,
            };
            assert_eq!(Expression::parse(text).unwrap().value(column), expected, "{text}");
        }
    }

    #[test]
    fn invalid_expression_is_refused_with_its_text() {
        for (text, part) in [
            ("", "read"),
            ("1 +", "read"),
            ("(x", ")"),
            ("x y", "y"),
            ("f(x)", "f"),
            ("1.2.3", "1.2.3"),
        ] {
            let refusal = Expression::parse(text).unwrap_err();
            assert!(refusal.contains(part), "{text}: {refusal}");
        }
        assert!(Expression::parse(&"(".repeat(1000)).unwrap_err().contains("deep"));
        assert!(Expression::parse(&"1+".repeat(1000)).is_err());
    }
}
