//! The wire format between agent and server.
//!
//! A session is one FlatBuffers `Message{FullSession}` (`schema/session.fbs`): [`encode()`] and
//! [`SessionBuilder`] write it, [`verify()`] checks a buffer of unknown origin completely and gives
//! a view that borrows the documents' bytes. Answers, heartbeats and enrolment are small JSON
//! objects ([`json`]).
//!
//! Invariants: no buffer, however damaged, makes [`verify()`] panic or read outside it; what it
//! accepts has known enum values, at most [`Limits::values_max`] values and at most
//! [`NAMES_MAX`] names in a list, and expands to at most a few times its own length however often
//! its parts are shared. The bytes are described in `docs/format/session.md`.

pub mod digest;
mod encode;
mod instance;
pub mod json;
mod session;
mod verify;
mod wire;

pub use encode::{SessionBuilder, encode};
pub use instance::{Instance, NoInstance};
pub use json::{
    Answer, ControlAction, ControlAnswer, ControlLimits, ControlOutcome, ControlRequest,
    DigestAnswer, DigestItem, DigestPart, DigestRequest, EnrollAnswer, EnrollRequest, ErrorAnswer,
    RenewAnswer, RenewRequest,
};
pub use session::{Context, Mode, Operation, Payload, Session, SessionValue, Start, SyncOption};
pub use verify::{
    Limits, NAMES_MAX, PayloadView, SessionView, StartView, SyncView, ValueView, VerifyError,
    verify,
};

/// Header in which a local caller of the unix socket names the agent it acts for.
pub const HEADER_AGENT: &str = "x-wazuh-agent-id";
/// Header that carries the agent's session id, stable over retries.
pub const HEADER_SESSION: &str = "x-session-id";
/// Header with the sender's instance: [`Instance`], a dot, and the interval of its heartbeats in
/// milliseconds. Instances of senders that leave it out cannot be distinguished.
pub const HEADER_INSTANCE: &str = "x-holdfast-instance";
/// Header with the agent's wall clock, microseconds since the epoch, from which the server detects
/// a wrong clock. Optional.
pub const HEADER_TIME: &str = "x-holdfast-time";
/// Longest session id, bytes; characters `0-9 A-Z a-z . _ -`.
pub const SESSION_ID_BYTES_MAX: usize = 256;

/// Returns true if the text is a valid value of [`HEADER_SESSION`].
pub fn is_session_id(text: &str) -> bool {
    (1..=SESSION_ID_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}
