//! Writes a tree over several lines: what is longer than a line is split at its operator or its
//! parentheses, and indented.

use crate::tree::{Expr, ExprKind};

/// Longest text that stays on one line, bytes.
const LINE_BYTES_MAX: usize = 100;
const INDENT: &str = "  ";

/// Returns the expression in the layout of Prometheus' formatter.
pub fn pretty(expr: &Expr) -> String {
    write(expr, 0)
}

fn write(expr: &Expr, level: usize) -> String {
    let indent = INDENT.repeat(level);
    let line = expr.to_string();
    if let ExprKind::Unary { sign, expr } = &expr.kind {
        return format!("{indent}{}{}", sign.text(), write(expr, level).trim());
    }
    if line.len() <= LINE_BYTES_MAX {
        return match expr.kind {
            // As in Prometheus, which leaves a short subquery where it is.
            ExprKind::Subquery { .. } => line,
            _ => format!("{indent}{line}"),
        };
    }
    match &expr.kind {
        ExprKind::Aggregate(aggregate) => {
            let param = aggregate.param.as_ref().map(|param| write(param, level + 1) + ",\n");
            let (head, param) = (aggregate.head(), param.unwrap_or_default());
            let inner = write(&aggregate.expr, level + 1);
            format!("{indent}{head}(\n{param}{inner}\n{indent})")
        }
        ExprKind::Binary(binary) => {
            let (left, right) = (write(&binary.left, level + 1), write(&binary.right, level + 1));
            format!("{left}\n{indent}{}\n{right}", binary.operator())
        }
        ExprKind::Call { function, args } => {
            let args: Vec<String> = args.iter().map(|arg| write(arg, level + 1)).collect();
            format!("{indent}{}(\n{}\n{indent})", function.name, args.join(",\n"))
        }
        ExprKind::Paren(inner) => format!("{indent}(\n{}\n{indent})", write(inner, level + 1)),
        ExprKind::Subquery { expr: inner, .. } => {
            format!("{}{}", write(inner, level), expr.suffix())
        }
        _ => format!("{indent}{line}"),
    }
}
