//! Conditions on the values of rows.

use serde_json::Value as Json;
use series::Value;

use super::row::{Cells, Column};

/// Conditions on values.
#[derive(Debug, Clone, Default)]
pub(super) struct Filter {
    /// Bounds by column; the column "" stands for every column.
    bounds: Vec<(String, Vec<Bound>)>,
    any: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Bound {
    side: Side,
    limit: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Side {
    Gt,
    Ge,
    Lt,
    Le,
}

impl Filter {
    pub(super) fn read(value: &Json) -> Result<Self, String> {
        let object = value.as_object().ok_or("Field filter is no object")?;
        let mut filter = Self::default();
        let flat = object.values().all(Json::is_number);
        if flat {
            filter.bounds.push((String::new(), bounds(value)?));
            return Ok(filter);
        }
        for (name, value) in object {
            if name == "=" {
                filter.any = match value.get("require").and_then(Json::as_str) {
                    Some("any") => true,
                    Some("all") => false,
                    _ => return Err("Field filter.=.require is all or any".into()),
                };
            } else {
                filter.bounds.push((name.clone(), bounds(value)?));
            }
        }
        Ok(filter)
    }

    /// Returns true if the filter has no bounds, so that every row passes.
    pub(super) fn is_empty(&self) -> bool {
        self.bounds.is_empty()
    }

    /// Returns the names of the columns that have bounds of their own.
    pub(super) fn columns(&self) -> impl Iterator<Item = &str> {
        self.bounds.iter().map(|(name, _)| name.as_str()).filter(|name| !name.is_empty())
    }

    /// Returns true if a row passes: if all bounded columns are within their bounds or, with `any`,
    /// at least one is. A missing value is outside any bounds. A row without any of the columns
    /// belongs to another metric and passes.
    pub(super) fn passes(&self, columns: &[Column], cells: &Cells) -> bool {
        let one;
        let cells: &[Option<Value>] = match cells {
            Cells::One(value) => {
                one = [Some(*value)];
                &one
            }
            Cells::Many(cells) => cells,
            Cells::Empty | Cells::Text(_) => return true,
        };
        let (mut tested, mut passed) = (0, 0);
        for (name, bounds) in &self.bounds {
            let here = columns.iter().zip(cells).filter(|(c, _)| name.is_empty() || c.is(name));
            for (_, cell) in here {
                tested += 1;
                let inside = cell.is_some_and(|v| bounds.iter().all(|b| b.admits(v)));
                passed += usize::from(inside);
            }
        }
        if self.any && tested > 0 { passed > 0 } else { passed == tested }
    }
}

impl Bound {
    fn admits(self, value: Value) -> bool {
        let (value, limit) = (value.as_f64(), self.limit);
        match self.side {
            Side::Gt => value > limit,
            Side::Ge => value >= limit,
            Side::Lt => value < limit,
            Side::Le => value <= limit,
        }
    }
}

fn bounds(value: &Json) -> Result<Vec<Bound>, String> {
    let mut found = Vec::new();
    for (name, limit) in value.as_object().ok_or("Field filter is no object")? {
        let side = match name.as_str() {
            "gt" => Side::Gt,
            "ge" => Side::Ge,
            "lt" => Side::Lt,
            "le" => Side::Le,
            _ => return Err(format!("Unknown filter: {name}; use gt, ge, lt or le")),
        };
        let limit = limit.as_f64().ok_or_else(|| format!("Filter {name} is no number"))?;
        found.push(Bound { side, limit });
    }
    Ok(found)
}
