//! The datasets that an agent reports.

/// One of the datasets, in the order in which they are reported: a session sends events of any
/// dataset, so they go with the first one that has room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DatasetKind {
    Files,
    Packages,
}

impl DatasetKind {
    pub(crate) const ALL: [Self; 2] = [Self::Files, Self::Packages];

    /// Returns what follows the first word of a line for people.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Files => "",
            Self::Packages => " packages",
        }
    }
}
