//! Immutable events: one change or one gap, with its time, as ECS-shaped JSON.
//!
//! ECS has no before and after: `holdfast.previous`, `holdfast.changed_fields`, `holdfast.cause`
//! and `holdfast.coverage` carry them.

use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::change::{Change, ChangeKind, Field};
use crate::coverage::{Coverage, OpenGap};
use crate::document::{FileBody, Names};
use crate::package::PackageBody;
use crate::timestamp;
use crate::transient::TransientBody;
use crate::writer_body::{ContainerBody, ProcessBody, SeenBody, TopBodies, UserBody};

/// `event.action` of a coverage event.
const ACTION_COVERAGE: &str = "coverage";
/// `event.action` of an event that opens a gap.
const ACTION_GAP_OPENED: &str = "gap_opened";

/// `event.*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct EventMeta {
    /// Always `event`.
    pub kind: String,
    /// `["file"]`, `["package"]`, or `["host"]` for coverage.
    pub category: Vec<String>,
    /// `["creation"]` (of a package `["installation"]`), `["change"]`, `["deletion"]` or
    /// `["info"]`.
    #[serde(rename = "type")]
    pub kinds: Vec<String>,
    /// `created`, `modified`, `deleted`, `moved`, `transient`, `coverage` or `gap_opened`.
    pub action: String,
}

impl EventMeta {
    pub(crate) fn new(category: &str, kinds: &[&str], action: &str) -> Self {
        let kinds = kinds.iter().map(ToString::to_string).collect();
        Self { kind: "event".into(), category: vec![category.into()], kinds, action: action.into() }
    }
}

/// `holdfast.*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct HoldfastBody {
    /// The file before the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<FileBody>,
    /// The package before the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_package: Option<PackageBody>,
    /// Key of an item that is not a file, in place of a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    /// [`Field::name`]s that differ; for a package, the names of its fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_fields: Vec<String>,
    /// Explanation of the change; absent on coverage events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The notifications of the change and its writers; absent if a scan found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<SeenBody>,
    /// The files, on events of files that no longer exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transient: Option<TransientBody>,
    /// The gap, on coverage events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<Coverage>,
    /// The start of a gap, on events that open one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_gap: Option<OpenGap>,
}

/// An event's body, as the agent queues it and the server keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct EventBody {
    /// Time of the first notification of the change, or else the time at which the agent found it,
    /// RFC 3339 with microseconds.
    #[serde(rename = "@timestamp")]
    pub timestamp: String,
    pub event: EventMeta,
    /// The file after the change, or as it last was when deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileBody>,
    /// The package after the change, or as it last was when removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<PackageBody>,
    /// The process that made the change, if it is the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessBody>,
    /// The user that made the change: the login user if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserBody>,
    /// The container of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerBody>,
    /// Fields that ECS does not have.
    #[serde(default)]
    pub holdfast: HoldfastBody,
}

impl EventBody {
    /// Builds the event of a change.
    pub fn of_change(change: &Change, names: &dyn Names) -> Self {
        let from = change.from.as_ref().unwrap_or(&change.key);
        let before = change.before.as_ref().map(|o| FileBody::new(from, o, names));
        let after = change.after.as_ref().map(|o| FileBody::new(&change.key, o, names));
        let (file, previous) = match change.kind {
            ChangeKind::Deleted => (before, None),
            _ => (after, before),
        };
        let seen = change.seen.as_deref();
        let top = seen.map(TopBodies::new).unwrap_or_default();
        let notified = seen.filter(|seen| seen.notices > 0);
        let notified_us = notified.map(|seen| seen.first_us.max(seen.not_before_us));
        Self {
            timestamp: timestamp::micros(notified_us.unwrap_or(change.found_at_us)),
            event: EventMeta::new("file", &[change.kind.ecs_type()], change.kind.name()),
            file,
            package: None,
            process: top.process,
            user: top.user,
            container: top.container,
            holdfast: HoldfastBody {
                previous,
                changed_fields: change.fields.iter().map(Field::name).map(String::from).collect(),
                cause: Some(change.cause.as_deref().cloned().unwrap_or_default()),
                seen: seen.map(SeenBody::new),
                ..HoldfastBody::default()
            },
        }
    }

    /// Builds the event of a file of which only documents are known: created (no `before`), deleted
    /// (no `after`) or changed, found at this time in microseconds since the epoch. Returns `None`
    /// if there is neither document, or no [`Field`] differs.
    pub fn of_file(
        before: Option<&FileBody>,
        after: Option<&FileBody>,
        found_at_us: u64,
    ) -> Option<Self> {
        let kind = match (before, after) {
            (None, None) => return None,
            (None, Some(_)) => ChangeKind::Created,
            (Some(_), None) => ChangeKind::Deleted,
            (Some(_), Some(_)) => ChangeKind::Modified,
        };
        let fields = before.zip(after).map(|(a, b)| a.difference(b)).unwrap_or_default();
        if kind == ChangeKind::Modified && fields.is_empty() {
            return None;
        }
        Some(Self {
            timestamp: timestamp::micros(found_at_us),
            event: EventMeta::new("file", &[kind.ecs_type()], kind.name()),
            file: after.or(before).cloned(),
            holdfast: HoldfastBody {
                previous: before.filter(|_| after.is_some()).cloned(),
                changed_fields: fields.into_iter().map(Field::name).map(String::from).collect(),
                cause: Some(Cause::default()),
                ..HoldfastBody::default()
            },
            ..Self::default()
        })
    }

    /// Builds the event of a package that was installed (no `before`), removed (no `after`) or
    /// changed, found at this time in microseconds since the epoch. Returns `None` if both are
    /// absent. Unlike [`EventBody::of_file`], it does not check that a field differs.
    pub fn of_package(
        before: Option<&PackageBody>,
        after: Option<&PackageBody>,
        found_at_us: u64,
    ) -> Option<Self> {
        let (kind, ecs_type) = match (before, after) {
            (None, None) => return None,
            (None, Some(_)) => (ChangeKind::Created, "installation"),
            (Some(_), None) => (ChangeKind::Deleted, ChangeKind::Deleted.ecs_type()),
            (Some(_), Some(_)) => (ChangeKind::Modified, ChangeKind::Modified.ecs_type()),
        };
        let fields = before.zip(after).map(|(a, b)| a.difference(b)).unwrap_or_default();
        let shown = after.or(before);
        Some(Self {
            timestamp: timestamp::micros(found_at_us),
            event: EventMeta::new("package", &[ecs_type], kind.name()),
            package: shown.cloned(),
            holdfast: HoldfastBody {
                previous_package: before.filter(|_| after.is_some()).cloned(),
                item: shown.map(PackageBody::key),
                changed_fields: fields.into_iter().map(String::from).collect(),
                cause: Some(Cause::default()),
                ..HoldfastBody::default()
            },
            ..Self::default()
        })
    }

    /// Builds the event of a gap; its time is the gap's end. A start after the end, which results
    /// from a clock that was set back, becomes the end.
    pub fn of_coverage(coverage: Coverage) -> Self {
        let coverage = Coverage { from_us: coverage.from_us.min(coverage.to_us), ..coverage };
        let timestamp = timestamp::micros(coverage.to_us);
        let body = HoldfastBody { coverage: Some(coverage), ..HoldfastBody::default() };
        Self::of_host(timestamp, ACTION_COVERAGE, body)
    }

    /// Builds the event that opens a gap; its time is the gap's start.
    pub fn of_open_gap(gap: OpenGap) -> Self {
        let timestamp = timestamp::micros(gap.from_us);
        let body = HoldfastBody { open_gap: Some(gap), ..HoldfastBody::default() };
        Self::of_host(timestamp, ACTION_GAP_OPENED, body)
    }

    fn of_host(timestamp: String, action: &str, holdfast: HoldfastBody) -> Self {
        let event = EventMeta::new("host", &["info"], action);
        Self { timestamp, event, holdfast, ..Self::default() }
    }

    /// Returns the event's time in microseconds since the epoch; 0 if the text is not a time.
    pub fn time_us(&self) -> u64 {
        timestamp::parse_micros(&self.timestamp).unwrap_or(0)
    }

    /// Returns the path concerned: the file's or the gap's, or the key of an item that is not a
    /// file.
    pub fn path(&self) -> &str {
        match (&self.file, &self.holdfast.coverage) {
            (Some(file), _) => &file.path,
            (None, Some(coverage)) => &coverage.path,
            (None, None) => self.holdfast.item.as_deref().unwrap_or_default(),
        }
    }

    /// Returns the event as JSON bytes.
    pub fn to_json(&self) -> Vec<u8> {
        // A struct of strings and numbers always serialises.
        serde_json::to_vec(self).unwrap_or_default()
    }
}
