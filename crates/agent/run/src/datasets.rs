//! The datasets that an agent reports.

/// A dataset. [`DatasetKind::ALL`] is the order in which they are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DatasetKind {
    Files,
    Packages,
}

impl DatasetKind {
    pub(crate) const ALL: [Self; 2] = [Self::Files, Self::Packages];

    /// Returns the suffix that names the dataset in console output; empty for files.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Files => "",
            Self::Packages => " packages",
        }
    }
}
