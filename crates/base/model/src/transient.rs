//! Files that were created and removed again before they could be compared with the baseline.

use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::event::{EventBody, EventMeta, HoldfastBody};
use crate::notification::Detection;
use crate::path::show;
use crate::timestamp;
use crate::writer_body::{SeenBody, TopBodies};

/// `event.action` of an event of such files.
const ACTION: &str = "transient";
/// Most names in one event.
pub const NAMES_MAX: usize = 16;

/// `holdfast.transient`: the files of one directory in about a minute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct TransientBody {
    /// Number of times that a file was created and removed.
    pub count: u64,
    /// The first [`NAMES_MAX`] different names, escaped for display.
    pub names: Vec<String>,
}

impl EventBody {
    /// Builds the event of files in a directory that no longer exist. `seen` are their notifications.
    pub fn of_transient(
        directory: &[u8],
        transient: TransientBody,
        seen: &Detection,
        cause: Cause,
    ) -> Self {
        let top = TopBodies::new(seen);
        Self {
            timestamp: timestamp::micros(seen.first_us),
            event: EventMeta::new("file", &["creation", "deletion"], ACTION),
            process: top.process,
            user: top.user,
            container: top.container,
            holdfast: HoldfastBody {
                item: Some(show(directory).into_owned()),
                seen: Some(SeenBody::new(seen)),
                transient: Some(transient),
                cause: Some(cause),
                ..HoldfastBody::default()
            },
            ..Self::default()
        }
    }
}
