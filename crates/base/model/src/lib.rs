//! The types that every layer of Holdfast shares: identifiers, paths, observations, changes,
//! events, documents, sessions, records, agents and limits. No I/O, no clocks, no threads: values
//! and pure functions over them.
//!
//! The glossary is in `ARCHITECTURE.md`.

pub mod agent;
mod ascii;
pub mod cause;
pub mod change;
mod codec;
pub mod coverage;
pub mod document;
pub mod document_json;
pub mod event;
mod flags;
pub mod ids;
pub mod limits;
pub mod notification;
pub mod observation;
pub mod package;
pub mod path;
mod permitted;
pub mod record;
pub mod timestamp;
pub mod traits;
pub mod transient;
pub mod watched;
pub mod writer_body;

pub use actor::{
    Actor, ActorUser, Attribution, Candidate, Executable, Interval, Origin, ProcessInfo, Writer,
    WriterSeen,
};
pub use agent::{AgentOs, AgentRecord, AgentStatus};
pub use cause::{Cause, CauseKind, CausePackage};
pub use change::{Change, ChangeKind, Field, Fields};
pub use coverage::{Coverage, CoverageKind, GAP_ID_BYTES_MAX, LastingGap, OpenGap};
pub use document::{FileBody, FileDocument, Names};
pub use document_json::FileWriter;
pub use event::EventBody;
pub use flags::Flags;
pub use ids::{AgentId, Dataset, Incarnation, Position};
pub use notification::{Check, Depth, Detection, DirectoryHandles, DueCheck, NoHandles, Notices};
pub use observation::{Hashes, Kind, Observation, ObserveError, Xattr};
pub use package::{PackageBody, PackageDocument};
pub use path::{ItemKey, KeyRef};
pub use permitted::Permitted;
pub use record::{
    AgentEvent, AgentReport, AgentSubject, Applied, Overlay, Record, ReportKind, RetentionEvent,
    SessionRecord, SkipReason, Skipped, Write,
};
pub use traits::{Baseline, BaselineItem, ChangeBatch, Op, Sink, SinkOutcome};
pub use transient::TransientBody;
pub use watched::{CoverageState, WatchReport, WatchedRoot};
pub use writer_body::{ContainerBody, ProcessBody, ProgramBody, SeenBody, UserBody};
