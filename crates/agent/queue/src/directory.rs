//! A directory in the catalog: the number of its rows, and their highest version. A large directory
//! is divided into blocks, which are ranges of names with the same two figures. A few pending items
//! among millions are therefore found by reading a few blocks.
//!
//! Limits: a block of more than [`BLOCK_ROWS_MAX`] rows is divided after the commit that enlarged
//! it. Each block takes about 50 bytes and one name.

use std::sync::Arc;

/// Rows of a block after it is divided or loaded.
pub(crate) const BLOCK_ROWS: u64 = 1024;
/// Rows above which a block is divided.
pub(crate) const BLOCK_ROWS_MAX: u64 = 2 * BLOCK_ROWS;
/// A name that is greater than every other one.
static BEHIND_ALL: [u8; crate::KEY_BYTES_MAX + 1] = [0xff; crate::KEY_BYTES_MAX + 1];

/// One directory that holds items.
#[derive(Debug, Clone)]
pub(crate) struct Directory {
    pub(crate) path: Arc<[u8]>,
    /// Highest version of its items. May be too high after a removal, but never too low.
    pub(crate) newest: u64,
    /// Number of its rows, including deleted items.
    pub(crate) rows: u64,
    /// The blocks, sorted by their first names; the first block's name is empty. A small directory
    /// has no blocks.
    blocks: Vec<Block>,
}

/// A range of names, from `from` up to the first name of the next block.
#[derive(Debug, Clone)]
struct Block {
    from: Box<[u8]>,
    newest: u64,
    rows: u64,
}

/// The outcome of a change of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockSize {
    Fits,
    /// The block is to be divided.
    TooLarge,
}

impl BlockSize {
    fn of(rows: u64) -> Self {
        if rows > BLOCK_ROWS_MAX { Self::TooLarge } else { Self::Fits }
    }
}

/// A range of names, from `from` up to but not including `to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NameRange {
    pub(crate) from: Box<[u8]>,
    to: Option<Box<[u8]>>,
}

impl NameRange {
    /// Returns the exclusive end of the range.
    pub(crate) fn to(&self) -> &[u8] {
        self.to.as_deref().unwrap_or(&BEHIND_ALL)
    }
}

impl Directory {
    pub(crate) fn new(path: Arc<[u8]>) -> Self {
        Self { path, newest: 0, rows: 0, blocks: Vec::new() }
    }

    /// Counts a row. Rows must be loaded in the order of their names.
    pub(crate) fn load(&mut self, name: &[u8], seen: u64) {
        if self.rows > 0 && self.rows.is_multiple_of(BLOCK_ROWS) {
            if self.blocks.is_empty() {
                let from = Box::default();
                self.blocks.push(Block { from, newest: self.newest, rows: self.rows });
            }
            self.blocks.push(Block { from: name.into(), newest: 0, rows: 0 });
        }
        if let Some(block) = self.blocks.last_mut() {
            block.newest = block.newest.max(seen);
            block.rows += 1;
        }
        self.newest = self.newest.max(seen);
        self.rows += 1;
    }

    /// Returns the index of the block that a name belongs to. `known` is the index for a smaller or
    /// equal name, where the search begins.
    pub(crate) fn block_from(&self, known: usize, name: &[u8]) -> usize {
        let behind = self.blocks.get(known + 1..).unwrap_or_default();
        match behind.first() {
            Some(next) if *next.from <= *name => {
                known + behind.partition_point(|block| *block.from <= *name)
            }
            _ => known,
        }
    }

    /// Records that rows of a block were written up to the version `newest`, and that its number of
    /// rows changed by `rows`.
    pub(crate) fn change(&mut self, block: usize, newest: u64, rows: i64) -> BlockSize {
        self.newest = self.newest.max(newest);
        self.rows = self.rows.saturating_add_signed(rows);
        let Some(changed) = self.blocks.get_mut(block) else {
            return BlockSize::of(self.rows);
        };
        changed.newest = changed.newest.max(newest);
        changed.rows = changed.rows.saturating_add_signed(rows);
        BlockSize::of(changed.rows)
    }

    /// Removes blocks without rows, and recomputes the directory's highest version. Call it after
    /// all changes of a commit were mirrored, because changes refer to blocks by index.
    pub(crate) fn drop_empty_blocks(&mut self) {
        self.blocks.retain(|block| block.rows > 0);
        if let Some(first) = self.blocks.first_mut() {
            first.from = Box::default();
        }
        let newest = self.blocks.iter().map(|block| block.newest).max();
        self.newest = newest.unwrap_or(self.newest);
    }

    /// Returns the ranges of names at or after `from` that may have versions above `acked_version`. Adjacent
    /// blocks are joined to one range.
    pub(crate) fn newer(&self, acked_version: u64, from: &[u8]) -> Vec<NameRange> {
        if self.newest <= acked_version {
            return Vec::new();
        }
        if self.blocks.is_empty() {
            return vec![NameRange { from: from.into(), to: None }];
        }
        let first = self.block_from(0, from);
        let mut found: Vec<NameRange> = Vec::new();
        let mut open = false;
        for block in self.blocks.iter().skip(first) {
            let newer = block.newest > acked_version;
            match found.last_mut() {
                Some(last) if open && !newer => last.to = Some(block.from.clone()),
                _ if !open && newer => {
                    let from = (&*block.from).max(from).into();
                    found.push(NameRange { from, to: None });
                }
                _ => {}
            }
            open = newer;
        }
        found
    }

    /// Returns the ranges of the blocks that are to be divided.
    pub(crate) fn large(&self) -> Vec<NameRange> {
        if self.blocks.is_empty() {
            let all = NameRange { from: Box::default(), to: None };
            return if self.rows > BLOCK_ROWS_MAX { vec![all] } else { Vec::new() };
        }
        let ends = self.blocks.iter().skip(1).map(|next| Some(next.from.clone()));
        let ends = ends.chain(std::iter::once(None));
        let blocks = self.blocks.iter().zip(ends);
        let large = blocks.filter(|(block, _)| block.rows > BLOCK_ROWS_MAX);
        large.map(|(block, to)| NameRange { from: block.from.clone(), to }).collect()
    }

    /// Divides the block that begins at `from` at these names, which are [`BLOCK_ROWS`] rows apart.
    pub(crate) fn divide(&mut self, from: &[u8], at: Vec<Box<[u8]>>) {
        if at.is_empty() {
            return;
        }
        if self.blocks.is_empty() {
            let from = Box::default();
            self.blocks.push(Block { from, newest: self.newest, rows: self.rows });
        }
        let place = self.block_from(0, from);
        let Some(block) = self.blocks.get_mut(place) else { return };
        let (newest, mut left) = (block.newest, block.rows);
        block.rows = left.min(BLOCK_ROWS);
        left -= block.rows;
        let count = at.len();
        let parts = at.into_iter().enumerate().map(|(part, from)| {
            let rows = if part + 1 == count { left } else { left.min(BLOCK_ROWS) };
            left -= rows;
            Block { from, newest, rows }
        });
        let behind = self.blocks.split_off(place + 1);
        self.blocks.extend(parts);
        self.blocks.extend(behind);
    }
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
