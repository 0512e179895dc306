//! Columns of events.

use model::timestamp::parse_micros;
use model::{CauseKind, CoverageKind, GAP_ID_BYTES_MAX};
use serde::Deserialize;

use crate::kind::EventKind;
use crate::text::{Text, text};
use crate::{CANDIDATES_MAX, CAUSE_TEXT_BYTES_MAX};

/// Returns a text of a cause, unless it is empty or too long for an index.
fn short<'b>(text: &'b Text<'_>) -> Option<&'b str> {
    Some(text.as_str()).filter(|text| (1..=CAUSE_TEXT_BYTES_MAX).contains(&text.len()))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Meta<'a> {
    #[serde(borrow)]
    action: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct FileField<'a> {
    #[serde(borrow)]
    path: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Holdfast<'a> {
    #[serde(borrow)]
    changed_fields: Vec<Text<'a>>,
    #[serde(borrow)]
    cause: Option<CauseField<'a>>,
    #[serde(borrow)]
    coverage: Option<GapField<'a>>,
    #[serde(borrow)]
    item: Option<Text<'a>>,
    #[serde(borrow)]
    previous: Option<FileField<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CauseField<'a> {
    kind: CauseKind,
    attention: bool,
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    package: Option<NameField<'a>>,
}

/// A user, a program or a package.
#[derive(Deserialize, Default)]
#[serde(default)]
struct NameField<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ProcessField<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    candidates: Vec<NameField<'a>>,
    #[serde(borrow)]
    earlier: Vec<NameField<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct GapField<'a> {
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    path: Text<'a>,
    #[serde(borrow)]
    gap: Text<'a>,
    open: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct EventColumns<'a> {
    #[serde(borrow, rename = "@timestamp")]
    timestamp: Text<'a>,
    #[serde(borrow)]
    event: Meta<'a>,
    #[serde(borrow)]
    file: Option<FileField<'a>>,
    #[serde(borrow)]
    user: Option<NameField<'a>>,
    #[serde(borrow)]
    process: Option<ProcessField<'a>>,
    #[serde(borrow)]
    holdfast: Holdfast<'a>,
}

impl<'a> EventColumns<'a> {
    /// Reads a body; `None` when it is not a JSON object of an event's shape.
    pub fn read(body: &'a [u8]) -> Option<Self> {
        let body = std::str::from_utf8(body).ok()?;
        if !body.trim_ascii_start().starts_with('{') {
            return None;
        }
        serde_json::from_str(body).ok()
    }

    /// Returns the time at which it was found, microseconds since the epoch.
    pub fn found_us(&self) -> Option<u64> {
        parse_micros(self.timestamp.as_str())
    }

    pub fn kind(&self) -> EventKind {
        EventKind::of_action(self.event.action.as_str())
    }

    pub fn path(&self) -> &str {
        match (&self.file, &self.holdfast.coverage) {
            (Some(file), _) => file.path.as_str(),
            (None, Some(gap)) => gap.path.as_str(),
            (None, None) => text(self.holdfast.item.as_ref()).unwrap_or_default(),
        }
    }

    /// Returns the former path of what was moved.
    pub fn moved_from(&self) -> Option<&str> {
        let previous = self.holdfast.previous.as_ref()?;
        (self.kind() == EventKind::Moved).then(|| previous.path.as_str())
    }

    /// Returns the name of the user that made the change, or the number of one without a name.
    pub fn user(&self) -> Option<&str> {
        let user = self.user.as_ref()?;
        let name = user.name.as_str();
        Some(if name.is_empty() { user.id.as_str() } else { name }).filter(|name| !name.is_empty())
    }

    /// Returns the name of the executable that made the change.
    pub fn process(&self) -> Option<&str> {
        let process = self.process.as_ref()?;
        Some(process.name.as_str()).filter(|name| !name.is_empty())
    }

    /// Returns the different names of further programs that may have made the change, in their
    /// order; at most [`CANDIDATES_MAX`].
    pub fn candidates(&self) -> Vec<&str> {
        let Some(process) = self.process.as_ref() else { return Vec::new() };
        let mut names: Vec<&str> = Vec::new();
        for program in process.candidates.iter().chain(&process.earlier).take(CANDIDATES_MAX) {
            let name = program.name.as_str();
            let is_new = !names.contains(&name) && name != process.name.as_str();
            if is_new && !name.is_empty() {
                names.push(name);
            }
        }
        names
    }

    /// Returns the kind of the cause under which the change is listed and counted: one that needs
    /// attention is with the unexplained.
    pub fn cause(&self) -> CauseKind {
        let cause = self.holdfast.cause.as_ref().filter(|cause| !cause.attention);
        cause.map(|cause| cause.kind).unwrap_or_default()
    }

    /// Returns the id that the changes of one transaction or run share.
    pub fn cause_id(&self) -> Option<&str> {
        self.holdfast.cause.as_ref().and_then(|cause| short(&cause.id))
    }

    /// Returns the name of the package that accounts for the change.
    pub fn cause_package(&self) -> Option<&str> {
        self.holdfast.cause.as_ref()?.package.as_ref().and_then(|package| short(&package.name))
    }

    /// Returns true for a whole gap in which the agent was not running or not heard.
    pub fn is_absence(&self) -> bool {
        [CoverageKind::AgentDown, CoverageKind::AgentSilent, CoverageKind::AgentStopped]
            .iter()
            .any(|absence| self.gap_kind() == Some(absence.name()))
    }

    /// Returns true if the agent has lost events, or has forgotten which gaps it reported.
    pub fn has_lost_gaps(&self) -> bool {
        [CoverageKind::DatabaseRebuilt, CoverageKind::EventsDropped]
            .iter()
            .any(|lost| self.gap_kind() == Some(lost.name()))
    }

    fn gap_kind(&self) -> Option<&str> {
        self.holdfast.coverage.as_ref().map(|gap| gap.kind.as_str())
    }

    /// Returns the agent's id of the gap of which the event is an end, and true if it is the start;
    /// `None` if the event reports a gap as a whole.
    pub fn lasting_gap(&self) -> Option<(&str, bool)> {
        let gap = self.holdfast.coverage.as_ref()?;
        let id = gap.gap.as_str();
        (1..=GAP_ID_BYTES_MAX).contains(&id.len()).then_some((id, gap.open))
    }

    /// Returns true if the event opens a gap.
    pub fn opens_gap(&self) -> bool {
        self.event.action.as_str() == EventKind::OpenGap.name()
    }

    /// Returns the names of the fields that differ, separated by commas (no field's name has one).
    pub fn changed(&self) -> String {
        let names: Vec<&str> = self.holdfast.changed_fields.iter().map(Text::as_str).collect();
        names.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_columns_are_extracted() {
        let body = br#"{"@timestamp":"1970-01-01T00:00:01Z","event":{"action":"modified"},
            "file":{"path":"/a"},"holdfast":{"changed_fields":["mode","uid"]}}"#;
        let event = EventColumns::read(body).unwrap();
        assert_eq!(event.found_us(), Some(1_000_000));
        assert_eq!((event.kind(), event.path()), (EventKind::Modified, "/a"));
        assert_eq!(event.changed(), "mode,uid");
    }

    #[test]
    fn candidates_are_other_programs_in_their_order() {
        let body = br#"{"process":{"pid":7,"name":"cat","candidates":[{"name":"bash"},{}],
            "earlier":[{"name":"cat"},{"name":"sh"},{"name":"bash"}]}}"#;
        let event = EventColumns::read(body).unwrap();
        assert_eq!((event.process(), event.candidates()), (Some("cat"), vec!["bash", "sh"]));
        let none = EventColumns::read(br#"{"process":{"name":"cat"}}"#).unwrap();
        assert_eq!(none.candidates(), Vec::<&str>::new());
    }

    #[test]
    fn cause_columns_are_extracted_unless_they_are_too_long() {
        let cause = |id: &str| {
            format!(
                r#"{{"event":{{"action":"modified"}},"holdfast":{{"cause":{{"kind":"package",
                "id":"{id}","package":{{"name":"bash","version":"5.2"}}}}}}}}"#
            )
        };
        let body = cause("apt-1");
        let event = EventColumns::read(body.as_bytes()).unwrap();
        assert_eq!(event.cause(), CauseKind::Package);
        assert_eq!((event.cause_id(), event.cause_package()), (Some("apt-1"), Some("bash")));
        for id in ["", &"x".repeat(CAUSE_TEXT_BYTES_MAX + 1)] {
            let body = cause(id);
            assert_eq!(EventColumns::read(body.as_bytes()).unwrap().cause_id(), None, "{id}");
        }
        let body = br#"{"holdfast":{"cause":{"kind":"deployment","attention":true}}}"#;
        assert_eq!(EventColumns::read(body).unwrap().cause(), CauseKind::Unexplained);
        let body =
            br#"{"event":{"action":"modified"},"holdfast":{"cause":{"kind":"of_tomorrow"}}}"#;
        assert_eq!(EventColumns::read(body).unwrap().cause(), CauseKind::Unexplained);
    }
}
