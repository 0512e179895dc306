//! The state of an item in a document or an event, reduced to the parts that show a change.

use model::{ChangeKind, PackageDocument};
use model::{Dataset, EventBody, FileBody, FileDocument, ItemKey, Names, PackageBody};
use queue::Body;

/// An item before the change that an event reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ItemBefore {
    pub(super) key: ItemKey,
    /// `None` if it did not exist.
    pub(super) before: Option<Item>,
}

/// The state of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    File(Box<FileBody>),
    /// An installed package.
    Package(Box<PackageBody>),
}

impl Item {
    /// Returns the item of a document of the server; `None` if it is of another dataset.
    pub(super) fn of_document(dataset: &Dataset, json: &str) -> Option<Self> {
        if dataset.name() == Dataset::FIM_FILES {
            let document = serde_json::from_str::<FileDocument>(json).ok()?;
            return Some(Self::File(Box::new(document.file)));
        }
        let document = PackageDocument::from_json(json.as_bytes())?;
        let has_name = !document.package.name.is_empty();
        has_name.then(|| Self::Package(Box::new(document.package)))
    }

    /// Returns the item of a body of the queue; `None` if it was deleted or is of another dataset.
    pub(super) fn of_body(
        dataset: &Dataset,
        key: &ItemKey,
        body: &Body,
        names: &dyn Names,
    ) -> Option<Self> {
        match body {
            Body::Observation(o) => Some(Self::File(Box::new(FileBody::new(key, o, names)))),
            Body::Document(json) => Self::of_document(dataset, std::str::from_utf8(json).ok()?),
            Body::Gone => None,
        }
    }

    /// Returns the state before the change that an event reports; `None` if the event is not about
    /// an item.
    pub(super) fn before(event: EventBody) -> Option<ItemBefore> {
        let created = event.event.action == ChangeKind::Created.name();
        let file = |body: FileBody| Self::File(Box::new(body));
        let package = |body: PackageBody| Self::Package(Box::new(body));
        let (now, before) = match (event.file, event.package) {
            (Some(now), _) => (file(now), event.holdfast.previous.map(file)),
            (None, Some(now)) => (package(now), event.holdfast.previous_package.map(package)),
            (None, None) => return None,
        };
        let key = now.key();
        // The event of a delete has the last state of the item.
        Some(ItemBefore { key, before: before.or_else(|| (!created).then_some(now)) })
    }

    /// Returns its key in the queue.
    pub(super) fn key(&self) -> ItemKey {
        match self {
            Self::File(file) => {
                let exact = file.path_hex.as_ref().and_then(|text| hex::decode(text).ok());
                ItemKey::of_path(&exact.unwrap_or_else(|| file.path.clone().into_bytes()))
            }
            Self::Package(package) => ItemKey::new(Vec::new(), package.key()),
        }
    }

    /// Returns the event of a change found at this time; `None` if nothing changed.
    pub(super) fn event(
        before: Option<&Self>,
        after: Option<&Self>,
        found_us: u64,
    ) -> Option<EventBody> {
        if before == after {
            return None;
        }
        let packages = (package(before), package(after));
        if packages != (None, None) {
            return EventBody::of_package(packages.0, packages.1, found_us);
        }
        EventBody::of_file(file(before), file(after), found_us)
    }
}

fn file(item: Option<&Item>) -> Option<&FileBody> {
    match item {
        Some(Item::File(file)) => Some(file),
        _ => None,
    }
}

fn package(item: Option<&Item>) -> Option<&PackageBody> {
    match item {
        Some(Item::Package(package)) => Some(package),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(version: &str) -> Item {
        let (name, version) = ("bash".into(), version.into());
        Item::Package(Box::new(PackageBody { name, version, ..PackageBody::default() }))
    }

    #[test]
    fn event_yields_item_state_before_change() {
        let (old, new) = (of("1"), of("2"));
        for (before, after) in [(Some(&old), Some(&new)), (Some(&old), None), (None, Some(&new))] {
            let event = Item::event(before, after, 7).unwrap();
            let expected = ItemBefore { key: old.key(), before: before.cloned() };
            assert_eq!(Item::before(event), Some(expected));
        }
        let file = |size| Item::File(Box::new(FileBody { size: Some(size), ..named() }));
        for (before, after) in
            [(Some(file(1)), Some(file(2))), (Some(file(1)), None), (None, Some(file(2)))]
        {
            let event = Item::event(before.as_ref(), after.as_ref(), 7).unwrap();
            let expected = ItemBefore { key: ItemKey::of_path(b"/a/b"), before };
            assert_eq!(Item::before(event), Some(expected));
        }
        assert_eq!(Item::event(Some(&old), Some(&old), 7), None);
        assert_eq!(Item::event(None, None, 7), None);
    }

    fn named() -> FileBody {
        FileBody { path: "/a/b".into(), ..FileBody::default() }
    }
}
