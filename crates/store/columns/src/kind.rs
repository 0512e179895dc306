//! Kinds of events.

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// An item appeared.
    Created,
    /// An item changed.
    Modified,
    /// An item disappeared.
    Deleted,
    /// An interval in which changes may have been missed.
    Coverage,
    /// Anything else an agent may send.
    Other,
    /// The start of such an interval, which has not ended.
    OpenGap,
    /// The start of such an interval, which a [`EventKind::Coverage`] has ended since.
    EndedGap,
    /// An item has another name.
    Moved,
    /// Files of a directory were created and removed between two checks.
    Transient,
}

impl EventKind {
    pub const ALL: [Self; 9] = [
        Self::Created,
        Self::Modified,
        Self::Deleted,
        Self::Coverage,
        Self::Other,
        Self::OpenGap,
        Self::EndedGap,
        Self::Moved,
        Self::Transient,
    ];

    /// Changes of items.
    pub const CHANGES: [Self; 5] =
        [Self::Created, Self::Modified, Self::Deleted, Self::Moved, Self::Transient];

    /// Returns the word used in events and in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Modified => "modified",
            Self::Deleted => "deleted",
            Self::Coverage => "coverage",
            Self::Other => "other",
            Self::OpenGap => "gap_opened",
            Self::EndedGap => "gap_ended",
            Self::Moved => "moved",
            Self::Transient => "transient",
        }
    }

    /// Returns true for a gap, whole or only its start.
    pub fn is_gap(self) -> bool {
        matches!(self, Self::Coverage | Self::OpenGap | Self::EndedGap)
    }

    /// Returns the kind for a word of the API.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.name() == name)
    }

    /// Returns the kind of an agent's event by its `event.action`. Only the server opens and ends
    /// gaps.
    pub fn of_action(action: &str) -> Self {
        let known = Self::from_name(action);
        known.filter(|k| !matches!(k, Self::OpenGap | Self::EndedGap)).unwrap_or(Self::Other)
    }
}
