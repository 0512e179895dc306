//! Errors of a commit.

use model::Position;

/// The error of a submit, a checkpoint or an open.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The limit of bytes in flight is reached, the disk is full, or the data folder is gone.
    /// Nothing was stored, with the exception in [`crate::Commit::submit`].
    #[error("{0}: try again later")]
    Full(String),
    /// One record is larger than the limit. Nothing was stored.
    #[error("the record has {bytes} bytes, more than {limit}: send smaller sessions")]
    TooLarge { bytes: u64, limit: u64 },
    /// The journal failed earlier. Every submit fails until the program is restarted.
    #[error("the journal failed: {0}: check the disk, then start again")]
    Poisoned(String),
    /// The state failed; the records in the journal are applied at the next start.
    #[error("the state failed: {0}: check the disk, then start again")]
    State(String),
    /// The commit was closed.
    #[error("the server is stopping")]
    Closed,
    /// The journal lacks records that the state needs.
    #[error(
        "the journal begins at record {first}, but the state has applied up to {applied} and needs \
         record {needed} next: records in between are lost; restore state.db and the journal from \
         one backup, or move state.db away together with the journal to start empty"
    )]
    Gap {
        /// First record that the journal holds.
        first: u64,
        /// Last record that the state has applied.
        applied: Position,
        /// Position of the record that the state needs next.
        needed: Position,
    },
    /// The journal ends before what the state has applied.
    #[error(
        "the journal ends at record {end}, but the state has applied up to {applied}: the journal \
         was lost or replaced; restore state.db and the journal from one backup"
    )]
    Behind {
        /// Last record that the journal holds.
        end: u64,
        /// Last record that the state has applied.
        applied: Position,
    },
    /// A newer program wrote a record of the journal. The record was not changed.
    #[error(
        "record {position} of the journal has version {found}, this program knows versions up to \
         {known}: start the newer program that wrote it, or restore a backup made before"
    )]
    NewerRecord {
        position: Position,
        found: u8,
        /// The newest version that this program knows.
        known: u8,
    },
    /// A record that replay needs cannot be read.
    #[error("the journal cannot be read at record {position}: {reason}")]
    Journal { position: u64, reason: String },
}
