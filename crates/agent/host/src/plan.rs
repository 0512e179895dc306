//! Computes the operations that make the stored documents equal to an inventory. A pure function.

use std::collections::BTreeMap;

use model::{Cause, EventBody, PackageDocument};

use crate::dpkg::Inventory;

/// Documents by key, as stored in the queue.
pub type StoredDocuments = BTreeMap<Vec<u8>, Vec<u8>>;

/// One item to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    pub key: Vec<u8>,
    /// The document as JSON; `None` if the package is no longer installed.
    pub document: Option<Vec<u8>>,
    /// The change to report.
    pub event: Option<EventBody>,
}

/// Operations to commit together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// Items, by key.
    pub items: Vec<Put>,
    /// Packages that are new.
    pub created: u64,
    /// Packages that changed.
    pub modified: u64,
    /// Packages that were removed.
    pub deleted: u64,
}

impl Plan {
    /// Returns the number of packages that differ.
    pub fn changes(&self) -> u64 {
        self.created + self.modified + self.deleted
    }

    /// Sets the causes of the events by the name of a package and its installed version, which is
    /// empty if it was removed.
    pub fn set_causes(&mut self, mut cause: impl FnMut(&str, &str) -> Option<Cause>) {
        for put in &mut self.items {
            let Some(event) = &mut put.event else { continue };
            let name = put.key.split(|b| *b == b':').next().unwrap_or_default();
            let name = String::from_utf8_lossy(name);
            let installed = event.package.as_ref().filter(|_| put.document.is_some());
            let version = installed.map_or("", |package| &package.version);
            event.holdfast.cause = cause(&name, version).or_else(|| event.holdfast.cause.take());
        }
    }

    /// Formats the number of packages and of those that differ, as a line for people. `report` is
    /// false for a baseline.
    pub fn line(&self, packages: u64, report: bool) -> String {
        let Self { created, modified, deleted, .. } = self;
        if report {
            format!(
                "packages: {packages}; {created} installed, {modified} changed, {deleted} removed"
            )
        } else {
            format!("packages: {packages}; {created} new in the baseline")
        }
    }
}

/// Compares an inventory with the baseline. With `found_at_us` (microseconds since the epoch) every
/// difference has an event; without it, the inventory becomes the baseline and there are no events.
/// A package in [`Inventory::moving`] keeps its document.
pub fn plan(baseline: &StoredDocuments, inventory: &Inventory, found_at_us: Option<u64>) -> Plan {
    let mut plan = Plan::default();
    for (key, package) in &inventory.packages {
        let now = PackageDocument::new(package.clone());
        let json = now.to_json();
        let before = baseline.get(key.as_bytes());
        if before == Some(&json) {
            continue;
        }
        match before {
            Some(_) => plan.modified += 1,
            None => plan.created += 1,
        }
        let before = before.map(|json| PackageDocument::from_json(json).unwrap_or_default());
        let event = event(before.as_ref(), Some(&now), found_at_us);
        plan.items.push(Put { key: key.as_bytes().to_vec(), document: Some(json), event });
    }
    for (key, json) in baseline {
        let there = std::str::from_utf8(key).is_ok_and(|key| {
            inventory.packages.contains_key(key) || inventory.moving.contains_key(key)
        });
        if there {
            continue;
        }
        plan.deleted += 1;
        let before = PackageDocument::from_json(json).unwrap_or_default();
        let event = event(Some(&before), None, found_at_us);
        plan.items.push(Put { key: key.clone(), document: None, event });
    }
    plan
}

fn event(
    before: Option<&PackageDocument>,
    after: Option<&PackageDocument>,
    found_at_us: Option<u64>,
) -> Option<EventBody> {
    let packages = (before.map(|d| &d.package), after.map(|d| &d.package));
    found_at_us.and_then(|us| EventBody::of_package(packages.0, packages.1, us))
}
