//! The gaps that have been reported. Each is reported once when it opens and once when it closes.

use std::collections::BTreeMap;

use model::path::{is_at_or_below, show};
use model::{Coverage, ItemKey, LastingGap};

use crate::limits::GAPS_MAX;
use crate::report::{Gap, GapKind};

/// The open gaps by path, each with the number of the last scan that met it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gaps {
    open: BTreeMap<Vec<u8>, (Gap, u64)>,
    /// Number of the current scan. A gap with a lower number was not met in it.
    scan: u64,
}

impl Gaps {
    /// Starts a new scan.
    pub(crate) fn begin_scan(&mut self) {
        self.scan += 1;
    }

    /// Restores gaps that were reported before.
    pub(crate) fn restore(&mut self, gaps: Vec<Gap>) {
        let room = GAPS_MAX.saturating_sub(self.open.len());
        for gap in gaps.into_iter().take(room) {
            self.open.insert(gap.path.clone(), (gap, 0));
        }
    }

    /// Returns true if the optional path did not exist when it was last looked at.
    pub(crate) fn is_absent(&self, path: &[u8]) -> bool {
        self.open.get(path).is_some_and(|(gap, _)| !is_gap(gap))
    }

    /// Returns the open gaps, and the notes of optional paths that do not exist.
    pub(crate) fn list(&self) -> Vec<Gap> {
        self.open.values().map(|(gap, _)| gap.clone()).collect()
    }

    /// Records that a gap was met. Returns the events to report: its start if it is new; if its kind
    /// has changed, the end of what it was before that.
    pub(crate) fn record_gap(&mut self, gap: Gap) -> Vec<Coverage> {
        if let Some((known, met)) = self.open.get_mut(&gap.path)
            && known.kind == gap.kind
        {
            *met = self.scan;
            known.detail = gap.detail;
            return Vec::new();
        }
        let former = self.open.remove(&gap.path);
        let former = former
            .filter(|(former, _)| is_gap(former))
            .map(|(former, _)| end(&former, gap.since_us, None, "there is another reason now"));
        let known = self.open.len() < GAPS_MAX;
        let event = is_gap(&gap).then(|| start(&gap, known));
        if known {
            self.open.insert(gap.path.clone(), (gap, self.scan));
        }
        former.into_iter().chain(event).collect()
    }

    /// Returns the starts of all open gaps, to be reported again.
    pub(crate) fn starts(&self) -> Vec<Coverage> {
        self.open.values().filter(|(gap, _)| is_gap(gap)).map(|(gap, _)| start(gap, true)).collect()
    }

    /// Closes the gaps at or below a root that was scanned completely, except those met in this
    /// scan. Returns the events to report.
    pub(crate) fn close_below(&mut self, root: &[u8], now_us: u64, found: u64) -> Vec<Coverage> {
        let scan = self.scan;
        let over: Vec<Vec<u8>> = self
            .open
            .range(root.to_vec()..)
            .take_while(|(path, _)| path.starts_with(root))
            .filter(|(path, (_, met))| is_at_or_below(path, root) && *met != scan)
            .map(|(path, _)| path.clone())
            .collect();
        let found = |gap: &Gap| (gap.path == root).then_some(found);
        over.iter()
            .filter_map(|path| self.open.remove(path))
            .filter(|(gap, _)| is_gap(gap))
            .map(|(gap, _)| end(&gap, now_us, found(&gap), over_text(gap.kind)))
            .collect()
    }

    /// Closes the gaps at paths that none of the roots contains. Returns the events to report.
    pub(crate) fn close_outside(&mut self, roots: &[&[u8]], now_us: u64) -> Vec<Coverage> {
        let is_outside = |path: &[u8]| !roots.iter().any(|root| is_at_or_below(path, root));
        let over = self.open.extract_if(.., |path, _| is_outside(path));
        let over = over.map(|(_, (gap, _))| gap).filter(is_gap);
        over.map(|gap| end(&gap, now_us, None, "no longer watched")).collect()
    }
}

/// Returns false for the note that an optional path does not exist.
fn is_gap(gap: &Gap) -> bool {
    gap.kind != GapKind::Absent
}

/// Returns the event of a gap that opened; its end will not be reported unless it is `known`.
fn start(gap: &Gap, known: bool) -> Coverage {
    Coverage {
        kind: gap.kind.coverage(),
        path: show(&gap.path).into_owned(),
        from_us: gap.since_us,
        to_us: gap.since_us,
        found: None,
        lasting: known.then(|| LastingGap::start(id(&gap.path))),
        detail: gap.detail.clone(),
    }
}

fn end(gap: &Gap, now_us: u64, found: Option<u64>, detail: &str) -> Coverage {
    Coverage {
        kind: gap.kind.coverage(),
        path: show(&gap.path).into_owned(),
        from_us: gap.since_us,
        to_us: now_us,
        found,
        lasting: Some(LastingGap::end(id(&gap.path))),
        detail: detail.into(),
    }
}

/// Returns the id of a path's gap. A path has one gap at a time, so that a start that is reported
/// again after a kill is that of the same gap.
fn id(path: &[u8]) -> String {
    ItemKey::of_path(path).document_id()
}

fn over_text(kind: GapKind) -> &'static str {
    match kind {
        GapKind::Missing | GapKind::Absent => "exists again; compared with its state before",
        GapKind::OtherDevice => "on its file system again and compared with what it was",
        GapKind::Unreadable => "readable again and compared with what it was",
        GapKind::PathTooLong => "nothing with too long a path is left",
    }
}

#[cfg(test)]
mod tests {
    use model::CoverageKind;

    use super::*;

    fn gap(path: &[u8], kind: GapKind, since_us: u64) -> Gap {
        Gap { path: path.to_vec(), kind, since_us, detail: "x".into() }
    }

    #[test]
    fn gap_is_reported_when_it_opens_and_when_it_closes() {
        let mut gaps = Gaps::default();
        gaps.begin_scan();
        assert!(gaps.record_gap(gap(b"/mnt", GapKind::Missing, 5)).len() == 1);
        gaps.begin_scan();
        assert!(gaps.record_gap(gap(b"/mnt", GapKind::Missing, 6)).is_empty());
        assert!(gaps.close_below(b"/mnt", 7, 0).is_empty(), "still met");
        gaps.begin_scan();
        let over = gaps.close_below(b"/mnt", 8, 3);
        assert_eq!((over[0].from_us, over[0].to_us, over[0].found), (5, 8, Some(3)));
        assert!(gaps.list().is_empty());
    }

    #[test]
    fn another_kind_ends_the_gap_and_opens_a_new_one() {
        let mut gaps = Gaps::default();
        gaps.record_gap(gap(b"/mnt", GapKind::Missing, 5));
        let events = gaps.record_gap(gap(b"/mnt", GapKind::Unreadable, 7));
        let [over, new] = &events[..] else { panic!("{events:?}") };
        assert_eq!((over.kind, over.from_us, over.to_us), (CoverageKind::RootGone, 5, 7));
        assert_eq!((new.kind, new.from_us), (CoverageKind::Unreadable, 7));
        let (over, new) = (over.lasting.as_ref().unwrap(), new.lasting.as_ref().unwrap());
        assert_eq!((&over.gap, over.open, new.open), (&new.gap, false, true));
    }

    #[test]
    fn gap_outside_all_roots_ends() {
        let mut gaps = Gaps::default();
        gaps.restore(vec![gap(b"/a/x", GapKind::Missing, 1), gap(b"/ab", GapKind::Missing, 2)]);
        let over = gaps.close_outside(&[b"/a", b"/c"], 9);
        assert_eq!((over.len(), &*over[0].path, over[0].to_us), (1, "/ab", 9));
        assert_eq!(gaps.list()[0].path, b"/a/x");
    }

    #[test]
    fn sibling_with_common_name_prefix_is_not_below() {
        assert!(is_at_or_below(b"/a/b", b"/a"));
        assert!(is_at_or_below(b"/a", b"/a"));
        assert!(is_at_or_below(b"/a", b"/"));
        assert!(!is_at_or_below(b"/ab", b"/a"));
        let mut gaps = Gaps::default();
        gaps.restore(vec![gap(b"/ab", GapKind::Missing, 1), gap(b"/a/x", GapKind::Missing, 1)]);
        gaps.begin_scan();
        assert_eq!(gaps.close_below(b"/a", 2, 0).len(), 1);
        assert_eq!(gaps.list()[0].path, b"/ab");
    }
}
