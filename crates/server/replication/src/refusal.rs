//! Errors that refuse a follower.

use journal::AppendError;

use crate::protocol::FOLLOWERS_MAX;

/// The reason why a follower is refused. The text ends with the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FollowerRefusal {
    #[error("{0:?} is no name for a follower: use 1 to 48 letters, digits, - and _")]
    Name(String),
    #[error(
        "this follower is of an older version, which does not know decisions as records: upgrade it first"
    )]
    Version,
    #[error(
        "the server's store is {here}, the follower's is {there}: it follows another server, or this \
         one was restored or promoted; follow into a new folder"
    )]
    StoreDiffers { here: String, there: String },
    /// The follower holds records that the server does not.
    #[error(
        "the follower holds records up to {there}, the server only up to {here}: the server lost \
         records; promote the follower, or follow into a new folder"
    )]
    Behind {
        /// Last position of the server.
        here: u64,
        /// Last position of the follower.
        there: u64,
    },
    /// Server and follower hold different records at the same position.
    #[error(
        "record {0} is another one here than in the follower's folder: their histories differ; \
         promote the follower, or follow into a new folder"
    )]
    Diverged(u64),
    /// The journal no longer holds the record that the follower needs.
    #[error(
        "record {from} is not kept any more, the oldest is {first}: the follower was away for too \
         long or was dropped; follow into a new folder"
    )]
    Trimmed {
        /// Position of the record that the follower needs.
        from: u64,
        /// Position of the oldest record in the journal.
        first: u64,
    },
    /// The follower is not known, or was dropped.
    #[error("{0} is no follower of this server any more: follow into a new folder")]
    Unknown(String),
    #[error(
        "there are {FOLLOWERS_MAX} followers already: remove one with DELETE /journal/followers/NAME"
    )]
    TooMany,
    /// The position cannot be acknowledged.
    #[error("position {0} was not sent yet: follow into a new folder")]
    NotSent(u64),
    /// A failure that passes by itself.
    #[error("{0}: try again later")]
    Busy(String),
}

impl From<AppendError> for FollowerRefusal {
    fn from(error: AppendError) -> Self {
        Self::Busy(error.to_string())
    }
}

impl From<journal::ReadError> for FollowerRefusal {
    fn from(error: journal::ReadError) -> Self {
        match error {
            journal::ReadError::Trimmed { position, first } => {
                Self::Trimmed { from: position, first }
            }
            other => Self::Busy(other.to_string()),
        }
    }
}
