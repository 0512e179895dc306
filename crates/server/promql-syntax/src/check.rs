//! Checks the types of a tree, in the order in which Prometheus reports errors.

use crate::error::{ParseError, TextSpan};
use crate::function::Function;
use crate::parser::Parsed;
use crate::quote::quote;
use crate::tree::{Aggregate, Binary, Cardinality, Expr, ExprKind, Type, VectorSelector};

/// Checks an expression. Also sets how many series may match in `and`, `or` and `unless`, and drops
/// the matching of numbers.
pub(crate) fn check(text: &str, expr: &mut Expr) -> Parsed<()> {
    Checker { text }.expr(expr)
}

struct Checker<'t> {
    text: &'t str,
}

impl Checker<'_> {
    fn error<T>(&self, span: TextSpan, message: impl Into<String>) -> Parsed<T> {
        Err(ParseError::new(self.text, span, message))
    }

    fn expr(&self, expr: &mut Expr) -> Parsed<()> {
        let span = expr.span;
        match &mut expr.kind {
            ExprKind::Number { .. } | ExprKind::String(_) => Ok(()),
            ExprKind::Vector(selector) | ExprKind::Matrix { selector, .. } => {
                self.selector(span, selector)
            }
            ExprKind::Paren(inner) => self.expr(inner),
            ExprKind::Aggregate(aggregate) => self.aggregate(aggregate),
            ExprKind::Binary(binary) => self.binary(span, binary),
            ExprKind::Call { function, args } => self.call(span, function, args),
            ExprKind::Unary { expr, .. } => {
                self.expr(expr)?;
                match expr.ty() {
                    Type::Scalar | Type::Vector => Ok(()),
                    other => self.error(
                        span,
                        format!(
                            "unary expression only allowed on expressions of type scalar or instant \
                             vector, got {:?}",
                            other.documented()
                        ),
                    ),
                }
            }
            ExprKind::Subquery { expr, .. } => {
                self.expr(expr)?;
                match expr.ty() {
                    Type::Vector => Ok(()),
                    other => self.error(
                        span,
                        format!(
                            "subquery is only allowed on instant vector, got {} instead",
                            other.name()
                        ),
                    ),
                }
            }
        }
    }

    /// Checks an expression that must have a type.
    fn expect(&self, expr: &mut Expr, wanted: Type, context: &str) -> Parsed<()> {
        self.expr(expr)?;
        let (wanted, given) = (wanted.documented(), expr.ty().documented());
        if wanted == given {
            return Ok(());
        }
        self.error(expr.span, format!("expected type {wanted} in {context}, got {given}"))
    }

    fn aggregate(&self, aggregate: &mut Aggregate) -> Parsed<()> {
        self.expect(&mut aggregate.expr, Type::Vector, "aggregation expression")?;
        match (&mut aggregate.param, aggregate.op.param()) {
            (Some(param), Some(wanted)) => self.expect(param, wanted, "aggregation parameter"),
            _ => Ok(()),
        }
    }

    fn binary(&self, span: TextSpan, binary: &mut Binary) -> Parsed<()> {
        self.expr(&mut binary.left)?;
        self.expr(&mut binary.right)?;
        let (op, shown) = (binary.op, quote(binary.op.text().as_bytes()));
        let types = (binary.left.ty(), binary.right.ty());
        let at_op = self.between(binary.left.span, binary.right.span);
        if binary.returns_bool && !op.is_comparison() {
            return self.error(at_op, "bool modifier can only be used on comparison operators");
        }
        let scalars = types == (Type::Scalar, Type::Scalar);
        if op.is_comparison() && !binary.returns_bool && scalars {
            return self.error(at_op, "comparisons between scalars must use BOOL modifier");
        }
        if let Some(matching) = &binary.matching
            && matching.on
            && let Some(both) = matching.labels.iter().find(|l| matching.include.contains(l))
        {
            let label = quote(both.as_bytes());
            let message = format!("label {label} must not occur in ON and GROUP clause at once");
            return self.error(at_op, message);
        }
        for (side, ty) in [(&binary.left, types.0), (&binary.right, types.1)] {
            if !matches!(ty, Type::Scalar | Type::Vector) {
                let message = "binary expression must contain only scalar and instant vector types";
                return self.error(side.span, message);
            }
        }
        if types != (Type::Vector, Type::Vector) {
            let matching = binary.matching.take();
            if matching.is_some_and(|matching| !matching.labels.is_empty()) {
                return self.error(span, "vector matching only allowed between instant vectors");
            }
            if op.is_set() {
                let message =
                    format!("set operator {shown} not allowed in binary scalar expression");
                return self.error(span, message);
            }
        } else if let Some(matching) = &mut binary.matching
            && op.is_set()
        {
            if matching.cardinality != Cardinality::OneToOne {
                let message = format!("no grouping allowed for {shown} operation");
                return self.error(span, message);
            }
            matching.cardinality = Cardinality::ManyToMany;
        }
        Ok(())
    }

    /// Returns the place of the operator between two operands.
    fn between(&self, left: TextSpan, right: TextSpan) -> TextSpan {
        let text = self.text.get(left.end..right.start).unwrap_or_default();
        let start = left.end + (text.len() - text.trim_start().len());
        TextSpan { start, end: start + text.trim().len() }
    }

    fn call(&self, span: TextSpan, function: &Function, args: &mut [Expr]) -> Parsed<()> {
        let (name, given) = (function.name, args.len());
        let least = function.args.len() - usize::from(function.variadic != 0);
        let most = usize::try_from(function.variadic).map(|more| least + more);
        let wrong = if function.variadic == 0 && given != least {
            Some(format!("expected {least}"))
        } else if given < least {
            Some(format!("expected at least {least}"))
        } else if let Ok(most) = most
            && given > most
        {
            Some(format!("expected at most {most}"))
        } else {
            None
        };
        if let Some(wrong) = wrong {
            let message = format!("{wrong} argument(s) in call to {name:?}, got {given}");
            return self.error(span, message);
        }
        for (at, arg) in args.iter_mut().enumerate() {
            let Some(wanted) = function.args.get(at).or(function.args.last()) else { break };
            self.expect(arg, *wanted, &format!("call to function {name:?}"))?;
        }
        Ok(())
    }

    fn selector(&self, span: TextSpan, selector: &VectorSelector) -> Parsed<()> {
        if let Some(name) = &selector.name {
            let given = selector.matchers.len().saturating_sub(1);
            let twice = selector.matchers.iter().take(given).find(|m| m.label == "__name__");
            return match twice {
                None => Ok(()),
                Some(matcher) => self.error(
                    span,
                    format!(
                        "metric name must not be set twice: {} or {}",
                        quote(name.as_bytes()),
                        quote(&matcher.value)
                    ),
                ),
            };
        }
        if selector.matchers.iter().any(|matcher| !matcher.matches("")) {
            return Ok(());
        }
        self.error(span, "vector selector must contain at least one non-empty matcher")
    }
}
