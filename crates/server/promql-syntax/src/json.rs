//! Writes a tree as JSON, in the form of Prometheus' `parse_query`.

use serde_json::{Value, json};

use crate::number::show;
use crate::tree::{
    AtModifier, DurationExpr, DurationKind, Expr, ExprKind, Length, UnarySign, VectorMatching,
    VectorSelector,
};

/// Returns the tree as `parse_query` answers it.
pub fn to_json(expr: &Expr) -> Value {
    match &expr.kind {
        ExprKind::Number { value, .. } => json!({"type": "numberLiteral", "val": show(*value)}),
        ExprKind::String(bytes) => {
            json!({"type": "stringLiteral", "val": String::from_utf8_lossy(bytes)})
        }
        ExprKind::Vector(selector) => of_selector(selector, "vectorSelector", None),
        ExprKind::Matrix { selector, range } => {
            of_selector(selector, "matrixSelector", Some(range))
        }
        ExprKind::Subquery { expr, range, step, at, offset } => {
            let step = step.as_ref().unwrap_or(&Length::ZERO);
            json!({
                "type": "subquery",
                "expr": to_json(expr),
                "range": range.ms,
                "rangeExpr": length(range),
                "offset": offset.ms,
                "offsetExpr": length(offset),
                "step": step.ms,
                "stepExpr": length(step),
                "timestamp": timestamp(*at),
                "startOrEnd": start_or_end(*at),
            })
        }
        ExprKind::Paren(inner) => json!({"type": "parenExpr", "expr": to_json(inner)}),
        ExprKind::Unary { sign, expr } => {
            json!({"type": "unaryExpr", "op": sign.text(), "expr": to_json(expr)})
        }
        ExprKind::Binary(binary) => json!({
            "type": "binaryExpr",
            "op": binary.op.text(),
            "lhs": to_json(&binary.left),
            "rhs": to_json(&binary.right),
            "matching": binary.matching.as_ref().map(matching),
            "bool": binary.returns_bool,
        }),
        ExprKind::Aggregate(aggregate) => json!({
            "type": "aggregation",
            "op": aggregate.op.text(),
            "expr": to_json(&aggregate.expr),
            "param": aggregate.param.as_ref().map(to_json),
            "grouping": aggregate.labels,
            "without": aggregate.without,
        }),
        ExprKind::Call { function, args } => json!({
            "type": "call",
            "func": {
                "name": function.name,
                "argTypes": function.args.iter().map(|ty| ty.name()).collect::<Vec<_>>(),
                "variadic": function.variadic,
                "returnType": function.returns.name(),
            },
            "args": args.iter().map(to_json).collect::<Vec<_>>(),
        }),
    }
}

fn of_selector(selector: &VectorSelector, ty: &str, range: Option<&Length>) -> Value {
    let matchers: Vec<Value> = selector
        .matchers
        .iter()
        .map(|matcher| {
            let value = String::from_utf8_lossy(&matcher.value);
            json!({"name": matcher.label, "value": value, "type": matcher.op.text()})
        })
        .collect();
    let mut out = json!({
        "type": ty,
        "name": selector.name.as_deref().unwrap_or_default(),
        "offset": selector.offset.ms,
        "offsetExpr": length(&selector.offset),
        "matchers": matchers,
        "timestamp": timestamp(selector.at),
        "startOrEnd": start_or_end(selector.at),
        "anchored": selector.anchored,
        "smoothed": selector.smoothed,
    });
    if let (Value::Object(fields), Some(range)) = (&mut out, range) {
        fields.insert("range".into(), json!(range.ms));
        fields.insert("rangeExpr".into(), length(range));
    }
    out
}

fn matching(matching: &VectorMatching) -> Value {
    json!({
        "card": matching.cardinality.name(),
        "labels": matching.labels,
        "on": matching.on,
        "include": matching.include,
        "fillValues": {"lhs": null, "rhs": null},
    })
}

fn length(length: &Length) -> Value {
    length.expr.as_ref().map_or(Value::Null, duration)
}

fn duration(of: &DurationExpr) -> Value {
    let node = |op: &str, left: Value, right: Value| {
        json!({
            "type": "durationExpr", "op": op, "lhs": left, "rhs": right, "wrapped": of.wrapped,
        })
    };
    match &of.kind {
        DurationKind::Literal { seconds, is_duration } => {
            json!({"type": "numberLiteral", "val": show(*seconds), "duration": is_duration})
        }
        DurationKind::Step => node("step", Value::Null, Value::Null),
        DurationKind::Range => node("range", Value::Null, Value::Null),
        DurationKind::Unary { sign, of } => {
            let op = if *sign == UnarySign::Minus { "-" } else { "+" };
            node(op, Value::Null, duration(of))
        }
        DurationKind::Binary { op, left, right } => {
            node(op.text(), duration(left), duration(right))
        }
    }
}

fn timestamp(at: AtModifier) -> Value {
    if let AtModifier::Time(milliseconds) = at { json!(milliseconds) } else { Value::Null }
}

fn start_or_end(at: AtModifier) -> Value {
    match at {
        AtModifier::Start => json!("start"),
        AtModifier::End => json!("end"),
        AtModifier::Evaluation | AtModifier::Time(_) => Value::Null,
    }
}
