//! Series with their values at all steps, found by their labels.

use crate::labels::Labels;
use budget::{Budget, HeldMemory};
use hashbrown::HashMap;

use crate::{ABSENT, Eval, QueryError};

/// The values of a series, one for each step.
pub(crate) type Row = Vec<f64>;

/// A row whose memory counts as the query's.
pub(crate) struct HeldRow {
    pub(crate) row: Row,
    _held: HeldMemory,
}

impl HeldRow {
    /// Reserves the memory of a row, then computes it.
    pub(crate) fn new(
        steps: usize,
        budget: &Budget,
        compute: impl FnOnce() -> Eval<Row>,
    ) -> Eval<Self> {
        budget.check().map_err(over)?;
        let mut held = budget.nothing();
        held.set(8 * steps).map_err(over)?;
        Ok(Self { row: compute()?, _held: held })
    }
}

impl std::ops::Deref for HeldRow {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        &self.row
    }
}

/// Returns true if there is no value.
pub(crate) fn is_absent(value: f64) -> bool {
    value.to_bits() == ABSENT.to_bits()
}

/// Returns an error of the budget as one of the query.
pub(crate) fn over(text: String) -> QueryError {
    QueryError::Over(text)
}

/// Marks the steps at which a row has a value.
pub(crate) fn mark(present: &mut [bool], row: &[f64]) {
    for (is, value) in present.iter_mut().zip(row) {
        *is |= !is_absent(*value);
    }
}

/// Rows in the order in which they came.
pub(crate) struct Rows {
    pub(crate) list: Vec<(Labels, Row)>,
    index: HashMap<Labels, usize>,
    steps: usize,
    held: HeldMemory,
    bytes: usize,
}

impl Rows {
    pub(crate) fn new(steps: usize, budget: &Budget) -> Self {
        let (list, index) = (Vec::new(), HashMap::new());
        Self { list, index, steps, held: budget.nothing(), bytes: 0 }
    }

    /// Returns the memory that the rows take, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a series whose labels no other one has.
    pub(crate) fn push(&mut self, labels: Labels, row: Row) -> Eval<()> {
        self.hold(labels.bytes() + 8 * self.steps + 64)?;
        self.list.push((labels, row));
        Ok(())
    }

    /// Counts memory as that of the rows.
    pub(crate) fn hold(&mut self, bytes: usize) -> Eval<()> {
        self.bytes += bytes;
        self.held.set(self.bytes).map_err(over)
    }

    /// Returns the row of these labels, which is without values at first.
    pub(crate) fn row(&mut self, labels: &Labels) -> Eval<&mut Row> {
        let known = self.index.get(labels).copied();
        let at = known.unwrap_or(self.list.len());
        if known.is_none() {
            self.hold(2 * labels.bytes() + 8 * self.steps + 64)?;
            self.index.insert(labels.clone(), at);
            self.list.push((labels.clone(), vec![ABSENT; self.steps]));
        }
        let row = self.list.get_mut(at).map(|(_, row)| row);
        row.ok_or_else(|| QueryError::Execution("a row is missing".into()))
    }

    /// Counts one more at a step.
    pub(crate) fn count(&mut self, labels: &Labels, step: usize) -> Eval<()> {
        if let Some(cell) = self.row(labels)?.get_mut(step) {
            *cell = if is_absent(*cell) { 1.0 } else { *cell + 1.0 };
        }
        Ok(())
    }

    /// Adds the values of a row to the series of these labels. No step may have two.
    pub(crate) fn add(&mut self, labels: &Labels, row: &[f64]) -> Eval<()> {
        for (cell, value) in self.row(labels)?.iter_mut().zip(row) {
            match (is_absent(*value), is_absent(*cell)) {
                (true, _) => {}
                (false, true) => *cell = *value,
                (false, false) => return Err(same_labels()),
            }
        }
        Ok(())
    }
}

/// Returns the error that an operation has left two series with the same labels.
pub(crate) fn same_labels() -> QueryError {
    QueryError::Execution("vector cannot contain metrics with the same labelset".into())
}
