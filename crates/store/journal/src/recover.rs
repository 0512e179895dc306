//! The read-only part of opening: finds the segments, verifies their content, finds the end of the
//! journal, and decides whether that end is a torn tail or damage.
//!
//! Every frame of every segment is verified. All segments but the last must reach the seal in the
//! header of their successor. The last one ends at its first bad frame. That is a torn tail unless
//! one of these proves that the frame had been persisted: the lag of a later frame, the prefilled
//! end in the header, a consumer's checkpoint, or the position that the caller expects.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use env::files::{Access, Files};

use crate::error::{Damage, OpenError};
use crate::folder::{Mark, Named, RingGroup, Segment, at, named, ring_name, segment_name};
use crate::format::{Header, HeaderFault, Seed, VERSION};
use crate::meter::TornTail;
use crate::options::{BLOCK_BYTES, Layout};
use crate::place::{Grid, block_floor};
use crate::scan::{Frame, FrameLookup, Scanner};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Bytes rewritten at a time.
const REWRITE_BYTES: usize = 1 << 20;

/// The readable content of the folder; with `damage`, the content before it.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) ring: VecDeque<RingGroup>,
    pub(crate) spares: Vec<u64>,
    pub(crate) names: Vec<String>,
    pub(crate) damage: Option<Damage>,
    pub(crate) cut: Option<TornTail>,
    pub(crate) closed: bool,
    pub(crate) groups: u64,
    pub(crate) bytes_read: u64,
    /// Position of the next record.
    pub(crate) next_position: u64,
    /// Sequence of the next group.
    pub(crate) next_sequence: u64,
    /// Highest epoch in use, 0 if there is none.
    pub(crate) epoch: u64,
}

/// Returns an `OpenError` for a failed I/O operation.
pub(crate) fn refused(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| OpenError::Io { path, what, source }
}

/// Segments with a valid header, oldest first, each with the size of its file.
type Headers = Vec<(Arc<Segment>, u64)>;

fn damage(file: PathBuf, offset: u64, position: u64, what: &str, lost: u64) -> Damage {
    let (block, what) = (offset / BLOCK, what.into());
    Damage { file, block, position, what, records_lost_at_least: lost }
}

struct Walk<'a> {
    files: &'a dyn Files,
    dir: &'a Path,
    found: Found,
}

/// Reads the folder. With `persist`, the last segment and its ring are persisted before they are
/// trusted; otherwise nothing is written.
pub(crate) fn examine(files: &dyn Files, dir: &Path, persist: bool) -> Result<Found, OpenError> {
    let names = files.list(dir).map_err(refused(dir, "cannot list the folder"))?;
    let mut epochs = Vec::new();
    let mut found = Found { next_position: 1, next_sequence: 1, ..Found::default() };
    for name in &names {
        match named(name) {
            Named::Segment(epoch) => epochs.push(epoch),
            Named::Spare(number) => found.spares.push(number),
            _ => {}
        }
    }
    epochs.sort_unstable();
    found.names = names;
    found.epoch = epochs.last().copied().unwrap_or(0);
    let mut walk = Walk { files, dir, found };
    let (headers, mut bad_header) = walk.headers(&epochs)?;
    for (i, (segment, _)) in headers.iter().enumerate() {
        let successor = headers.get(i + 1).map(|(s, _)| s.header);
        if successor.is_none() {
            walk.found.damage = bad_header.take();
        }
        walk.segment(segment, successor, persist)?;
        if walk.found.damage.is_some() {
            break;
        }
    }
    walk.found.damage = walk.found.damage.take().or(bad_header);
    Ok(walk.finish(&headers))
}

impl Walk<'_> {
    /// Opens every segment and verifies its header and that it continues the previous segment. Stops
    /// at the first bad header and returns it as well.
    fn headers(&mut self, epochs: &[u64]) -> Result<(Headers, Option<Damage>), OpenError> {
        let mut headers = Headers::new();
        for epoch in epochs {
            let path = at(self.dir, &segment_name(*epoch));
            let open = self.files.open(&path, Access::READ);
            let file = open.map_err(refused(&path, "cannot open the segment"))?;
            let mut block = vec![0; BLOCK_BYTES];
            let read = file.read_at(&mut block, 0);
            block.truncate(read.map_err(refused(&path, "cannot read the segment"))?);
            let before = headers.last().map(|(s, _)| s.header);
            let checked = Header::decode(&block).and_then(|h| chained(h, *epoch, before));
            match checked {
                Ok(header) => {
                    let size = file.size().map_err(refused(&path, "cannot size the segment"))?;
                    headers.push((Arc::new(Segment::new(path, header, file)), size));
                }
                Err(HeaderFault::Newer(found)) => {
                    return Err(OpenError::NewerVersion { file: path, found, known: VERSION });
                }
                Err(HeaderFault::Damaged(what)) => {
                    let position = before.map_or(0, |h| h.first_position);
                    return Ok((headers, Some(damage(path, 0, position, what, 0))));
                }
            }
        }
        Ok((headers, None))
    }

    fn note(&mut self, file: PathBuf, offset: u64, position: u64, what: &str, lost: u64) {
        self.found.damage.get_or_insert(damage(file, offset, position, what, lost));
    }

    /// Verifies one segment up to its seal, or up to its end if it is the last.
    fn segment(
        &mut self,
        segment: &Arc<Segment>,
        successor: Option<Header>,
        persist: bool,
    ) -> Result<(), OpenError> {
        let header = segment.header;
        let path = &segment.path;
        let failed = |e| refused(path, "cannot read the segment")(e);
        let limit = match successor {
            Some(next) => segment.grid().written_end(next.previous_end),
            None => segment.file.size().map_err(failed)?,
        };
        let file = Arc::clone(&segment.file);
        let mut scan = Scanner::new(file, segment.grid(), segment.seed(), limit);
        let (mut start, mut sequence) = (segment.grid().first(), header.first_sequence);
        let mut position = header.first_position;
        self.found.closed = false;
        let mut why = "the segment ends before its seal";
        let mut doubt = UnprovenGroups::default();
        while successor.is_none_or(|next| start < next.previous_end) {
            match scan.find_frame(start, sequence).map_err(failed)? {
                FrameLookup::Frame(frame) => {
                    segment.mark(Mark { position, sequence, start });
                    self.found.closed = frame.records == 0;
                    doubt.follow(&frame, header.layout);
                    (start, sequence) = (frame.next, sequence + 1);
                    position += u64::from(frame.records);
                    self.found.groups += 1;
                }
                FrameLookup::Bad(bad) => {
                    why = bad;
                    break;
                }
            }
        }
        segment.advance(start, position - 1);
        self.found.segments.push(Arc::clone(segment));
        self.found.next_position = position;
        self.found.next_sequence = sequence;
        if let Some(next) = successor {
            segment.seal();
            let sealed = (next.previous_end, next.first_sequence, next.first_position);
            if (start, sequence, position) != sealed {
                let lost = next.first_position.saturating_sub(position);
                self.note(path.clone(), start, position, why, lost);
            }
        } else {
            self.tail(segment, &mut scan, why, persist)?;
            if persist && self.found.damage.is_none() {
                let in_ring = u64::from(header.ring_blocks) * BLOCK;
                let from = block_floor(doubt.start().saturating_sub(in_ring)).max(BLOCK);
                let end = segment.grid().written_end(start).next_multiple_of(BLOCK);
                rewrite(self.files, path, &[(from, end)])?;
            }
        }
        self.found.bytes_read += scan.bytes_read;
        Ok(())
    }

    /// Handles the bad frame that ends the last segment: cuts a torn tail, or notes damage if later
    /// frames prove that more was written. With the ring layout, continues in the ring.
    fn tail(
        &mut self,
        segment: &Arc<Segment>,
        scan: &mut Scanner,
        why: &'static str,
        persist: bool,
    ) -> Result<(), OpenError> {
        let failed = |e| refused(&segment.path, "cannot read the segment")(e);
        let (start, sequence) = (segment.end(), self.found.next_sequence);
        let position = self.found.next_position;
        if start < segment.header.prefilled_end {
            let lost = lost_after(scan, start, sequence).map_err(failed)?.lost;
            self.note(segment.path.clone(), start, position, why, lost);
            return Ok(());
        }
        if segment.header.layout == Layout::Ring {
            return self.ring(segment, scan, persist);
        }
        if self.found.closed {
            return Ok(());
        }
        let LaterFrames { lost, proved } = lost_after(scan, start, sequence).map_err(failed)?;
        if proved {
            self.note(segment.path.clone(), start, position, why, lost);
        } else if !blank(scan, start).map_err(failed)? {
            self.cut(&segment.path, start);
        }
        Ok(())
    }

    fn cut(&mut self, path: &Path, offset: u64) {
        let file = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        self.found.cut = Some(TornTail { file, offset, position: self.found.next_position });
    }

    /// Reads the groups of the ring, which continues where the archive ends. A gap is damage if
    /// later groups prove it; otherwise those groups are cut. With `persist`, rewrites the groups
    /// that may not be on the disk.
    fn ring(
        &mut self,
        segment: &Arc<Segment>,
        archive: &mut Scanner,
        persist: bool,
    ) -> Result<(), OpenError> {
        let header = segment.header;
        let path = at(self.dir, &ring_name(header.ring_blocks));
        let open = self.files.open(&path, Access::READ);
        let file = match open {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.note(path, 0, self.found.next_position, "the ring is missing", 0);
                return Ok(());
            }
            Err(e) => return Err(refused(&path, "cannot open the ring")(e)),
        };
        let limit = u64::from(header.ring_blocks) * BLOCK;
        let seed = Seed::ring(header.journal, header.epoch);
        let mut scan = Scanner::new(file, Grid::Sparse, seed, limit);
        let groups = in_ring(&mut scan, header.ring_blocks, self.found.next_sequence);
        let groups = groups.map_err(refused(&path, "cannot read the ring"))?;
        self.found.bytes_read += scan.bytes_read;
        let mut beyond = groups.len();
        for (i, (frame, body)) in groups.iter().enumerate() {
            if frame.sequence != self.found.next_sequence {
                beyond = i;
                break;
            }
            self.found.ring.push_back(RingGroup {
                sequence: frame.sequence,
                first_position: self.found.next_position,
                records: frame.records,
                single: frame.single,
                body: Arc::clone(body),
                archive_lag: None,
                block: (frame.start / BLOCK) as u32,
                blocks: ((frame.next - frame.start) / BLOCK) as u32,
            });
            self.found.closed = frame.records == 0;
            self.found.next_sequence += 1;
            self.found.next_position += u64::from(frame.records);
            self.found.groups += 1;
        }
        if persist {
            let mut doubt = UnprovenGroups::default();
            groups.iter().take(beyond).for_each(|(f, _)| doubt.follow(f, Layout::Sparse));
            let first = doubt.groups.front().map_or(0, |(sequence, _)| *sequence);
            let doubtful = groups.iter().take(beyond).filter(|(f, _)| f.sequence >= first);
            let ranges: Vec<_> = doubtful.map(|(f, _)| (f.start, f.next)).collect();
            rewrite(self.files, &path, &ranges)?;
        }
        let later = groups.get(beyond..).unwrap_or_default();
        let missing = self.found.next_sequence;
        let mut proved = later.iter().any(|(frame, _)| frame.proves(missing));
        let mut lost = later.iter().map(|(f, _)| u64::from(f.records)).sum::<u64>() + 1;
        if self.found.ring.is_empty() {
            let failed = |e| refused(&segment.path, "cannot read the segment")(e);
            let archived = lost_after(archive, segment.end(), missing);
            let archived = archived.map_err(failed)?;
            (lost, proved) = (lost.max(archived.lost), proved || archived.proved);
        }
        if proved {
            let before = self.found.ring.back().map_or(0, |g| g.block + g.blocks);
            let what = "a group of the ring or the end of its archive is missing or damaged";
            let position = self.found.next_position;
            let archive = (segment.path.clone(), segment.end());
            let ring = (path, u64::from(before) * BLOCK);
            let (file, offset) = if self.found.ring.is_empty() { archive } else { ring };
            self.note(file, offset, position, what, lost);
        } else if !self.found.closed && !later.is_empty() {
            let end = self.found.ring.back().map_or(0, |g| g.block + g.blocks);
            self.cut(&path, u64::from(end) * BLOCK);
        }
        Ok(())
    }

    /// Adds to the damage the position and the number of lost records, as far as headers show it.
    fn finish(mut self, headers: &[(Arc<Segment>, u64)]) -> Found {
        if let Some(damage) = &mut self.found.damage {
            damage.position = self.found.next_position;
            let last = headers.last().map_or(0, |(s, _)| s.header.first_position);
            let known = last.saturating_sub(damage.position);
            damage.records_lost_at_least = damage.records_lost_at_least.max(known);
        }
        self.found
    }
}

/// Returns every group in the ring from sequence `from` on, in order of sequence.
fn in_ring(scan: &mut Scanner, blocks: u32, from: u64) -> io::Result<Vec<(Frame, Arc<[u8]>)>> {
    // One archive write may have taken as many groups from the ring as the ring holds.
    let ahead = 2 * u64::from(blocks);
    let mut groups = Vec::new();
    for block in 0..u64::from(blocks) {
        if let Some(frame) = scan.look_ahead(block * BLOCK, from - 1, ahead)? {
            groups.push((frame, scan.body().into()));
        }
    }
    groups.sort_unstable_by_key(|(frame, _): &(Frame, Arc<[u8]>)| frame.sequence);
    Ok(groups)
}

/// Findings about a bad frame from the frames after it.
struct LaterFrames {
    /// Minimum number of records in the bad frame and the later ones.
    lost: u64,
    /// True if one of the later frames proves that the bad one had been persisted.
    proved: bool,
}

/// Follows the chain of later frames after a bad one of group `sequence` at `start`.
fn lost_after(scan: &mut Scanner, start: u64, sequence: u64) -> io::Result<LaterFrames> {
    let mut next = scan.resynchronise(start, sequence)?;
    let (mut lost, mut proved) = (1, false);
    while let Some(frame) = next {
        lost += u64::from(frame.records);
        proved |= frame.proves(sequence);
        next = match scan.find_frame(frame.next, frame.sequence + 1)? {
            FrameLookup::Frame(frame) => Some(frame),
            FrameLookup::Bad(_) => scan.resynchronise(frame.next, frame.sequence + 1)?,
        };
    }
    Ok(LaterFrames { lost, proved })
}

/// The last groups, which no later frame proves to be persisted.
#[derive(Default)]
struct UnprovenGroups {
    /// Sequence and start of each, oldest first.
    groups: VecDeque<(u64, u64)>,
}

impl UnprovenGroups {
    /// Adds one more frame. The archive is written in pieces of at most a ring and one more group.
    fn follow(&mut self, frame: &Frame, layout: Layout) {
        let archive = layout == Layout::Ring;
        while self.groups.front().is_some_and(|(s, _)| archive || frame.proves(*s)) {
            self.groups.pop_front();
        }
        self.groups.push_back((frame.sequence, frame.start));
    }

    fn start(&self) -> u64 {
        self.groups.front().map_or(u64::MAX, |(_, start)| *start)
    }
}

/// Rewrites and persists what was read. A flush that failed in an earlier process may have left
/// pages in the page cache that are marked clean but are not on the medium; a flush alone would not
/// write them.
fn rewrite(files: &dyn Files, path: &Path, ranges: &[(u64, u64)]) -> Result<(), OpenError> {
    let failed = |what| refused(path, what);
    let file = files.open(path, Access::WRITE).map_err(failed("cannot open for persisting"))?;
    let mut bytes = Vec::new();
    for (from, to) in ranges {
        let mut at = *from;
        while at < *to {
            bytes.resize(REWRITE_BYTES.min((to - at) as usize), 0);
            let got = file.read_at(&mut bytes, at).map_err(failed("cannot read"))?;
            let Some(piece) = bytes.get(..got).filter(|p| !p.is_empty()) else { break };
            file.write_all_at(piece, at).map_err(failed("cannot write again"))?;
            at += got as u64;
        }
    }
    file.persist().map_err(failed("cannot persist"))
}

/// Returns true if the rest of the block at `start` is zero: no write had begun there.
fn blank(scan: &mut Scanner, start: u64) -> io::Result<bool> {
    let end = block_floor(start) + BLOCK;
    scan.is_zero(start, end)
}

fn chained(header: Header, epoch: u64, before: Option<Header>) -> Result<Header, HeaderFault> {
    if header.epoch != epoch {
        return Err(HeaderFault::Damaged("the header belongs to another segment"));
    }
    let Some(before) = before else { return Ok(header) };
    if header.journal != before.journal {
        return Err(HeaderFault::Damaged("the segment belongs to another journal"));
    }
    if header.previous_epoch != before.epoch {
        return Err(HeaderFault::Damaged("the segment before this one is missing"));
    }
    Ok(header)
}
