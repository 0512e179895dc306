//! The keys of rows, directories and blocks.

/// The key of an item's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ItemPlace<'a> {
    pub(crate) dataset: i64,
    pub(crate) directory: i64,
    pub(crate) name: &'a [u8],
}

impl<'a> ItemPlace<'a> {
    /// Returns the key as the first three parameters of a statement.
    pub(crate) fn params(self) -> (i64, i64, &'a [u8]) {
        (self.dataset, self.directory, self.name)
    }
}

/// The key of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DirectoryPlace {
    pub(crate) dataset: i64,
    pub(crate) directory: i64,
}

/// The key of a block of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlockPlace {
    pub(crate) dataset: i64,
    pub(crate) directory: i64,
    /// Index of the block in the directory.
    pub(crate) block: usize,
}
