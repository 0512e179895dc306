//! Journal first, then apply, then checkpoint; replay.
//!
//! A submitted record is appended to the journal, persisted by the group that it shares with
//! others, and applied to the state by the one applier in journal order; only then is it answered.
//! The journal's position is the state's position.
//!
//! # Invariants
//! - What [`Commit::submit`] answered survives a power cut: it is in the journal, or below a
//!   completed checkpoint of the state.
//! - Replay starts behind the position that the state stored with what it applied: nothing is
//!   applied twice, nothing is left out; a journal that lacks records the state needs is refused.
//! - The journal is trimmed only below the position of the last *completed* checkpoint.
//! - Nothing waits without bound: beyond the limits a submit is refused as [`CommitError::Full`].

pub mod error;
pub mod options;

pub use error::CommitError;
pub use options::{CommitOptions, CommitStats, Committed, ReplayReport};
