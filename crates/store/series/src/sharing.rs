//! Rows that share a series: row series with the same tags and some common metrics (`cpu|mem
//! host=a` and `cpu host=a`).
//!
//! Of two values of one series and time the later one is valid, whichever row it was written to.
//! Rows agree, so that their order does not matter: in one head and in one part, all rows that have
//! a sample of a shared series at one time have the same value there.

use hashbrown::HashMap;

use crate::model::ColumnId;
use crate::table::Table;

/// A metric of a row that another row has, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shared {
    /// Its column in the row that was looked up.
    pub(crate) own: u16,
    /// The other row.
    pub(crate) row: u32,
    pub(crate) column: u16,
}

/// The shared series, by row.
#[derive(Debug, Default)]
pub(crate) struct SharedSeries {
    rows: HashMap<u32, Vec<Shared>>,
}

impl SharedSeries {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn of(&self, row: u32) -> &[Shared] {
        self.rows.get(&row).map_or(&[], Vec::as_slice)
    }

    /// Records that two rows share a series, and so does every row that shares it with one of them.
    pub(crate) fn join(&mut self, new: ColumnId, known: ColumnId) {
        let others = self.of(known.row).iter().filter(|s| s.own == known.column);
        let others = others.map(|s| ColumnId { row: s.row, column: s.column });
        let members: Vec<ColumnId> = others.chain([known]).collect();
        for ColumnId { row, column } in members {
            let there = Shared { own: column, row: new.row, column: new.column };
            self.rows.entry(row).or_default().push(there);
            let here = Shared { own: new.column, row, column };
            self.rows.entry(new.row).or_default().push(here);
        }
    }

    /// Removes a row.
    pub(crate) fn leave(&mut self, row: u32) {
        for other in self.rows.remove(&row).unwrap_or_default() {
            let Some(there) = self.rows.get_mut(&other.row) else { continue };
            there.retain(|s| s.row != row);
            if there.is_empty() {
                self.rows.remove(&other.row);
            }
        }
    }
}

/// Copies values from the first column of `with` to a column of `table` at the times that both
/// have. Both are settled.
pub(crate) fn agree(table: &mut Table, column: u16, with: &Table) {
    let Some(column) = table.columns.get_mut(usize::from(column)) else { return };
    let Some(from) = with.columns.first() else { return };
    let mut times = table.times.iter().enumerate().peekable();
    for (at, time) in with.times.iter().enumerate() {
        while times.next_if(|(_, t)| *t < time).is_some() {}
        if let Some((place, _)) = times.next_if(|(_, t)| *t == time) {
            column.take_over(place, from, at);
        }
    }
}
