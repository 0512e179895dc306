//! Command-line tools: inspect a journal that is not open, verify it, and cut it at damage. All but
//! [`repair`] only read and need no lock: on a journal in use they see what is on the medium at
//! that moment, where the last group may be incomplete.

use std::ops::{ControlFlow, RangeInclusive};
use std::path::Path;
use std::sync::Arc;

use env::files::{Access, Files, RealFiles};
use parking_lot::RwLock;

use crate::bytes::Blocks;
use crate::consumer;
use crate::core::lock;
use crate::error::{Damage, OpenError};
use crate::fill::fill;
use crate::folder::{Catalog, Named, RingGroup, Segment, named};
use crate::format::{Header, Records};
use crate::meter::TornTail;
use crate::options::{BLOCK_BYTES, IoPath, Layout, Options};
use crate::pool::{Pool, WriteError};
use crate::recover::{Found, examine, refused};
use crate::scan::{FrameLookup, Scanner};
use crate::writer::{Setup, Writer};

/// The findings of [`verify`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyReport {
    /// Every segment up to the damage, oldest first.
    pub segments: Vec<SegmentReport>,
    /// Oldest position kept; 0 when there is none.
    pub first_position: u64,
    /// Last position that can be read; 0 when there is none.
    pub last_position: u64,
    /// Groups verified, those of the ring included.
    pub groups: u64,
    /// Groups that only the ring holds.
    pub ring_groups: u64,
    /// Bytes read from segments and the ring.
    pub bytes_read: u64,
    /// True if the journal was closed cleanly.
    pub closed: bool,
    /// A torn tail, which open would cut.
    pub cut: Option<TornTail>,
    /// Damage, for which open would fail.
    pub damage: Option<Damage>,
    /// Consumers and their checkpoints.
    pub consumers: Vec<(String, u64)>,
}

impl VerifyReport {
    /// Returns true if open would succeed: no damage, and no consumer's checkpoint beyond the end.
    pub fn is_sound(&self) -> bool {
        self.damage.is_none() && self.consumers.iter().all(|(_, p)| *p <= self.last_position)
    }
}

/// One segment of a [`VerifyReport`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentReport {
    /// Name of the file in the folder.
    pub file: String,
    /// Layout of its groups on blocks.
    pub layout: Layout,
    /// Number of the segment, from 1.
    pub epoch: u64,
    /// Position of its first record.
    pub first_position: u64,
    /// Position of its last record; one less than the first if it has none.
    pub last_position: u64,
    /// End of its frames, in bytes.
    pub end: u64,
    /// Size of its file, in bytes.
    pub file_bytes: u64,
}

/// The findings of [`stat`], from names, sizes and headers alone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FolderStat {
    /// Segments, oldest first: name, layout, epoch, first position, size of the file in bytes.
    pub segments: Vec<(String, Layout, u64, u64, u64)>,
    /// Number of spare files.
    pub spares: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Consumers and their checkpoints.
    pub consumers: Vec<(String, u64)>,
}

/// One group, as passed to the callback of [`dump`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpedGroup {
    /// Name of the file it was read from; the ring's groups come last.
    pub file: String,
    /// Offset of its frame, in bytes.
    pub offset: u64,
    /// Number of the group, from 1.
    pub sequence: u64,
    /// Position of its first record.
    pub first_position: u64,
    /// Its records; the group that marks the journal as closed has none.
    pub records: Vec<Vec<u8>>,
}

/// The result of [`repair`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairReport {
    /// The first damage, if there was any.
    pub damage: Option<Damage>,
    /// Positions of lost records before the end, in order. Each of them now has a placeholder, an empty
    /// record or one of zeros, and the intact records after it kept their positions.
    pub lost: Vec<RangeInclusive<u64>>,
    /// True if the journal was cut after `last_position`, because the number of lost records is unknown
    /// or nothing after them can be read.
    pub cut: bool,
    /// Minimum number of records that the cut lost.
    pub cut_records_at_least: u64,
    /// Last position kept.
    pub last_position: u64,
    /// Files with the damaged data, in the same folder. Nothing reads them any more.
    pub set_aside: Vec<String>,
    /// Consumers whose checkpoint was beyond the cut, with their old positions.
    pub consumers_lowered: Vec<(String, u64)>,
}

pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns true if `dir` contains a segment or another file that only a journal has.
///
/// # Errors
/// Returns an error if the folder cannot be read.
pub fn holds_journal(dir: &Path) -> Result<bool, OpenError> {
    let names = RealFiles.list(dir).map_err(refused(dir, "cannot list the folder"))?;
    Ok(names.iter().any(|name| named(name) != Named::Other))
}

/// Verifies every group of the journal in `dir`.
///
/// # Errors
/// Returns an error if the folder cannot be read, or was written by a newer version. Damage is
/// reported in the result.
pub fn verify(dir: &Path) -> Result<VerifyReport, OpenError> {
    verify_with(&RealFiles, dir)
}

/// Does the same as [`verify`], on the given `files`.
///
/// # Errors
/// See [`verify`].
pub fn verify_with(files: &dyn Files, dir: &Path) -> Result<VerifyReport, OpenError> {
    let found = examine(files, dir, false)?;
    let consumers = consumer::load(files, dir, &found.names)?;
    let mut segments = Vec::new();
    for segment in &found.segments {
        let size = segment.file.size();
        segments.push(SegmentReport {
            file: name_of(&segment.path),
            layout: segment.header.layout,
            epoch: segment.header.epoch,
            first_position: segment.header.first_position,
            last_position: segment.last(),
            end: segment.end(),
            file_bytes: size.map_err(refused(&segment.path, "cannot size the segment"))?,
        });
    }
    let last_position = found.next_position - 1;
    let first = segments.first().map_or(0, |s| s.first_position);
    Ok(VerifyReport {
        segments,
        first_position: if first > last_position { 0 } else { first },
        last_position,
        groups: found.groups,
        ring_groups: found.ring.len() as u64,
        bytes_read: found.bytes_read,
        closed: found.closed,
        cut: found.cut,
        damage: found.damage,
        consumers: consumers.into_all(),
    })
}

/// Describes the files of the folder, without reading the records.
///
/// # Errors
/// Returns an error if the folder cannot be read.
pub fn stat(dir: &Path) -> Result<FolderStat, OpenError> {
    stat_with(&RealFiles, dir)
}

/// Does the same as [`stat`], on the given `files`.
///
/// # Errors
/// See [`stat`].
pub fn stat_with(files: &dyn Files, dir: &Path) -> Result<FolderStat, OpenError> {
    let names = files.list(dir).map_err(refused(dir, "cannot list the folder"))?;
    let mut stat = FolderStat::default();
    for name in &names {
        let path = dir.join(name);
        let file = files.open(&path, Access::READ).map_err(refused(&path, "cannot open"))?;
        let bytes = file.size().map_err(refused(&path, "cannot size"))?;
        stat.bytes += bytes;
        match named(name) {
            Named::Spare(_) => stat.spares += 1,
            Named::Segment(_) => {
                let mut block = vec![0; BLOCK_BYTES];
                file.read_at(&mut block, 0).map_err(refused(&path, "cannot read"))?;
                if let Ok(h) = Header::decode(&block) {
                    stat.segments.push((name.clone(), h.layout, h.epoch, h.first_position, bytes));
                }
            }
            _ => {}
        }
    }
    stat.consumers = consumer::load(files, dir, &names)?.into_all();
    Ok(stat)
}

/// Passes every group from the one that holds `position` on to `each`, until `each` breaks or the
/// journal ends or is damaged.
///
/// # Errors
/// Returns an error if the folder cannot be read.
pub fn dump(
    dir: &Path,
    position: u64,
    each: impl FnMut(DumpedGroup) -> ControlFlow<()>,
) -> Result<(), OpenError> {
    dump_with(&RealFiles, dir, position, each)
}

/// Does the same as [`dump`], on the given `files`.
///
/// # Errors
/// See [`dump`].
pub fn dump_with(
    files: &dyn Files,
    dir: &Path,
    position: u64,
    mut each: impl FnMut(DumpedGroup) -> ControlFlow<()>,
) -> Result<(), OpenError> {
    let found = examine(files, dir, false)?;
    for segment in &found.segments {
        if segment.last() >= position && dump_segment(segment, position, &mut each)?.is_break() {
            return Ok(());
        }
    }
    for group in found.ring.iter().filter(|g| g.next_position() > position) {
        let records = Records::of(&group.body, group.single).flatten().map(<[u8]>::to_vec);
        let shown = DumpedGroup {
            file: "ring".into(),
            offset: u64::from(group.block) * BLOCK_BYTES as u64,
            sequence: group.sequence,
            first_position: group.first_position,
            records: records.collect(),
        };
        if each(shown).is_break() {
            break;
        }
    }
    Ok(())
}

/// Passes the groups of one segment from the one that holds `position` on to `each`. Stops without
/// an error at the first bad frame, which [`verify`] reports.
fn dump_segment(
    segment: &Segment,
    position: u64,
    each: &mut impl FnMut(DumpedGroup) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, OpenError> {
    let failed = || refused(&segment.path, "cannot read the segment");
    let limit = segment.grid().written_end(segment.end());
    let file = Arc::clone(&segment.file);
    let mut scan = Scanner::new(file, segment.grid(), segment.seed(), limit);
    let mark = segment.nearest(position);
    let (mut start, mut sequence, mut first) = (mark.start, mark.sequence, mark.position);
    while start < segment.end() {
        let look = scan.find_frame(start, sequence).map_err(failed())?;
        let FrameLookup::Frame(frame) = look else { break };
        let next = first + u64::from(frame.records);
        if next > position {
            let records = Records::of(scan.body(), frame.single).flatten().map(<[u8]>::to_vec);
            let shown = DumpedGroup {
                file: name_of(&segment.path),
                offset: start,
                sequence,
                first_position: first,
                records: records.collect(),
            };
            if each(shown).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        (start, sequence, first) = (frame.next, sequence + 1, next);
    }
    Ok(ControlFlow::Continue(()))
}

/// Repairs a damaged journal so that it opens again. A damaged header is written again if the frames
/// after it prove its values. Lost records get placeholders, and the intact
/// records after them are kept at their positions; [`RepairReport::lost`] lists the lost ones. The
/// journal is cut only where the number of lost records cannot be determined, or nothing after them
/// can be read: then checkpoints after the cut are lowered to it. Damaged segments are kept in the same
/// folder in files named `lost-*`. An intact journal is left unchanged. `seen` is the last position
/// that any reader is known to have seen, 0 if unknown: an apparent torn tail below it is damage as
/// well.
///
/// # Errors
/// Returns an error if the journal is open, or an I/O operation fails.
pub fn repair(dir: &Path, seen: u64) -> Result<RepairReport, OpenError> {
    repair_with(&(Arc::new(RealFiles) as Arc<dyn Files>), dir, seen)
}

/// Does the same as [`repair`], on the given `files`.
///
/// # Errors
/// See [`repair`].
pub fn repair_with(
    files: &Arc<dyn Files>,
    dir: &Path,
    seen: u64,
) -> Result<RepairReport, OpenError> {
    let _lock = lock(&**files, dir)?;
    let mut found = examine(&**files, dir, false)?;
    let damage = found.damage.clone();
    let (mut set_aside, mut lost) = (Vec::new(), Vec::new());
    while found.damage.is_some() {
        let Some(holes) = fill(&**files, dir, &found, seen)? else { break };
        let file = found.damage.as_ref().map(|damage| name_of(&damage.file)).unwrap_or_default();
        set_aside.push(format!("lost-{file}"));
        lost.extend(holes);
        let before = found.next_position;
        found = examine(&**files, dir, false)?;
        if found.next_position <= before {
            break;
        }
    }
    let last_position = found.next_position - 1;
    let beyond = found.damage.as_ref().map_or(0, |damage| damage.records_lost_at_least);
    let cut_records_at_least = beyond.max(seen.saturating_sub(last_position));
    let cut = found.damage.is_some() || (found.cut.is_some() && last_position < seen);
    if cut {
        move_aside(&**files, dir, &found, &mut set_aside)?;
        seal(files, dir, &found)?;
    }
    let consumers_lowered = consumer::lower(&**files, dir, &found.names, last_position)?;
    let cut_records_at_least = if cut { cut_records_at_least } else { 0 };
    Ok(RepairReport {
        damage,
        lost,
        cut,
        cut_records_at_least,
        last_position,
        set_aside,
        consumers_lowered,
    })
}

/// Copies the damaged segment and the ring, and renames the segments after it. Adds the new names to
/// `lost`; a file that is named there already is left alone.
fn move_aside(
    files: &dyn Files,
    dir: &Path,
    found: &Found,
    lost: &mut Vec<String>,
) -> Result<(), OpenError> {
    let kept = found.segments.last().map_or(0, |s| s.header.epoch);
    for name in &found.names {
        let (from, to) = (dir.join(name), dir.join(format!("lost-{name}")));
        match named(name) {
            // It has been filled, and the file there is the damaged one.
            Named::Segment(_) if lost.contains(&format!("lost-{name}")) => continue,
            Named::Segment(epoch) if epoch > kept => {
                files.rename(&from, &to).map_err(refused(&from, "cannot set aside"))?;
            }
            Named::Segment(epoch) if epoch == kept => copy(files, &from, &to)?,
            Named::Ring(_) => copy(files, &from, &to)?,
            _ => continue,
        }
        lost.push(format!("lost-{name}"));
    }
    files.persist_dir(dir).map_err(refused(dir, "cannot persist the folder"))
}

pub(crate) fn copy(files: &dyn Files, from: &Path, to: &Path) -> Result<(), OpenError> {
    let source = files.open(from, Access::READ).map_err(refused(from, "cannot open"))?;
    let target = files.open(to, Access::CREATE).map_err(refused(to, "cannot create"))?;
    let mut piece = Blocks::new();
    let piece = piece.reset(256 * BLOCK_BYTES);
    let mut at = 0;
    loop {
        let got = source.read_at(piece, at).map_err(refused(from, "cannot read"))?;
        let Some(bytes) = piece.get(..got).filter(|b| !b.is_empty()) else { break };
        target.write_all_at(bytes, at).map_err(refused(to, "cannot write"))?;
        at += got as u64;
    }
    target.persist().map_err(refused(to, "cannot persist"))
}

/// Adds a segment whose header seals the previous one.
fn seal(files: &Arc<dyn Files>, dir: &Path, found: &Found) -> Result<(), OpenError> {
    let header = found.segments.last().map(|s| s.header);
    let Some(header) = header else { return Ok(()) };
    let options = Options {
        layout: Layout::Packed,
        segment_bytes: BLOCK_BYTES as u64 * 4,
        io: IoPath::Fdatasync,
        fill_ahead_bytes: BLOCK_BYTES as u64,
        spares: 0,
        background: false,
        files: Arc::clone(files),
        ..Options::default()
    };
    let ring: std::collections::VecDeque<RingGroup> = found.ring.clone();
    let catalog = Catalog { segments: found.segments.iter().cloned().collect(), ring };
    let catalog = Arc::new(RwLock::new(catalog));
    let io = IoPath::Fdatasync;
    let pool = Arc::new(Pool::new(&options, dir.to_owned(), io, Vec::new()));
    let setup = Setup { options, dir: dir.to_owned(), io, catalog, pool };
    let mut writer = Writer::new(setup, header.journal, found);
    let sealed = writer.roll(0).and_then(|()| writer.close());
    sealed.map(|_| ()).map_err(|e| {
        let why = match e {
            WriteError::Refused(e) => e.to_string(),
            WriteError::Fatal(why) => why,
        };
        refused(dir, "cannot seal the journal")(std::io::Error::other(why))
    })
}
