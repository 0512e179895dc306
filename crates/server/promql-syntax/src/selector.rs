//! Selectors: label matchers, ranges, and the modifiers after an expression.

use crate::error::TextSpan;
use crate::limits::REGEXPS_MAX;
use crate::parser::{Parsed, Parser};
use crate::regexp::Regexp;
use crate::token::{Keyword, Token};
use crate::tree::{
    AtModifier, BinaryOp, Expr, ExprKind, LabelMatcher, Length, MatchOp, UnarySign, VectorSelector,
};

/// The label that holds the name of the metric.
const NAME: &str = "__name__";

impl Parser<'_> {
    /// Reads the label matchers of a selector, if there are any, after the name of its metric.
    pub(crate) fn selector(&mut self, name: Option<String>) -> Parsed<VectorSelector> {
        let opens = self.consume(Token::LeftBrace)?;
        let mut matchers = if opens { self.matchers()? } else { Vec::new() };
        if let Some(name) = &name {
            matchers.push(is_name(name.clone()));
        }
        Ok(VectorSelector {
            name,
            matchers,
            at: AtModifier::Evaluation,
            offset: Length::ZERO,
            anchored: false,
            smoothed: false,
        })
    }

    /// Reads label matchers up to the closing brace.
    fn matchers(&mut self) -> Parsed<Vec<LabelMatcher>> {
        const CONTEXT: &str = "label matching";
        let mut matchers = Vec::new();
        while self.token != Token::RightBrace {
            matchers.push(self.matcher(CONTEXT)?);
            if self.token != Token::RightBrace && !self.consume(Token::Comma)? {
                return Err(self.unexpected(CONTEXT, "\",\" or \"}\""));
            }
        }
        self.advance()?;
        Ok(matchers)
    }

    fn matcher(&mut self, context: &str) -> Parsed<LabelMatcher> {
        let quoted = self.token == Token::String;
        let label = match self.token {
            Token::Identifier => self.text_of(self.span).to_owned(),
            Token::String => self.name_of_string()?,
            _ => return Err(self.unexpected(context, "identifier or \"}\"")),
        };
        let start = self.advance()?;
        let op = match self.token {
            Token::Assign => MatchOp::Equal,
            Token::Op(BinaryOp::NotEqual) => MatchOp::NotEqual,
            Token::MatchRegexp => MatchOp::Regexp,
            Token::MatchNotRegexp => MatchOp::NotRegexp,
            // A string alone is the name of the metric.
            Token::Comma | Token::RightBrace if quoted => return Ok(is_name(label)),
            _ if quoted => return Err(self.unexpected(context, "\",\" or \"}\"")),
            _ => return Err(self.unexpected(context, "label matching operator")),
        };
        self.advance()?;
        if self.token != Token::String {
            return Err(self.unexpected(context, "string"));
        }
        let value = self.bytes_of_string()?;
        let span = start.to(self.advance()?);
        let regexp = match op {
            MatchOp::Equal | MatchOp::NotEqual => None,
            MatchOp::Regexp | MatchOp::NotRegexp => {
                self.regexps += 1;
                if self.regexps > REGEXPS_MAX {
                    let message =
                        format!("the expression has more than {REGEXPS_MAX} regular expressions");
                    return Err(self.error(span, message));
                }
                let compiled = Regexp::new(&String::from_utf8_lossy(&value));
                Some(compiled.map_err(|text| self.error(span, text))?)
            }
        };
        Ok(LabelMatcher { label, op, value, regexp })
    }

    /// Reads `[range]` or `[range:step]`.
    pub(crate) fn range(&mut self, expr: Expr) -> Parsed<Expr> {
        let open = self.advance()?;
        let range = self.positive_duration("subquery or range selector")?;
        if self.consume(Token::Colon)? {
            let step = match self.token {
                Token::RightBracket => None,
                _ => Some(self.positive_duration("subquery selector")?),
            };
            let end = self.expect(Token::RightBracket, "subquery selector", "\"]\"")?;
            let span = expr.span.to(end);
            let (at, offset) = (AtModifier::Evaluation, Length::ZERO);
            let kind = ExprKind::Subquery { expr: Box::new(expr), range, step, at, offset };
            return self.node(kind, span);
        }
        let end = self.expect(Token::RightBracket, "subquery or range", "\":\" or \"]\"")?;
        let refused = |message| self.error(open.to(end), message);
        let span = expr.span.to(end);
        match expr.kind {
            ExprKind::Vector(selector) if selector.offset.is_set() => {
                Err(refused("no offset modifiers allowed before range"))
            }
            ExprKind::Vector(selector) if selector.at != AtModifier::Evaluation => {
                Err(refused("no @ modifiers allowed before range"))
            }
            ExprKind::Vector(selector) => self.node(ExprKind::Matrix { selector, range }, span),
            _ => Err(refused("ranges only allowed for vector selectors")),
        }
    }

    /// Reads `offset duration`.
    pub(crate) fn offset(&mut self, mut expr: Expr) -> Parsed<Expr> {
        let before = expr.span;
        self.advance()?;
        let length = self.offset_duration()?;
        let offset = match &mut expr.kind {
            ExprKind::Vector(selector) | ExprKind::Matrix { selector, .. } => &mut selector.offset,
            ExprKind::Subquery { offset, .. } => offset,
            _ => {
                let message = "offset modifier must be preceded by an instant vector selector or \
                               range vector selector or a subquery";
                return Err(self.error(before, message));
            }
        };
        if offset.is_set() {
            return Err(self.error(before, "offset may not be set multiple times"));
        }
        *offset = length;
        expr.span = before.to(self.last);
        Ok(expr)
    }

    /// Reads `@ time`, `@ start()` or `@ end()`.
    pub(crate) fn at(&mut self, mut expr: Expr) -> Parsed<Expr> {
        let before = expr.span;
        self.advance()?;
        let time = match self.token {
            Token::Keyword(word @ (Keyword::Start | Keyword::End)) => {
                self.advance()?;
                self.expect(Token::LeftParen, "", "")?;
                self.expect(Token::RightParen, "", "")?;
                if word == Keyword::Start { AtModifier::Start } else { AtModifier::End }
            }
            _ => AtModifier::Time(self.timestamp(before)?),
        };
        let at = match &mut expr.kind {
            ExprKind::Vector(selector) | ExprKind::Matrix { selector, .. } => &mut selector.at,
            ExprKind::Subquery { at, .. } => at,
            _ => {
                let message = "@ modifier must be preceded by an instant vector selector or range \
                               vector selector or a subquery";
                return Err(self.error(before, message));
            }
        };
        if *at != AtModifier::Evaluation {
            return Err(self.error(before, "@ <timestamp> may not be set multiple times"));
        }
        *at = time;
        expr.span = before.to(self.last);
        Ok(expr)
    }

    /// Reads seconds since the epoch. Returns milliseconds.
    fn timestamp(&mut self, before: TextSpan) -> Parsed<i64> {
        let sign = self.sign();
        if sign.is_some() {
            self.advance()?;
        }
        if !matches!(self.token, Token::Number | Token::Duration) {
            return Err(self.unexpected("@", "timestamp"));
        }
        let (value, _) = self.literal()?;
        let seconds = if sign == Some(UnarySign::Minus) { -value } else { value };
        let milliseconds = (seconds * 1000.0).round();
        // Prometheus bounds the seconds; larger milliseconds saturate.
        if !seconds.is_finite() || seconds.abs() >= i64::MAX as f64 {
            let message = format!(
                "timestamp out of bounds for @ modifier: {}",
                if seconds.is_finite() {
                    format!("{seconds:.6}")
                } else {
                    crate::number::show(seconds)
                }
            );
            return Err(self.error(before, message));
        }
        Ok(milliseconds as i64)
    }

    /// Reads `anchored` or `smoothed`.
    pub(crate) fn extended(&mut self, mut expr: Expr, anchors: bool) -> Parsed<Expr> {
        let before = expr.span;
        self.advance()?;
        let word = if anchors { "anchored" } else { "smoothed" };
        match &mut expr.kind {
            ExprKind::Vector(selector) | ExprKind::Matrix { selector, .. } => {
                selector.anchored |= anchors;
                selector.smoothed |= !anchors;
                if selector.anchored && selector.smoothed {
                    let message = "anchored and smoothed modifiers cannot be used together";
                    return Err(self.error(before, message));
                }
                Ok(expr)
            }
            ExprKind::Subquery { .. } => {
                let message = format!("{word} modifier is not supported for subqueries");
                Err(self.error(before, message))
            }
            _ => Err(self.error(before, format!("{word} modifier not implemented"))),
        }
    }
}

/// Returns the matcher of the metric's name.
fn is_name(name: String) -> LabelMatcher {
    let value = name.into_bytes();
    LabelMatcher { label: NAME.into(), op: MatchOp::Equal, value, regexp: None }
}
