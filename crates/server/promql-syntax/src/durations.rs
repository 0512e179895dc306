//! Durations in brackets and after `offset`, which may be expressions.

use crate::error::TextSpan;
use crate::limits::DEPTH_MAX;
use crate::parser::{Parsed, Parser};
use crate::token::{Keyword, Token};
use crate::tree::{BinaryOp, DurationExpr, DurationKind, DurationOp, Length, UnarySign};

const EXPECTED: &str = "number, duration, step(), or range()";
/// Longest duration, seconds: that of 64 bits of nanoseconds.
const SECONDS_MAX: f64 = i64::MAX as f64 / 1e9;

impl Parser<'_> {
    /// Reads a duration in brackets, which must not be a literal of zero or less.
    pub(crate) fn positive_duration(&mut self, context: &str) -> Parsed<Length> {
        let duration = self.duration(0, context)?;
        if let DurationKind::Literal { seconds, .. } = duration.kind
            && seconds <= 0.0
        {
            return Err(self.error(duration.span, "duration must be greater than 0"));
        }
        Ok(length(duration))
    }

    /// Reads the duration after `offset`. Without parentheses it ends at an operator: `a offset 5m + b`
    /// adds `b` to `a`.
    pub(crate) fn offset_duration(&mut self) -> Parsed<Length> {
        const CONTEXT: &str = "offset";
        let start = self.span;
        let sign = self.sign();
        if sign.is_some() {
            self.advance()?;
        }
        let opens = self.token == Token::LeftParen;
        let mut duration = match sign {
            // A sign belongs to the next operand alone, also to one in parentheses.
            None if opens => self.duration(0, CONTEXT)?,
            _ => self.duration_operand(CONTEXT)?,
        };
        match (sign, &duration.kind) {
            (Some(sign), DurationKind::Literal { .. }) => {
                duration = self.signed(sign, start, duration)?;
            }
            (Some(sign), _) if !opens || sign == UnarySign::Minus => {
                let span = start.to(duration.span);
                let of = Box::new(duration);
                duration = self.duration_node(DurationKind::Unary { sign, of }, span)?;
            }
            _ => {}
        }
        Ok(length(duration))
    }

    fn duration(&mut self, least: u8, context: &str) -> Parsed<DurationExpr> {
        self.deeper()?;
        let mut left = match self.sign() {
            Some(sign) => {
                let start = self.advance()?;
                let of = self.duration(BinaryOp::Pow.precedence(), context)?;
                self.signed(sign, start, of)?
            }
            None => self.duration_operand(context)?,
        };
        while let Token::Op(op) = self.token
            && let Some(found) = DurationOp::ALL.iter().find(|known| known.text() == op.text())
            && op.precedence() >= least
        {
            let at = self.advance()?;
            let groups_right = op == BinaryOp::Pow;
            let right = self.duration(op.precedence() + u8::from(!groups_right), context)?;
            let by_zero =
                matches!(right.kind, DurationKind::Literal { seconds, .. } if seconds == 0.0);
            match found {
                DurationOp::Div if by_zero => return Err(self.error(at, "division by zero")),
                DurationOp::Mod if by_zero => return Err(self.error(at, "modulo by zero")),
                _ => {}
            }
            let span = left.span.to(right.span);
            let kind =
                DurationKind::Binary { op: *found, left: Box::new(left), right: Box::new(right) };
            left = self.duration_node(kind, span)?;
        }
        self.shallower();
        Ok(left)
    }

    fn duration_operand(&mut self, context: &str) -> Parsed<DurationExpr> {
        let start = self.span;
        match self.token {
            Token::Number | Token::Duration => {
                let (seconds, is_duration) = self.literal()?;
                self.check_range(seconds, start)?;
                self.duration_node(DurationKind::Literal { seconds, is_duration }, start)
            }
            Token::Keyword(word @ (Keyword::Step | Keyword::Range)) => {
                self.advance()?;
                self.expect(Token::LeftParen, context, EXPECTED)?;
                let end = self.expect(Token::RightParen, context, EXPECTED)?;
                let kind =
                    if word == Keyword::Step { DurationKind::Step } else { DurationKind::Range };
                self.duration_node(kind, start.to(end))
            }
            Token::Keyword(word @ (Keyword::MinOf | Keyword::MaxOf)) => {
                self.advance()?;
                self.expect(Token::LeftParen, "", "")?;
                let left = Box::new(self.duration(0, context)?);
                self.expect(Token::Comma, "", "")?;
                let right = Box::new(self.duration(0, context)?);
                let end = self.expect(Token::RightParen, "", "")?;
                let op = if word == Keyword::MinOf { DurationOp::MinOf } else { DurationOp::MaxOf };
                self.duration_node(DurationKind::Binary { op, left, right }, start.to(end))
            }
            Token::LeftParen => {
                self.advance()?;
                let inner = self.duration(0, context)?;
                let end = self.expect(Token::RightParen, "", "")?;
                self.wrapped(inner, start.to(end))
            }
            _ => Err(self.unexpected(context, EXPECTED)),
        }
    }

    /// Returns a duration in parentheses. A literal gets a sign around it, which prints as nothing.
    fn wrapped(&self, inner: DurationExpr, span: TextSpan) -> Parsed<DurationExpr> {
        let mut outer = match inner.kind {
            DurationKind::Literal { .. } => {
                let kind = DurationKind::Unary { sign: UnarySign::Plus, of: Box::new(inner) };
                self.duration_node(kind, span)?
            }
            _ => inner,
        };
        outer.wrapped = true;
        Ok(outer)
    }

    /// Returns a duration with a sign. That of a literal changes its value.
    fn signed(
        &self,
        sign: UnarySign,
        start: TextSpan,
        mut of: DurationExpr,
    ) -> Parsed<DurationExpr> {
        let span = start.to(of.span);
        match (&mut of.kind, sign) {
            (DurationKind::Literal { seconds, .. }, _) => {
                if sign == UnarySign::Minus {
                    *seconds = -*seconds;
                }
                of.span = span;
                Ok(of)
            }
            (_, UnarySign::Plus) => Ok(of),
            (_, UnarySign::Minus) => {
                self.duration_node(DurationKind::Unary { sign, of: Box::new(of) }, span)
            }
        }
    }

    fn check_range(&self, seconds: f64, span: TextSpan) -> Parsed<()> {
        if seconds.abs() <= SECONDS_MAX {
            return Ok(());
        }
        Err(self.error(span, "duration out of range"))
    }

    fn duration_node(&self, kind: DurationKind, span: TextSpan) -> Parsed<DurationExpr> {
        let below = match &kind {
            DurationKind::Unary { of, .. } => of.height,
            DurationKind::Binary { left, right, .. } => left.height.max(right.height),
            _ => 0,
        };
        if below >= DEPTH_MAX {
            return Err(self.too_deep(span));
        }
        Ok(DurationExpr { kind, wrapped: false, span, height: below + 1 })
    }
}

/// Returns the milliseconds of a literal, or the expression.
fn length(duration: DurationExpr) -> Length {
    match duration.kind {
        DurationKind::Literal { seconds, .. } => {
            // As in Prometheus: to nanoseconds, and what is below a millisecond is cut off.
            let nanoseconds = (seconds * 1e9).round() as i64;
            Length { ms: nanoseconds / 1_000_000, expr: None }
        }
        _ => Length { ms: 0, expr: Some(duration) },
    }
}
