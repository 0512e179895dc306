//! The guarded clock of a data folder, persisted in `clock.json` (`docs/format/clock.md`).
//!
//! Locking: `written` is held while the file is written. The lock of [`GuardedClock`] is taken
//! under it, never the other way round.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use env::clock::{Clock, SystemClock};
use env::guard::{
    Acceptance, ClockChange, GuardedClock, Hold, Release, StoredHold, StoredTime,
    kernel_is_synchronised,
};
use model::timestamp;
use model::{Coverage, CoverageKind, EventBody};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tracing::{error, info, warn};

use crate::layout::DataFolder;

/// Interval at which the guarded time is persisted.
pub const STORE_EVERY: Duration = Duration::from_mins(1);
/// Earliest time that is believed, microseconds since the epoch: 2026-01-01. No data of this
/// program is older.
const BELIEVED_US_MIN: u64 = 1_767_225_600_000_000;
/// Version of the file.
const VERSION: u32 = 1;

/// The content of the file.
#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    /// RFC 3339 with microseconds.
    time: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hold: Option<StoredHeld>,
}

#[derive(Serialize, Deserialize)]
struct StoredHeld {
    /// RFC 3339 with microseconds.
    since: String,
    lasted_us: u64,
    offset_us: i64,
}

impl From<StoredTime> for Stored {
    fn from(time: StoredTime) -> Self {
        Self {
            version: VERSION,
            time: timestamp::micros(time.time_us),
            hold: time.hold.map(|hold| StoredHeld {
                since: timestamp::micros(hold.since_us),
                lasted_us: hold.lasted_us,
                offset_us: hold.offset_us,
            }),
        }
    }
}

impl Stored {
    fn read(&self) -> Option<StoredTime> {
        let hold = match &self.hold {
            None => None,
            Some(hold) => Some(StoredHold {
                since_us: timestamp::parse_micros(&hold.since)?,
                lasted_us: hold.lasted_us,
                offset_us: hold.offset_us,
            }),
        };
        Some(StoredTime { time_us: timestamp::parse_micros(&self.time)?, hold })
    }
}

/// The guarded clock of a folder that this process serves.
pub struct FolderClock {
    pub clock: Arc<GuardedClock>,
    folder: DataFolder,
    /// Held while the file is written.
    written: Mutex<LastWrite>,
}

#[derive(Default)]
struct LastWrite {
    /// Monotonic time of the next regular write.
    due: Duration,
    /// True if the last write failed.
    failed: bool,
}

impl FolderClock {
    /// Opens the clock of a folder whose lock is held, and persists it. `ages` are those at which data
    /// is deleted: a step forward that is below half of each is followed at once while the kernel's
    /// clock is synchronised.
    pub fn open(folder: &DataFolder, ages: &[Duration]) -> Self {
        let half = ages.iter().map(|age| *age / 2).min().unwrap_or(Duration::ZERO);
        let below = half.saturating_sub(Duration::from_micros(1));
        let guard = read_guarded(folder).following_synchronised(below, kernel_is_synchronised);
        let clock = Arc::new(guard);
        if let Some(hold) = clock.hold() {
            warn!("{}", held_text(&hold, folder.path()));
        }
        let own = Self { clock, folder: folder.clone(), written: Mutex::default() };
        own.persist();
        own
    }

    /// Persists the time if that is due. Returns the holds that began and ended since the last
    /// call, after logging them. Call it every second.
    pub fn tick(&self) -> Vec<ClockChange> {
        let changes = self.clock.take_changes();
        for change in &changes {
            match change {
                ClockChange::Held(hold) => warn!("{}", held_text(hold, self.folder.path())),
                ClockChange::Released { .. } => info!("{}", released_text(change)),
            }
        }
        if !changes.is_empty() || self.clock.monotonic() >= self.written.lock().due {
            self.persist();
        }
        changes
    }

    /// Persists the time now. Only the first of consecutive failures is logged; none is returned.
    pub fn persist(&self) {
        let before = self.written.lock().failed;
        match self.store() {
            Err(problem) if !before => error!("{problem:#}: the guarded time is not persisted"),
            _ => {}
        }
    }

    /// Persists the time now.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn store(&self) -> anyhow::Result<()> {
        let mut written = self.written.lock();
        written.due = self.clock.monotonic() + STORE_EVERY;
        let done = write(&self.folder.clock(), self.clock.stored());
        written.failed = done.is_err();
        done
    }

    /// Returns the event id and the server event for the start or the end of a hold.
    pub fn event(&self, change: &ClockChange) -> (String, EventBody) {
        let (at_us, detail) = match change {
            ClockChange::Held(hold) => (hold.since_us, held_text(hold, self.folder.path())),
            ClockChange::Released { to_us, .. } => (*to_us, released_text(change)),
        };
        let word = if matches!(change, ClockChange::Held(_)) { "held" } else { "released" };
        let event = EventBody::of_coverage(Coverage {
            kind: CoverageKind::ClockJump,
            path: String::new(),
            from_us: at_us,
            to_us: at_us,
            found: None,
            lasting: None,
            detail,
        });
        (format!("clock-{word}-{at_us}"), event)
    }
}

/// Lets the guarded time follow the wall clock at once, in a folder that no process serves and whose
/// lock is held. Returns whether it was held, and the guarded time after it, microseconds since the
/// epoch.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn accept(folder: &DataFolder) -> anyhow::Result<(Acceptance, u64)> {
    let clock = read_guarded(folder);
    let acceptance = clock.accept();
    write(&folder.clock(), clock.stored())?;
    Ok((acceptance, clock.guarded_us()))
}

/// Returns the guarded clock of a folder as it was last persisted. Commands may call this while a
/// server runs.
pub fn read_guarded(folder: &DataFolder) -> GuardedClock {
    let clock = Arc::new(SystemClock::new());
    let stored = match load(&folder.clock()) {
        Ok(Some(stored)) => Some(stored),
        Ok(None) => newest(folder, clock.now_us()),
        Err(problem) => {
            warn!("{problem:#}: the newest file of the data folder counts instead");
            newest(folder, clock.now_us())
        }
    };
    GuardedClock::new(clock, stored).trusting_from(BELIEVED_US_MIN)
}

/// Returns the modification time of the newest data file, for folders of earlier versions, which
/// did not store the time. The result is at most the wall clock: the file may have been written at
/// a wrong time, and a time that is too early expires no data.
fn newest(folder: &DataFolder, now_us: u64) -> Option<StoredTime> {
    let newest_us = folder.data_files().iter().filter_map(|path| modified_us(path)).max()?;
    Some(StoredTime { time_us: newest_us.min(now_us), hold: None })
}

fn modified_us(path: &Path) -> Option<u64> {
    let modified = fs::metadata(path).ok()?.modified().ok()?;
    u64::try_from(modified.duration_since(UNIX_EPOCH).ok()?.as_micros()).ok()
}

fn load(path: &Path) -> anyhow::Result<Option<StoredTime>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e).with_context(|| path.display().to_string()),
    };
    let stored: Stored =
        serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
    if stored.version != VERSION {
        bail!("{}: version {}, not {VERSION}", path.display(), stored.version);
    }
    stored.read().map(Some).with_context(|| format!("{}: not a time", path.display()))
}

/// Replaces the file atomically: a crash leaves the old or the new content.
fn write(path: &Path, time: StoredTime) -> anyhow::Result<()> {
    let what = || path.display().to_string();
    let new: PathBuf = path.with_extension("json.new");
    let text = serde_json::to_vec(&Stored::from(time)).with_context(what)?;
    let mut file = File::create(&new).with_context(what)?;
    file.write_all(&text).and_then(|()| file.sync_all()).with_context(what)?;
    fs::rename(&new, path).with_context(what)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).with_context(what)
}

/// Formats a hold, with what to do about it.
pub fn held_text(hold: &Hold, folder: &Path) -> String {
    let wall_us = hold.since_us.saturating_add_signed(hold.offset_us);
    format!(
        "the wall clock is at {}, {} {} the last time known to be right ({}): it is not followed, \
         so that nothing is forgotten by a wrong time; set the clock right, or, if it is right, \
         run `holdfast clock accept --data {}`; otherwise it is followed after {} of uptime",
        timestamp::micros(wall_us),
        format_span(hold.offset_us.unsigned_abs()),
        if hold.offset_us > 0 { "ahead of" } else { "behind" },
        timestamp::micros(hold.since_us),
        folder.display(),
        format_span(hold.remaining.as_micros() as u64),
    )
}

fn released_text(change: &ClockChange) -> String {
    let ClockChange::Released { why, from_us, to_us } = change else { return String::new() };
    let why = match why {
        Release::Returned => "it came back",
        Release::Waited => "it kept its time for a day",
        Release::Accepted => "it was accepted by an operator",
        Release::Synchronised => "the kernel says that it is synchronised",
    };
    format!(
        "the wall clock is followed: {why}; the guarded time was {} and is {}",
        timestamp::micros(*from_us),
        timestamp::micros(*to_us)
    )
}

/// Formats a length of time in the largest unit of which it contains at least two.
fn format_span(us: u64) -> String {
    let minutes = us / 60_000_000;
    match minutes {
        0..120 => format!("{minutes} minutes"),
        120..2_880 => format!("{} hours", minutes / 60),
        2_880..1_051_200 => format!("{} days", minutes / 1_440),
        _ => format!("{} years", minutes / 525_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_guarded_time_round_trips() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clock.json");
        assert_eq!(load(&path).unwrap(), None);
        let hold = StoredHold { since_us: 7_000_001, lasted_us: 3, offset_us: -9 };
        for hold in [None, Some(hold)] {
            let time = StoredTime { time_us: 1_790_000_000_000_001, hold };
            write(&path, time).unwrap();
            assert_eq!(load(&path).unwrap(), Some(time));
        }
    }

    #[test]
    fn damaged_or_newer_clock_file_is_named_in_the_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clock.json");
        for text in ["", "{", "{\"version\":2,\"time\":\"\"}", "{\"version\":1,\"time\":\"x\"}"] {
            fs::write(&path, text).unwrap();
            let error = format!("{:#}", load(&path).unwrap_err());
            assert!(error.contains("clock.json"), "{error}");
        }
    }

    #[test]
    fn time_spans_are_shown_in_the_largest_fitting_unit() {
        let minute = 60_000_000;
        let day = 1_440 * minute;
        let shown =
            [0, 90 * minute, 3 * 60 * minute, 2 * day, 300 * day, 3_650 * day].map(format_span);
        assert_eq!(shown, ["0 minutes", "90 minutes", "3 hours", "2 days", "300 days", "10 years"]);
    }
}
