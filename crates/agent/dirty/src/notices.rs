//! Sums up the notifications of a name. Those of names below it, which its check covers, are counted
//! apart: they say nothing about who changed the name itself.

use model::{Notices, Writer};

use crate::set::NotificationInfo;

/// Different writers that are kept for a name; further ones are counted.
pub const WRITERS_MAX: usize = 8;

/// Adds a notification of the name itself.
pub(crate) fn add_notice(notices: &mut Notices, noted: &NotificationInfo) {
    if notices.count == 0 && notices.last_us == 0 {
        notices.first_us = noted.wall_us;
    }
    notices.first_us = notices.first_us.min(noted.wall_us);
    notices.last_us = notices.last_us.max(noted.wall_us);
    notices.count = notices.count.saturating_add(1);
    notices.created |= noted.created;
    notices.removed |= noted.removed;
    notices.moved |= noted.moved;
    if let Some(writer) = noted.writer {
        add_writer(notices, writer);
    }
}

/// Adds the notices of one name to those of another. Keeps at most [`WRITERS_MAX`] writers.
pub fn add_notices(into: &mut Notices, other: &Notices) {
    if into.last_us == 0 {
        into.first_us = other.first_us;
    } else if other.last_us != 0 {
        into.first_us = into.first_us.min(other.first_us);
    }
    into.last_us = into.last_us.max(other.last_us);
    into.count = into.count.saturating_add(other.count);
    into.created |= other.created;
    into.removed |= other.removed;
    into.moved |= other.moved;
    for writer in &other.writers {
        add_writer(into, *writer);
    }
    into.others_below |= other.others_below;
    into.more_writers = into.more_writers.saturating_add(other.more_writers);
}

/// Adds a notification of a name below. It says nothing about the writer of the name itself.
pub(crate) fn add_notice_below(notices: &mut Notices, noted: &NotificationInfo) {
    let below = NotificationInfo { created: false, removed: false, moved: false, ..*noted };
    add_notice(notices, &NotificationInfo { writer: None, ..below });
    notices.others_below |= noted.writer.is_some_and(|writer| is_other(notices, writer));
}

/// Adds the notices of a name below.
pub(crate) fn add_notices_below(into: &mut Notices, below: &Notices) {
    let others = below.others_below
        || below.more_writers > 0
        || below.writers.iter().any(|writer| is_other(into, *writer));
    let Notices { first_us, last_us, count, .. } = *below;
    add_notices(into, &Notices { first_us, last_us, count, ..Notices::default() });
    into.others_below |= others;
}

fn is_other(notices: &Notices, writer: Writer) -> bool {
    !notices.writers.iter().any(|known| known.pid == writer.pid)
}

fn add_writer(notices: &mut Notices, writer: Writer) {
    if let Some(known) = notices.writers.iter_mut().find(|known| known.pid == writer.pid) {
        known.add(&writer);
    } else if notices.writers.len() < WRITERS_MAX {
        notices.writers.push(writer);
    } else {
        notices.more_writers = notices.more_writers.saturating_add(1);
    }
}
