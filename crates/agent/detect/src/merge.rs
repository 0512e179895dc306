//! Pure functions of a scan: merges two sorted lists, and compares two observations of an item.

use std::cmp::Ordering;

use model::traits::BaselineItem;
use model::{Field, Fields, Kind, Observation, ObserveError};
use observe::Listing;
use rules::Attribute;

/// A name of the disk, the baseline or both, as indexes into the listing and the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MergedName {
    /// On the disk only: index into the listing.
    New(usize),
    /// In both: indexes into listing and baseline.
    Both(usize, usize),
    /// In the baseline only: index into the baseline.
    Gone(usize),
}

/// Sorts the baseline's items by name, unless they are sorted already.
pub(crate) fn sort(items: &mut [BaselineItem]) {
    if !items.is_sorted_by(|a, b| a.name <= b.name) {
        items.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    }
}

/// Returns the next name of both sorted lists, and advances the indexes `at` past it.
pub(crate) fn next(
    listing: &Listing,
    items: &[BaselineItem],
    at: &mut (usize, usize),
) -> Option<MergedName> {
    let entry = listing.get(at.0).map(|(name, _)| name);
    let item = items.get(at.1).map(|i| i.name.as_slice());
    let order = match (entry, item) {
        (None, None) => return None,
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (Some(entry), Some(item)) => entry.cmp(item),
    };
    let (entry, item) = *at;
    Some(match order {
        Ordering::Less => {
            at.0 += 1;
            MergedName::New(entry)
        }
        Ordering::Equal => {
            *at = (entry + 1, item + 1);
            MergedName::Both(entry, item)
        }
        Ordering::Greater => {
            at.1 += 1;
            MergedName::Gone(item)
        }
    })
}

/// Result of comparing two observations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing to write.
    Same,
    /// Only bookkeeping differs, such as the time of the last verification.
    Touch,
    /// The document differs because the rules or the device number changed, not the item.
    Quiet,
    /// Part of a first scan.
    Baseline,
    /// A new item.
    Created,
    /// A different item.
    Modified(Fields),
}

/// Which attributes count as changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mask(Fields);

impl Mask {
    pub(crate) fn new(attributes: &[Attribute]) -> Self {
        let mut fields = Fields::default();
        for attribute in attributes {
            fields.insert(attribute.field());
        }
        fields.insert(Field::Kind);
        fields.insert(Field::Error);
        Self(fields)
    }

    fn apply(self, fields: Fields) -> Fields {
        let mut kept = Fields::default();
        for field in fields.iter().filter(|f| self.0.contains(*f)) {
            kept.insert(field);
        }
        kept
    }
}

/// Compares `now` with the baseline. `renumbered` says that the device number in `before` was
/// translated.
pub(crate) fn judge(
    before: Option<&Observation>,
    now: &Observation,
    mask: Mask,
    first: bool,
    renumbered: bool,
) -> Verdict {
    let Some(before) = before else {
        return if first { Verdict::Baseline } else { Verdict::Created };
    };
    let mut fields = before.difference(now);
    if limit_moved(before, now, fields) {
        fields = Fields::default();
    }
    let counted = mask.apply(fields);
    if !counted.is_empty() {
        Verdict::Modified(counted)
    } else if renumbered || !fields.is_empty() || report_differs(before, now) {
        Verdict::Quiet
    } else if before == now {
        Verdict::Same
    } else {
        Verdict::Touch
    }
}

/// Returns true if only the rule's size limit changed, not the file.
fn limit_moved(before: &Observation, now: &Observation, fields: Fields) -> bool {
    let limited = |e| matches!(e, None | Some(ObserveError::TooLarge));
    fields.iter().eq([Field::Error]) && limited(before.error) && limited(now.error)
}

/// Returns true if the documents differ although no field does, for example because a digest was
/// added.
fn report_differs(before: &Observation, now: &Observation) -> bool {
    before.hashes != now.hashes || (before.error != now.error && now.kind != Kind::Directory)
}

/// Moves the observation out of a baseline item that is not used again.
pub(crate) fn take_observation(item: &mut BaselineItem) -> Box<Observation> {
    Box::new(std::mem::replace(&mut item.observation, Observation::empty(Kind::File)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Observation {
        let mut o = Observation::empty(Kind::File);
        o.hashes.sha256 = Some([1; 32]);
        o
    }

    fn judged(before: &Observation, now: &Observation) -> Verdict {
        judge(Some(before), now, Mask::new(&Attribute::ALL), false, false)
    }

    #[test]
    fn verification_time_alone_is_a_touch() {
        let mut verified = file();
        verified.verified_at_s = 9;
        assert_eq!(judged(&file(), &verified), Verdict::Touch);
        assert_eq!(judged(&file(), &file()), Verdict::Same);
    }

    #[test]
    fn added_digest_and_changed_size_limit_are_quiet_updates() {
        let mut more = file();
        more.hashes.md5 = Some([2; 16]);
        assert_eq!(judged(&file(), &more), Verdict::Quiet);
        let mut large = file();
        large.error = Some(ObserveError::TooLarge);
        large.hashes = model::Hashes::default();
        assert_eq!(judged(&large, &file()), Verdict::Quiet);
        large.error = Some(ObserveError::Os(5));
        assert!(matches!(judged(&large, &file()), Verdict::Modified(_)));
    }

    #[test]
    fn unselected_attributes_are_quiet_updates() {
        let mut chmod = file();
        chmod.mode = 0o600;
        chmod.ctime_ns = 7;
        let mask = Mask::new(&[Attribute::Hash]);
        assert_eq!(judge(Some(&file()), &chmod, mask, false, false), Verdict::Quiet);
        let mask = Mask::new(&[Attribute::Mode]);
        let Verdict::Modified(fields) = judge(Some(&file()), &chmod, mask, false, false) else {
            panic!("mode is asked for");
        };
        assert!(fields.iter().eq([Field::Mode]));
    }

    #[test]
    fn judge_reports_baseline_not_created_in_first_scan() {
        let mask = Mask::new(&Attribute::ALL);
        assert_eq!(judge(None, &file(), mask, true, false), Verdict::Baseline);
        assert_eq!(judge(None, &file(), mask, false, false), Verdict::Created);
    }
}
