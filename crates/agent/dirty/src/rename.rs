//! Applies a rename: both names become due together, and a directory moves in the index.

use model::Depth;

use crate::decode::{Entry, Handle, Notification};
use crate::directory_index::{MoveOutcome, NodeId, Role};
use crate::files::Link;
use crate::set::NotificationInfo;
use crate::track::Tracker;

impl Tracker {
    pub(crate) fn apply_rename(
        &mut self,
        notification: &Notification<'_>,
        noted: &NotificationInfo,
    ) {
        let Notification { mask, entry: from, moved_to: to, object, .. } = *notification;
        let is_directory = mask & libc::FAN_ONDIR != 0;
        let depth = if is_directory { Depth::Below } else { Depth::Name };
        let old = self.watched_places(from, Depth::Name, noted);
        let new = self.watched_places(to, depth, noted);
        let mut noted_slots = Vec::new();
        for (entry, places, created) in [(from, &old, false), (to, &new, true)] {
            let Some(entry) = entry else { continue };
            let noted = NotificationInfo { created, ..*noted };
            let slots = places
                .iter()
                .filter_map(|place| self.note(*place, entry.name, Depth::Name, &noted));
            noted_slots.extend(slots.collect::<Vec<_>>());
        }
        if let Some((first, others)) = noted_slots.split_first() {
            for other in others {
                self.dirty.connect(*first, *other);
            }
        }
        if let Some(Handle(object)) = object {
            let from_name = from.map(|entry| entry.name).unwrap_or_default();
            let to_name = to.map(|entry| entry.name).unwrap_or_default();
            if is_directory {
                self.move_directory(object, (&old, from_name), (&new, to_name), noted);
            } else {
                self.move_file(object, (&old, from_name), (&new, to_name));
            }
        }
        if is_directory {
            let places =
                old.iter().zip(from.iter().cycle()).chain(new.iter().zip(to.iter().cycle()));
            for (place, entry) in places {
                self.change_roots(*place, entry.name, noted);
            }
        }
    }

    /// Returns the watched places of a directory. Makes roots dirty if the directory is above them.
    fn watched_places(
        &mut self,
        entry: Option<Entry<'_>>,
        depth: Depth,
        noted: &NotificationInfo,
    ) -> Vec<NodeId> {
        let Some(entry) = entry else { return Vec::new() };
        let mut places = self.places(entry, depth, noted);
        for place in &places {
            if self.index.role(*place) == Role::Outside {
                self.change_roots(*place, entry.name, noted);
            }
        }
        places.retain(|place| self.index.role(*place) == Role::Watched);
        places
    }

    /// Moves a directory in the index, and makes both names due completely if the outcome is not
    /// certain.
    ///
    /// The nodes are found by their old place, so they are searched before the first of them moves.
    /// A node moves before its check is carried: a cycle must carry nothing, and the note may merge
    /// names, which groups those below the directory by their place in the index. `compare` is
    /// complete only after the loop.
    fn move_directory(
        &mut self,
        object: &[u8],
        (old, old_name): (&[NodeId], &[u8]),
        (new, new_name): (&[NodeId], &[u8]),
        noted: &NotificationInfo,
    ) {
        // Two renames of one directory may be merged, so their order is not known.
        let again = !self.renamed.insert(object.into());
        let places = self.index.places(object);
        let mut nodes = old.iter().filter_map(|parent| {
            let at_place = |node: &&NodeId| self.index.place(**node) == Some((*parent, old_name));
            places.iter().find(at_place).copied()
        });
        let nodes: Vec<NodeId> = nodes.by_ref().collect();
        let mut compare = again;
        for (number, parent) in new.iter().enumerate() {
            let Some(node) = nodes.get(number) else {
                self.add_directory(*parent, new_name, object);
                compare = true;
                continue;
            };
            match self.index.rename(*node, *parent, new_name) {
                MoveOutcome::Done => {}
                MoveOutcome::Replaced => compare = true,
                MoveOutcome::Cycle => return self.dirty_all(noted),
            }
            let role = self.special_role(*parent, new_name);
            self.index.set_role(*node, role);
            self.carry(*node, old, old_name, (*parent, new_name), noted);
        }
        for node in nodes.iter().skip(new.len()) {
            self.forget_later(*node);
        }
        if compare {
            let old = old.iter().map(|place| (*place, old_name));
            for (place, name) in old.chain(new.iter().map(|place| (*place, new_name))) {
                self.note(place, name, Depth::Below, noted);
            }
        }
    }

    /// Gives the new name of a directory the depth of the check that waits under the old name.
    fn carry(
        &mut self,
        node: NodeId,
        old: &[NodeId],
        old_name: &[u8],
        (parent, name): (NodeId, &[u8]),
        noted: &NotificationInfo,
    ) {
        let pending = old.iter().find_map(|place| self.dirty.find(*place, old_name));
        let pending = pending.and_then(|slot| self.dirty.entry(slot));
        let Some((depth, covers)) = pending.map(|entry| (entry.depth, entry.covers)) else {
            return;
        };
        if depth == Depth::Name {
            return;
        }
        let slot = self.note(parent, name, depth, noted);
        if let Some(slot) = slot.filter(|_| covers == Some(node)) {
            self.dirty.take_cover(node, slot);
        }
    }

    fn move_file(
        &mut self,
        object: &[u8],
        (old, old_name): (&[NodeId], &[u8]),
        (new, new_name): (&[NodeId], &[u8]),
    ) {
        match new.first() {
            Some(place) => self.inodes.place(object, *place),
            None => self.inodes.remove(object),
        }
        if self.files.links(object).is_empty() {
            return;
        }
        let link = |place: &NodeId, name: &[u8]| Link { directory: *place, name: name.into() };
        for place in new {
            self.files.add(object, link(place, new_name), &self.index);
        }
        for place in old {
            self.files.removed(object, &link(place, old_name));
        }
    }
}
