//! Writes a tree as text. Parsing the text gives the same tree.

use std::fmt::{self, Display, Formatter, Write as _};

use crate::quote::quote;
use crate::tree::{
    Aggregate, AtModifier, Binary, Cardinality, DurationExpr, DurationKind, DurationOp, Expr,
    ExprKind, Length, UnarySign, VectorMatching, VectorSelector,
};
use crate::{duration, number};

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ExprKind::Number { value, is_duration: true } => f.write_str(&seconds(*value)),
            ExprKind::Number { value, .. } => f.write_str(&number::show(*value)),
            ExprKind::String(bytes) => f.write_str(&quote(bytes)),
            ExprKind::Vector(selector) => {
                f.write_str(&series(selector))?;
                f.write_str(&at(selector.at))?;
                f.write_str(extended(selector))?;
                f.write_str(&offset(&selector.offset))
            }
            ExprKind::Matrix { selector, range } => {
                write!(f, "{}[{range}]", series(selector))?;
                f.write_str(extended(selector))?;
                f.write_str(&at(selector.at))?;
                f.write_str(&offset(&selector.offset))
            }
            ExprKind::Subquery { expr, .. } => write!(f, "{expr}{}", self.suffix()),
            ExprKind::Paren(inner) => write!(f, "({inner})"),
            ExprKind::Unary { sign, expr } => write!(f, "{}{expr}", sign.text()),
            ExprKind::Binary(binary) => {
                write!(f, "{} {} {}", binary.left, binary.operator(), binary.right)
            }
            ExprKind::Aggregate(aggregate) => {
                f.write_str(&aggregate.head())?;
                match &aggregate.param {
                    Some(param) => write!(f, "({param}, {})", aggregate.expr),
                    None => write!(f, "({})", aggregate.expr),
                }
            }
            ExprKind::Call { function, args } => {
                let args: Vec<String> = args.iter().map(ToString::to_string).collect();
                write!(f, "{}({})", function.name, args.join(", "))
            }
        }
    }
}

impl Expr {
    /// Returns what a subquery has behind its expression; empty for others.
    pub(crate) fn suffix(&self) -> String {
        let ExprKind::Subquery { range, step, at: time, offset: by, .. } = &self.kind else {
            return String::new();
        };
        let step = step.as_ref().map(Length::to_string).unwrap_or_default();
        format!("[{range}:{step}]{}{}", at(*time), offset(by))
    }
}

impl Display for Length {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.expr {
            Some(expr) => write!(f, "{expr}"),
            None => f.write_str(&duration::show(self.ms)),
        }
    }
}

impl Display for DurationExpr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.wrapped {
            f.write_char('(')?;
        }
        match &self.kind {
            DurationKind::Literal { seconds: value, is_duration: true } => {
                f.write_str(&seconds(*value))?;
            }
            DurationKind::Literal { seconds: value, .. } => f.write_str(&number::show(*value))?,
            DurationKind::Step => f.write_str("step()")?,
            DurationKind::Range => f.write_str("range()")?,
            DurationKind::Unary { sign: UnarySign::Plus, of } => write!(f, "{of}")?,
            DurationKind::Unary { sign: UnarySign::Minus, of } => write!(f, "-{of}")?,
            DurationKind::Binary {
                op: op @ (DurationOp::MinOf | DurationOp::MaxOf),
                left,
                right,
            } => {
                write!(f, "{}({left}, {right})", op.text())?;
            }
            DurationKind::Binary { op, left, right } => {
                write!(f, "{left} {} {right}", op.text())?;
            }
        }
        if self.wrapped {
            f.write_char(')')?;
        }
        Ok(())
    }
}

impl Binary {
    /// Returns the operator with its modifiers.
    pub(crate) fn operator(&self) -> String {
        let returns_bool = if self.returns_bool { " bool" } else { "" };
        let matching = self.matching.as_ref().map(VectorMatching::modifiers).unwrap_or_default();
        format!("{}{returns_bool}{matching}", self.op.text())
    }
}

impl VectorMatching {
    fn modifiers(&self) -> String {
        let group = match self.cardinality {
            Cardinality::ManyToOne => Some("group_left"),
            Cardinality::OneToMany => Some("group_right"),
            Cardinality::OneToOne | Cardinality::ManyToMany => None,
        };
        let mut out = String::new();
        if self.on || group.is_some() || !self.labels.is_empty() {
            let word = if self.on { "on" } else { "ignoring" };
            out = format!(" {word} ({})", labels(&self.labels));
        }
        if let Some(group) = group {
            let _ = write!(out, " {group} ({})", labels(&self.include));
        }
        out
    }
}

impl Aggregate {
    /// Returns the operator with its grouping.
    pub(crate) fn head(&self) -> String {
        let op = self.op.text();
        match (self.without, self.labels.as_slice()) {
            (true, names) => format!("{op} without ({}) ", labels(names)),
            (false, []) => op.to_owned(),
            (false, names) => format!("{op} by ({}) ", labels(names)),
        }
    }
}

/// Returns the text of seconds as a duration with units.
fn seconds(value: f64) -> String {
    let milliseconds = (value.abs() * 1000.0).round() as i64;
    format!("{}{}", if value < 0.0 { "-" } else { "" }, duration::show(milliseconds))
}

fn at(at: AtModifier) -> String {
    match at {
        AtModifier::Evaluation => String::new(),
        AtModifier::Time(milliseconds) => format!(" @ {:.3}", milliseconds as f64 / 1000.0),
        AtModifier::Start => " @ start()".into(),
        AtModifier::End => " @ end()".into(),
    }
}

fn offset(by: &Length) -> String {
    match by {
        Length { expr: Some(expr), .. } => format!(" offset {expr}"),
        Length { ms: 0, .. } => String::new(),
        Length { ms, .. } if *ms < 0 => format!(" offset -{}", duration::show(ms.saturating_neg())),
        Length { ms, .. } => format!(" offset {}", duration::show(*ms)),
    }
}

fn extended(selector: &VectorSelector) -> &'static str {
    match (selector.anchored, selector.smoothed) {
        (true, _) => " anchored",
        (_, true) => " smoothed",
        _ => "",
    }
}

/// Returns the name and the label matchers. A name that needs quotes is written inside the braces.
fn series(selector: &VectorSelector) -> String {
    let bare = selector.name.as_deref().filter(|name| is_bare(name, true));
    let quoted = selector.name.as_deref().filter(|_| bare.is_none());
    let written = selector.matchers.len() - usize::from(selector.name.is_some());
    let mut matchers: Vec<String> = Vec::with_capacity(written);
    for matcher in selector.matchers.iter().take(written) {
        let label = label(&matcher.label);
        matchers.push(format!("{label}{}{}", matcher.op.text(), quote(&matcher.value)));
    }
    matchers.sort();
    matchers.splice(0..0, quoted.map(|name| quote(name.as_bytes())));
    let name = bare.unwrap_or_default();
    if matchers.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", matchers.join(",")) }
}

fn labels(names: &[String]) -> String {
    names.iter().map(|name| label(name)).collect::<Vec<_>>().join(", ")
}

fn label(name: &str) -> String {
    if is_bare(name, false) { name.to_owned() } else { quote(name.as_bytes()) }
}

/// Returns true if every version of Prometheus reads the name without quotes.
fn is_bare(name: &str, is_metric: bool) -> bool {
    let starts = |c: char| c == '_' || c.is_ascii_alphabetic() || (is_metric && c == ':');
    name.starts_with(starts) && name.chars().all(|c| starts(c) || c.is_ascii_digit())
}
