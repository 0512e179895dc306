//! Binary operators.

use crate::labels::Labels;
use hashbrown::HashMap;
use promql_syntax::{Binary, BinaryOp, Cardinality, TextSpan, Type, VectorMatching};

use crate::eval::{Emit, Evaluator};
use crate::operator::{arithmetic, keeps};
use crate::rows::{Row, Rows, is_absent, mark, over, same_labels};
use crate::{ABSENT, Eval, QueryError};

/// Returns true if the answer is no longer of the metric.
fn drops_name(binary: &Binary) -> bool {
    !binary.op.is_comparison() || binary.returns_bool
}

impl Evaluator<'_> {
    pub(crate) fn binary(&self, binary: &Binary, span: TextSpan, emit: Emit<'_>) -> Eval<()> {
        if matches!(binary.op, BinaryOp::TrimLower | BinaryOp::TrimUpper) {
            let text = format!(
                "incompatible sample types encountered for binary operator {:?}: float {} float",
                binary.op.text(),
                binary.op.text()
            );
            self.shared.notes.borrow_mut().info(&text, span);
            return Ok(());
        }
        match (binary.left.ty(), binary.right.ty(), &binary.matching) {
            (Type::Vector, Type::Vector, Some(matching)) if binary.op.is_set() => {
                self.set(binary, matching, emit)
            }
            (Type::Vector, Type::Vector, Some(matching)) => self.matched(binary, matching, emit),
            (Type::Vector, _, _) => self.with_scalar(binary, false, emit),
            _ => self.with_scalar(binary, true, emit),
        }
    }

    /// Evaluates an operator between a vector and a number. `swapped`: the number stands first.
    fn with_scalar(&self, binary: &Binary, swapped: bool, emit: Emit<'_>) -> Eval<()> {
        let (vector, number) =
            if swapped { (&binary.right, &binary.left) } else { (&binary.left, &binary.right) };
        let numbers = self.scalar(number)?;
        let value = |value: f64, number: f64| {
            let (left, right) = if swapped { (number, value) } else { (value, number) };
            match keeps(binary.op, left, right) {
                Some(kept) if binary.returns_bool => f64::from(u8::from(kept)),
                Some(true) => value,
                Some(false) => ABSENT,
                None => arithmetic(binary.op, left, right),
            }
        };
        let mut rows = Rows::new(self.grid.count, self.shared.budget);
        self.each(vector, &mut |labels, mut row| {
            let cells = row.iter_mut().zip(numbers.iter()).filter(|(cell, _)| !is_absent(**cell));
            cells.for_each(|(cell, number)| *cell = value(*cell, *number));
            if row.iter().all(|value| is_absent(*value)) {
                Ok(())
            } else if drops_name(binary) {
                rows.add(&labels.without_name(), &row)
            } else {
                emit(labels, row)
            }
        })?;
        Self::emit_all(rows, emit)
    }

    /// Evaluates `and`, `or` and `unless`.
    fn set(&self, binary: &Binary, matching: &VectorMatching, emit: Emit<'_>) -> Eval<()> {
        let left = self.rows(&binary.left)?;
        let right = self.rows(&binary.right)?;
        let key = |labels: &Labels| labels.matching(&matching.labels, matching.on);
        let present = |rows: &Rows| {
            let mut present: HashMap<Labels, Vec<bool>> = HashMap::new();
            for (labels, row) in &rows.list {
                let steps = present.entry(key(labels)).or_insert_with(|| vec![false; row.len()]);
                steps.iter_mut().zip(row).for_each(|(is, value)| *is |= !is_absent(*value));
            }
            present
        };
        let others = present(if binary.op == BinaryOp::Or { &left } else { &right });
        let filter = |labels: &Labels, mut row: Row, wanted: bool| {
            let steps = others.get(&key(labels));
            let is = |step: usize| steps.and_then(|steps| steps.get(step)).copied();
            let lost = |step: &usize| is(*step).unwrap_or(false) != wanted;
            let steps = (0..row.len()).filter(lost);
            steps.for_each(|step| row.get_mut(step).into_iter().for_each(|cell| *cell = ABSENT));
            row
        };
        let mut out = Rows::new(self.grid.count, self.shared.budget);
        match binary.op {
            BinaryOp::Or => {
                left.list.into_iter().try_for_each(|(labels, row)| out.add(&labels, &row))?;
                for (labels, row) in right.list {
                    self.shared.budget.check().map_err(over)?;
                    let row = filter(&labels, row, false);
                    out.add(&labels, &row)?;
                }
            }
            op => {
                for (labels, row) in left.list {
                    self.shared.budget.check().map_err(over)?;
                    let row = filter(&labels, row, op == BinaryOp::And);
                    out.add(&labels, &row)?;
                }
            }
        }
        out.list.retain(|(_, row)| row.iter().any(|value| !is_absent(*value)));
        Self::emit_all(out, emit)
    }

    /// Evaluates an operator between the series of two vectors that match.
    fn matched(&self, binary: &Binary, matching: &VectorMatching, emit: Emit<'_>) -> Eval<()> {
        let (left, right) = (self.rows(&binary.left)?, self.rows(&binary.right)?);
        let swapped = matching.cardinality == Cardinality::OneToMany;
        let (many, one) = if swapped { (right, left) } else { (left, right) };
        let key = |labels: &Labels| labels.matching(&matching.labels, matching.on);
        let mut ones: HashMap<Labels, Vec<usize>> = HashMap::new();
        for (at, (labels, _)) in one.list.iter().enumerate() {
            ones.entry(key(labels)).or_default().push(at);
        }
        let taken = HashMap::new();
        let mut pairing = Pairing { binary, matching, swapped, one: &one, taken, failure: None };
        let mut out = Rows::new(self.grid.count, self.shared.budget);
        let mut steps = vec![false; self.grid.count];
        many.list.iter().for_each(|(_, row)| mark(&mut steps, row));
        for members in ones.values().filter(|members| members.len() > 1) {
            self.shared.budget.check().map_err(over)?;
            pairing.check_one_side(members, &steps);
        }
        // Later steps than one that fails do not matter.
        let until = pairing.failure.as_ref().map_or(self.grid.count, |((step, _), _)| *step);
        for (at, (labels, row)) in many.list.iter().enumerate().filter(|_| until > 0) {
            self.shared.budget.check().map_err(over)?;
            let row = row.get(..until).unwrap_or_default();
            let key = key(labels);
            let members = ones.get(&key).into_iter().flatten();
            for other in members.filter_map(|other| one.list.get(*other)) {
                pairing.pair(&key, (one.list.len() + at, labels, row), other, &mut out)?;
            }
        }
        if let Some((_, error)) = pairing.failure {
            return Err(error);
        }
        out.list.retain(|(_, row)| row.iter().any(|value| !is_absent(*value)));
        Self::emit_all(out, emit)
    }
}

/// Pairs the series of two sides.
struct Pairing<'p> {
    binary: &'p Binary,
    matching: &'p VectorMatching,
    /// The side of many is the right one.
    swapped: bool,
    one: &'p Rows,
    /// The steps at which a match of this key, or an answer with these labels, exists already.
    taken: HashMap<(Labels, Labels), Vec<bool>>,
    /// The failure of the first step with one, and of the first series there.
    failure: Option<((usize, usize), QueryError)>,
}

impl Pairing<'_> {
    /// Notes the failure of a series at a step: the series of one come before those of many.
    fn fail(&mut self, step: usize, at: usize, error: impl FnOnce() -> QueryError) {
        if self.failure.as_ref().is_none_or(|(known, _)| (step, at) < *known) {
            self.failure = Some(((step, at), error()));
        }
    }

    /// Refuses two series of the side of one with a value at the same step, of those at which the other
    /// side has any.
    fn check_one_side(&mut self, members: &[usize], steps: &[bool]) {
        let rows: Vec<(usize, &(Labels, Row))> =
            members.iter().filter_map(|at| Some((*at, self.one.list.get(*at)?))).collect();
        let side = if self.swapped { "left" } else { "right" };
        for (step, _) in steps.iter().enumerate().filter(|(_, is)| **is) {
            let has = |row: &Row| row.get(step).is_some_and(|value| !is_absent(*value));
            let mut present = rows.iter().filter(|(_, (_, row))| has(row));
            if let (Some((_, (a, _))), Some((at, (b, _)))) = (present.next(), present.next()) {
                let group = a.matching(&self.matching.labels, self.matching.on);
                return self.fail(step, *at, || two_on_one_side(&group, side, a, b));
            }
        }
    }

    /// Adds the answers of one series of the side of many, which has a number, with one of the other.
    fn pair(
        &mut self,
        key: &Labels,
        (at, labels, row): (usize, &Labels, &[f64]),
        (other, values): &(Labels, Row),
        out: &mut Rows,
    ) -> Eval<()> {
        let steps = row.iter().zip(values).enumerate();
        let present = steps.filter(|(_, (many, one))| !is_absent(**many) && !is_absent(**one));
        let mut present = present.peekable();
        if present.peek().is_none() {
            return Ok(());
        }
        let answer = self.labels(labels, other);
        let one_to_one = self.matching.cardinality == Cardinality::OneToOne;
        // Each match has one answer, with several series on the side of many one for each set of labels.
        let matched = (key.clone(), if one_to_one { Labels::default() } else { answer.clone() });
        let known = self.taken.remove(&matched);
        if known.is_none() {
            out.hold(2 * answer.bytes() + row.len())?;
        }
        let mut taken = known.unwrap_or_else(|| vec![false; row.len()]);
        let cells = out.row(&answer)?;
        for (step, (many, one)) in present {
            let is_taken = taken.get_mut(step).is_none_or(|taken| std::mem::replace(taken, true));
            let value = self.value(*many, *one);
            if is_taken {
                self.fail(step, at, || two_on_many_side(one_to_one));
            } else if value.is_some_and(|value| !set(cells, step, value)) {
                self.fail(step, usize::MAX, same_labels);
            }
        }
        self.taken.insert(matched, taken);
        Ok(())
    }

    /// Returns the value of a pair; `None` if a comparison drops it.
    fn value(&self, many: f64, one: f64) -> Option<f64> {
        let (left, right) = if self.swapped { (one, many) } else { (many, one) };
        match keeps(self.binary.op, left, right) {
            Some(kept) if self.binary.returns_bool => Some(f64::from(u8::from(kept))),
            Some(kept) => kept.then_some(left),
            None => Some(arithmetic(self.binary.op, left, right)),
        }
    }

    /// Returns the labels of the answer of a pair.
    fn labels(&self, many: &Labels, one: &Labels) -> Labels {
        let mut labels = many.clone();
        if drops_name(self.binary) {
            labels = labels.without_name();
        }
        if self.matching.cardinality == Cardinality::OneToOne {
            let named = |name: &str| self.matching.labels.iter().any(|known| known == name);
            let on = self.matching.on;
            labels.retain(|name| named(name) == on);
        }
        for name in &self.matching.include {
            labels.set(name, one.get(name));
        }
        labels
    }
}

/// Returns the error that two series on the side of one have the same labels to match.
fn two_on_one_side(group: &Labels, side: &str, a: &Labels, b: &Labels) -> QueryError {
    let mut both = [a.to_string(), b.to_string()];
    both.sort();
    QueryError::Execution(format!(
        "found duplicate series for the match group {group} on the {side} hand-side of the operation: \
         [{}];many-to-many matching not allowed: matching labels must be unique on one side",
        both.join(", ")
    ))
}

/// Sets the value of a step that has none. Returns false if it has one.
fn set(row: &mut [f64], step: usize, value: f64) -> bool {
    let free = row.get_mut(step).filter(|cell| is_absent(**cell));
    free.map(|cell| *cell = value).is_some()
}

/// Returns the error that two series on the side of many match the same one.
fn two_on_many_side(one_to_one: bool) -> QueryError {
    let text = if one_to_one {
        "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
    } else {
        "multiple matches for labels: grouping labels must ensure unique matches"
    };
    QueryError::Execution(text.into())
}
