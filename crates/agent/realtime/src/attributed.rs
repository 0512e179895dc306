//! Attribution, or the reason why there is none.

use std::sync::Arc;

use attribution::{Attribution, Options};
use model::{Actor, Writer};
use watch::OriginLookup;

use crate::status::AttributionStatus;

/// The process table, if it could be started.
pub(crate) enum Attributed {
    By(Box<Attribution>),
    Off { reason: String },
}

impl Attributed {
    /// Starts the process table. Without the rights for it changes are not attributed, which is
    /// not an error.
    pub(crate) fn start(options: Option<Options>) -> Self {
        let Some(options) = options else {
            return Self::Off { reason: "off by configuration".into() };
        };
        match Attribution::start(options) {
            Ok(attribution) => Self::By(Box::new(attribution)),
            Err(problem) => {
                tracing::warn!("changes are not attributed to processes: {problem}");
                Self::Off { reason: problem.to_string() }
            }
        }
    }

    /// Returns the actors of the writers; none if changes are not attributed.
    pub(crate) fn resolve(&self, writers: &[Writer]) -> Vec<Actor> {
        match self {
            Self::By(attribution) => attribution.resolve(writers),
            Self::Off { .. } => Vec::new(),
        }
    }

    /// Returns the function by which the watcher assigns names to the queues of their users.
    pub(crate) fn origins(&self) -> Option<OriginLookup> {
        match self {
            Self::By(attribution) => Some(OriginLookup(Arc::new(attribution.origins()))),
            Self::Off { .. } => None,
        }
    }

    /// Sets the function that is called after each exec.
    pub(crate) fn on_exec(&self, callback: impl Fn() + Send + Sync + 'static) {
        if let Self::By(attribution) = self {
            attribution.on_exec(callback);
        }
    }

    pub(crate) fn status(&self) -> AttributionStatus {
        match self {
            Self::By(attribution) => AttributionStatus::from(attribution.status()),
            Self::Off { reason } => {
                AttributionStatus { reason: reason.clone(), ..AttributionStatus::default() }
            }
        }
    }
}
