//! Repair of damage in place. Each run of unreadable frames (a *hole*) is replaced by as many frames
//! of the same total length, which hold a placeholder for each lost record. Every other frame keeps its
//! offset and its sequence, and every other record its position.
//!
//! A placeholder is an empty record or one of zeros. The number of lost records is known if the next
//! segment names its first position, or if the heads of the lost frames can still be followed.

use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use env::files::{Access, Files};

use crate::bytes::push_varint;
use crate::error::OpenError;
use crate::folder::{Named, Segment, at, named, segment_name};
use crate::format::{FRAME_BYTES_MIN, Header, NewFrame, Seed, encode_head, frame_bytes};
use crate::options::{BLOCK_BYTES, Layout};
use crate::place::{Grid, HINT_BYTES, block_floor};
use crate::recover::{Found, refused};
use crate::scan::{Frame, FrameLookup, Scanner};
use crate::tools::{copy, name_of};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A run of unreadable frames.
#[derive(Debug)]
struct Hole {
    start: u64,
    /// Offset of the next frame that can be read, or the end of the segment.
    end: u64,
    sequence: u64,
    groups: u64,
    /// Number of intact records between the previous hole and this one.
    intact_before: u64,
    /// Number of lost records, as far as the heads of the frames show it.
    records: Option<u64>,
}

/// Fills the holes of the segment at which `found` ends. Returns the positions of the lost records, or
/// `None` if the segment cannot be filled; nothing is changed then. `seen` is the last position that
/// any reader has seen.
pub(crate) fn fill(
    files: &dyn Files,
    dir: &Path,
    found: &Found,
    seen: u64,
) -> Result<Option<Vec<RangeInclusive<u64>>>, OpenError> {
    let Some(segment) = found.segments.last() else { return Ok(None) };
    if found.damage.as_ref().is_none_or(|damage| damage.file != segment.path) {
        let restored = restore_header(files, dir, found, segment)?;
        return Ok(restored.then(Vec::new));
    }
    let next = match successor(files, dir, found, &segment.header)? {
        Successor::None if segment.header.layout == Layout::Ring => return Ok(None),
        Successor::Damaged => return Ok(None),
        Successor::None => None,
        Successor::Header(next) => Some(next),
    };
    let failed = || refused(&segment.path, "cannot read the segment");
    let size = segment.file.size().map_err(failed())?;
    let limit = next.map_or(size, |next| segment.grid().written_end(next.previous_end));
    let file = Arc::clone(&segment.file);
    let mut scan = Scanner::new(file, segment.grid(), segment.seed(), limit);
    let (mut holes, intact) = holes(&mut scan, segment, found, next).map_err(failed())?;
    let counted = match next {
        Some(next) => divide(&mut holes, next.first_position, found.next_position + intact),
        None => assume(&mut holes, seen < found.next_position),
    };
    if !counted {
        return Ok(None);
    }
    let patches: Option<Vec<_>> = holes.iter().map(|hole| patch(segment, hole)).collect();
    let Some(patches) = patches else { return Ok(None) };
    write(files, dir, &segment.path, &patches)?;
    let mut position = found.next_position;
    let lost = holes.iter().filter_map(|hole| {
        let first = position + hole.intact_before;
        position = first + hole.records?;
        (position > first).then(|| first..=position - 1)
    });
    Ok(Some(lost.collect()))
}

/// Writes the header of the segment after `before` again, if that header is the damage: its values follow
/// from `before`, and the first frame after it proves them. Returns false if it does not.
fn restore_header(
    files: &dyn Files,
    dir: &Path,
    found: &Found,
    before: &Segment,
) -> Result<bool, OpenError> {
    let later = later_epoch(found, before.header.epoch);
    let Some(epoch) = later.filter(|_| found.ring.is_empty()) else { return Ok(false) };
    let path = at(dir, &segment_name(epoch));
    let failed = || refused(&path, "cannot read the segment");
    let file = files.open(&path, Access::READ).map_err(failed())?;
    let size = file.size().map_err(failed())?;
    let mut header = Header {
        epoch,
        segment_bytes: size,
        first_position: found.next_position,
        first_sequence: found.next_sequence,
        previous_epoch: before.header.epoch,
        previous_end: before.end(),
        prefilled_end: 0,
        ring_blocks: 0,
        ..before.header
    };
    let seed = Seed::segment(header.journal, epoch);
    for layout in [Layout::Packed, Layout::Sparse] {
        header.layout = layout;
        let mut scan = Scanner::new(Arc::clone(&file), layout.grid(), seed, size);
        let first = scan.find_frame(layout.grid().first(), header.first_sequence);
        if let FrameLookup::Frame(_) = first.map_err(failed())? {
            let mut block = vec![0; BLOCK_BYTES];
            header.encode(&mut block);
            write(files, dir, &path, &[(0, block)])?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the lowest epoch after `epoch`.
fn later_epoch(found: &Found, epoch: u64) -> Option<u64> {
    let epochs = found.names.iter().filter_map(|name| match named(name) {
        Named::Segment(later) if later > epoch => Some(later),
        _ => None,
    });
    epochs.min()
}

/// The segment after the damaged one.
enum Successor {
    None,
    /// Its header cannot be read, or it does not continue the damaged segment.
    Damaged,
    Header(Header),
}

fn successor(
    files: &dyn Files,
    dir: &Path,
    found: &Found,
    of: &Header,
) -> Result<Successor, OpenError> {
    let Some(epoch) = later_epoch(found, of.epoch) else { return Ok(Successor::None) };
    let path = at(dir, &segment_name(epoch));
    let file = files.open(&path, Access::READ).map_err(refused(&path, "cannot open"))?;
    let mut block = vec![0; BLOCK_BYTES];
    file.read_at(&mut block, 0).map_err(refused(&path, "cannot read"))?;
    Ok(match Header::decode(&block) {
        Ok(h) if h.previous_epoch == of.epoch && h.journal == of.journal => Successor::Header(h),
        _ => Successor::Damaged,
    })
}

/// Finds the holes from the damage on. Returns them and the number of intact records from there on.
fn holes(
    scan: &mut Scanner,
    segment: &Segment,
    found: &Found,
    next: Option<Header>,
) -> io::Result<(Vec<Hole>, u64)> {
    let seal = next.map(|next| (next.previous_end, next.first_sequence));
    let (mut start, mut sequence) = (segment.end(), found.next_sequence);
    let (mut holes, mut intact, mut intact_before) = (Vec::new(), 0, 0);
    while seal.is_none_or(|(end, _)| start < end) {
        let frame = scan.resynchronise(start, sequence)?;
        let after = frame.map(|frame| (frame.start, frame.sequence)).or(seal);
        let Some((end, after)) = after else { break };
        let Some(groups) = after.checked_sub(sequence) else { break };
        let records = records_by_heads(scan, (start, end), (sequence, groups))?;
        holes.push(Hole { start, end, sequence, groups, intact_before, records });
        let Some(frame) = frame else { break };
        (start, sequence, intact_before) = intact_run(scan, frame)?;
        intact += intact_before;
    }
    Ok((holes, intact))
}

/// Follows intact frames from `frame` on. Returns offset and sequence of the first bad frame, and the
/// number of records before it.
fn intact_run(scan: &mut Scanner, frame: Frame) -> io::Result<(u64, u64, u64)> {
    let (mut start, mut sequence) = (frame.next, frame.sequence + 1);
    let mut records = u64::from(frame.records);
    while let FrameLookup::Frame(frame) = scan.find_frame(start, sequence)? {
        (start, sequence) = (frame.next, sequence + 1);
        records += u64::from(frame.records);
    }
    Ok((start, sequence, records))
}

/// Counts the records of a hole by the heads and lengths in it, whose checksums do not match. Returns
/// `None` unless they lead exactly from its start to its end.
fn records_by_heads(
    scan: &mut Scanner,
    (start, end): (u64, u64),
    (sequence, groups): (u64, u64),
) -> io::Result<Option<u64>> {
    let (mut start, mut records) = (start, 0);
    for sequence in sequence..sequence + groups {
        let Some((next, count)) = scan.unverified(start, sequence)? else { return Ok(None) };
        if next > end {
            return Ok(None);
        }
        (start, records) = (next, records + u64::from(count));
    }
    Ok((start == end).then_some(records))
}

/// Determines the number of lost records of each hole in a segment whose successor begins at position
/// `next`; without lost records it would be `intact`. Returns false if the numbers are unknown.
fn divide(holes: &mut [Hole], next: u64, intact: u64) -> bool {
    let Some(lost) = next.checked_sub(intact) else { return false };
    if let [hole] = holes {
        hole.records = Some(lost);
    }
    let known: u64 = holes.iter().filter_map(|hole| hole.records).sum();
    let mut unknown = holes.iter_mut().filter(|hole| hole.records.is_none());
    match (unknown.next(), unknown.next()) {
        (None, _) => known == lost,
        (Some(hole), None) => {
            hole.records = lost.checked_sub(known);
            hole.records.is_some()
        }
        _ => false,
    }
}

/// Determines the number of lost records of each hole in the last segment. If the heads of the frames do
/// not show it, one record for each group is assumed, but only if no reader is beyond the damage
/// (`unread`): a reader would take the later records for others. Returns false if the numbers are
/// unknown.
fn assume(holes: &mut [Hole], unread: bool) -> bool {
    for hole in holes.iter_mut().filter(|hole| unread && hole.records.is_none()) {
        hole.records = Some(hole.groups);
    }
    !holes.is_empty() && holes.iter().all(|hole| hole.records.is_some())
}

/// Bytes to write to a segment, and their offset.
type Patch = (u64, Vec<u8>);

/// Returns frames of placeholders with the hints between them, or `None` if they cannot fill the hole.
fn patch(segment: &Segment, hole: &Hole) -> Option<Patch> {
    let grid = segment.grid();
    let base = block_floor(hole.start);
    let mut bytes = vec![0; (hole.end.next_multiple_of(BLOCK) - base) as usize];
    segment.file.read_at(&mut bytes, base).ok()?;
    let (mut at, mut left) = (hole.start, hole.records?);
    let mut head = Vec::new();
    for group in 0..hole.groups {
        let last = group + 1 == hole.groups;
        // The last frame needs a record that fills the rest of the hole.
        let records = if last { left } else { u64::from(left > 1) };
        let total = stream_bytes(grid, at, hole.end)?;
        let (body, lag) = if last {
            [0, 1].into_iter().find_map(|lag| Some((body(grid, total, records, lag)?, lag)))?
        } else {
            (Vec::new(), 0)
        };
        let (seed, sequence) = (segment.seed(), hole.sequence + group);
        let frame = NewFrame { seed, start: at, sequence, single: records == 1, lag };
        encode_head(&mut head, grid, &body, frame);
        let next = grid.next(at, (head.len() + body.len()) as u64);
        if next > hole.end || last != (next == hole.end) {
            return None;
        }
        grid.lay(&mut bytes, base, at, [&head, &body]);
        (at, left) = (next, left - records);
    }
    let (from, to) = (grid.written_end(hole.start), grid.written_end(hole.end));
    Some((from, bytes.get((from - base) as usize..(to - base) as usize)?.to_vec()))
}

/// Returns the number of bytes of frames between two starts of frames.
fn stream_bytes(grid: Grid, from: u64, to: u64) -> Option<u64> {
    let blocks = match grid {
        Grid::Packed => (to - 1) / BLOCK - from / BLOCK,
        Grid::Sparse => 0,
    };
    to.checked_sub(from)?.checked_sub(blocks * HINT_BYTES as u64)
}

/// Returns the body of a frame of `total` bytes with `records` placeholders, if there is one.
fn body(grid: Grid, total: u64, records: u64, lag: u8) -> Option<Vec<u8>> {
    let longest = total.checked_sub(FRAME_BYTES_MIN)? as usize;
    let mut sizes = longest.saturating_sub(8)..=longest;
    let size = sizes.find(|size| frame_bytes(grid, *size, lag) == total)?;
    match records {
        0 => (size == 0).then(Vec::new),
        1 => Some(vec![0; size]),
        // Each record needs a byte; the number may come from a header that is wrong.
        many if many > size as u64 => None,
        _ => {
            // A record without bytes is a length of 0.
            let mut body = vec![0; records as usize - 1];
            let rest = size.checked_sub(body.len())?;
            for bytes in rest.saturating_sub(5)..rest {
                let mut length = Vec::new();
                push_varint(&mut length, bytes as u32);
                if length.len() + bytes == rest {
                    body.extend_from_slice(&length);
                    body.resize(size, 0);
                    return Some(body);
                }
            }
            None
        }
    }
}

/// Replaces a segment by a copy with these patches. The damaged one is kept as `lost-*`.
fn write(
    files: &dyn Files,
    dir: &Path,
    segment: &Path,
    patches: &[Patch],
) -> Result<(), OpenError> {
    let name = name_of(segment);
    let (kept, filled) = (at(dir, &format!("lost-{name}")), at(dir, &format!("{name}.filled")));
    copy(files, segment, &kept)?;
    copy(files, segment, &filled)?;
    let failed = || refused(&filled, "cannot write");
    let file = files.open(&filled, Access::WRITE).map_err(failed())?;
    for (offset, bytes) in patches {
        file.write_all_at(bytes, *offset).map_err(failed())?;
    }
    file.persist().map_err(failed())?;
    files.rename(&filled, segment).map_err(refused(&filled, "cannot rename"))?;
    files.persist_dir(dir).map_err(refused(dir, "cannot persist the folder"))
}
