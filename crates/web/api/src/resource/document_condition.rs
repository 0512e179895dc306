//! The parameter `q` of lists of documents as a condition of the state store.

use state::{Comparison, Condition, DocumentField, QueryValue};

use rest::code::Code;
use rest::error::Failure;
use rest::http::q::{self, Op, Query};

/// Converts the parameter `q` into a condition on documents. Relative dates count back from `now_us`,
/// microseconds since the epoch.
///
/// Fails with [`Code::QueryInvalid`] or [`Code::QueryOperatorInvalid`] if a value does not fit its
/// field.
pub(super) fn condition(query: Query<DocumentField>, now_us: u64) -> Result<Condition, Failure> {
    let list = |list: Vec<Query<DocumentField>>| {
        list.into_iter().map(|query| condition(query, now_us)).collect::<Result<Vec<_>, _>>()
    };
    let (field, op, value) = match query {
        Query::All(all) => return Ok(Condition::All(list(all)?)),
        Query::Any(any) => return Ok(Condition::Any(list(any)?)),
        Query::Compare { column, op, value } => (column, op, value),
    };
    let number = |value: &str| {
        value.parse::<i64>().map_err(|_| {
            Failure::detailed(Code::QueryInvalid, format!("q: not a number: '{value}'"))
        })
    };
    let (op, value) = match field {
        DocumentField::Mtime | DocumentField::Version => {
            let (op, at_us) = q::instant(op, &value, now_us)?;
            (op, QueryValue::Integer(at_us as i64))
        }
        DocumentField::Size
        | DocumentField::Uid
        | DocumentField::Gid
        | DocumentField::Inode
        | DocumentField::Changes => (op, QueryValue::Integer(number(&value)?)),
        _ => (op, QueryValue::Text(value)),
    };
    let test = match (op, &value) {
        (Op::Equal, _) => Comparison::Equal,
        (Op::NotEqual, _) => Comparison::NotEqual,
        (Op::Less, _) => Comparison::Less,
        (Op::Greater, _) => Comparison::Greater,
        (Op::Contains, QueryValue::Text(_)) => Comparison::Contains,
        (Op::Contains, QueryValue::Integer(_)) => {
            return Err(Failure::detailed(Code::QueryOperatorInvalid, "q: ~ is for texts only"));
        }
    };
    Ok(Condition::Field(field, test, value))
}
