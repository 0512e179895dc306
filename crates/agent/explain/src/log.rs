//! The end of `dpkg.log`: which packages were changed, from and to which version, and when.
//!
//! The lines have local time without an offset. The offset follows from the last line and the time
//! at which the file was written: dpkg writes each line at once.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::limits;

const QUARTER_HOUR_US: i64 = 15 * 60 * 1_000_000;
/// Largest offset of local time.
const OFFSET_MAX_US: i64 = 15 * 60 * 60 * 1_000_000;

/// The step of dpkg that a line records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Installs or upgrades.
    Install,
    /// Removes or purges.
    Remove,
    /// Configures, or reports a state.
    Other,
}

/// A line about a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogLine {
    /// Microseconds since the epoch.
    pub(crate) at_us: u64,
    pub(crate) action: Action,
    /// `NAME:ARCHITECTURE`.
    pub(crate) package: String,
    /// Versions before and after; empty if there is none.
    pub(crate) before: String,
    pub(crate) after: String,
}

impl LogLine {
    pub(crate) fn name(&self) -> &str {
        self.package.split(':').next().unwrap_or_default()
    }
}

/// The log as last read.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    stamp: Option<Stamp>,
    lines: Vec<LogLine>,
}

/// Identity of one state of a file: inode, size and change time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp(u64, u64, i64, i64);

impl Stamp {
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let meta = fs::symlink_metadata(path).ok()?;
        Some(Self(meta.ino(), meta.len(), meta.ctime(), meta.ctime_nsec()))
    }
}

impl Log {
    /// Returns the log of the system below `root`, not yet read.
    pub(crate) fn new(root: &Path) -> Self {
        Self { path: root.join("var/log/dpkg.log"), stamp: None, lines: Vec::new() }
    }

    /// Reads the end of the log if it was written since.
    pub(crate) fn refresh(&mut self) {
        let stamp = Stamp::of(&self.path);
        if stamp != self.stamp {
            self.stamp = stamp;
            self.lines = read_end(&self.path).unwrap_or_default();
        }
    }

    pub(crate) fn forget(&mut self) {
        self.stamp = None;
        self.lines = Vec::new();
    }

    /// Returns the lines not further away from this time than [`limits::LOG_WINDOW`].
    pub(crate) fn near(&self, at_us: u64) -> impl Iterator<Item = &LogLine> {
        let most = limits::LOG_WINDOW.as_micros() as u64;
        self.lines.iter().filter(move |line| line.at_us.abs_diff(at_us) <= most)
    }

    /// Returns the lines since this time.
    pub(crate) fn since(&self, from_us: u64) -> impl Iterator<Item = &LogLine> {
        self.lines.iter().filter(move |line| line.at_us >= from_us)
    }

    /// Returns the last line that installed or removed a package, not after this time.
    pub(crate) fn last_of(&self, name: &str, to_us: u64) -> Option<&LogLine> {
        let is_step = |line: &&LogLine| line.action != Action::Other && line.at_us <= to_us;
        self.lines.iter().rev().filter(is_step).find(|line| line.name() == name)
    }

    /// Returns the time of the first line of the transaction that a time belongs to: between its
    /// lines there is no pause longer than [`limits::LOG_WINDOW`].
    pub(crate) fn transaction_us(&self, at_us: u64) -> Option<u64> {
        let most = limits::LOG_WINDOW.as_micros() as u64;
        let mut first_us = None;
        for line in self.lines.iter().rev().skip_while(|line| line.at_us > at_us + most) {
            if line.at_us + most < first_us.unwrap_or(at_us) {
                break;
            }
            first_us = Some(line.at_us);
        }
        first_us
    }
}

fn read_end(path: &Path) -> Option<Vec<LogLine>> {
    let mut file = File::open(path).ok()?;
    let meta = file.metadata().ok().filter(fs::Metadata::is_file)?;
    let skipped = meta.len().saturating_sub(limits::LOG_BYTES_MAX);
    file.seek(SeekFrom::Start(skipped)).ok()?;
    let mut text = Vec::new();
    file.take(limits::LOG_BYTES_MAX).read_to_end(&mut text).ok()?;
    let written_us = meta.mtime().saturating_mul(1_000_000) + meta.mtime_nsec() / 1_000;
    let lines = text.split(|b| *b == b'\n').skip(usize::from(skipped > 0));
    Some(parse(lines, written_us))
}

fn parse<'a>(lines: impl Iterator<Item = &'a [u8]>, written_us: i64) -> Vec<LogLine> {
    let mut found = Vec::new();
    let mut last_us = 0;
    for line in lines {
        let Some((at_us, rest)) = split_time(line) else { continue };
        last_us = at_us;
        found.extend(parse_rest(at_us, rest));
    }
    let offset_us = i64::try_from(last_us).map_or(0, |last_us| offset(written_us - last_us));
    for line in &mut found {
        line.at_us = line.at_us.saturating_add_signed(offset_us);
    }
    found
}

/// Returns the time to add to local time: a multiple of a quarter of an hour.
fn offset(difference_us: i64) -> i64 {
    let quarters = (difference_us + QUARTER_HOUR_US / 2).div_euclid(QUARTER_HOUR_US);
    let offset_us = quarters * QUARTER_HOUR_US;
    if offset_us.abs() > OFFSET_MAX_US { 0 } else { offset_us }
}

/// Splits `YYYY-MM-DD HH:MM:SS REST`. The time is read as if it were UTC.
fn split_time(line: &[u8]) -> Option<(u64, &str)> {
    let line = std::str::from_utf8(line).ok()?;
    let (time, rest) = line.split_at_checked(19)?;
    let (day, time) = time.split_once(' ')?;
    let at_us = model::timestamp::parse_micros(&format!("{day}T{time}Z"))?;
    Some((at_us, rest.strip_prefix(' ')?))
}

fn parse_rest(at_us: u64, rest: &str) -> Option<LogLine> {
    let mut words = rest.split(' ');
    let action = match words.next()? {
        "install" | "upgrade" => Action::Install,
        "remove" | "purge" => Action::Remove,
        "configure" | "trigproc" => Action::Other,
        "status" => {
            words.next()?;
            Action::Other
        }
        _ => return None,
    };
    let package = words.next()?.to_owned();
    let version = |word: Option<&str>| {
        let word = word.filter(|word| !word.starts_with('<'));
        word.unwrap_or_default().to_owned()
    };
    let (before, after) = (version(words.next()), version(words.next()));
    package.contains(':').then_some(LogLine { at_us, action, package, before, after })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "2026-11-26 15:03:58 startup archives unpack\n\
        2026-11-26 15:03:59 upgrade a:amd64 1.0 2.0\n\
        2026-11-26 15:04:00 status half-installed a:amd64 1.0\n\
        2026-11-26 15:04:50 install b:all <none> 3\n\
        no line\n\
        2026-11-26 15:10:04 remove a:amd64 2.0 <none>\n";

    fn at(text: &str) -> u64 {
        model::timestamp::parse_micros(text).unwrap()
    }

    fn log() -> Log {
        let written_us = at("2026-11-26T13:10:04.300Z") as i64;
        let lines = parse(TEXT.split('\n').map(str::as_bytes), written_us);
        Log { lines, ..Log::new(Path::new("/none")) }
    }

    #[test]
    fn lines_have_versions_and_universal_time() {
        let log = log();
        let upgrade = log.last_of("a", at("2026-11-26T13:05:00Z")).unwrap();
        assert_eq!((&*upgrade.before, &*upgrade.after), ("1.0", "2.0"));
        assert_eq!(upgrade.at_us, at("2026-11-26T13:03:59Z"));
        let removal = log.last_of("a", u64::MAX).unwrap();
        assert_eq!((removal.action, &*removal.after), (Action::Remove, ""));
        assert_eq!(log.last_of("b", u64::MAX).unwrap().before, "", "not installed before");
    }

    #[test]
    fn lines_near_a_time_belong_to_one_transaction() {
        let log = log();
        let near: Vec<_> = log.near(at("2026-11-26T13:05:30Z")).map(LogLine::name).collect();
        assert_eq!(near, ["b"]);
        let first = log.transaction_us(at("2026-11-26T13:05:30Z"));
        assert_eq!(first, Some(at("2026-11-26T13:03:59Z")));
        assert_eq!(log.transaction_us(at("2026-11-26T13:30:00Z")), None);
    }

    #[test]
    fn offset_is_rounded_and_bounded() {
        assert_eq!(offset(-7_200_000_000 + 300_000), -7_200_000_000);
        assert_eq!(offset(20_700_000_000), 20_700_000_000, "UTC-5:45");
        assert_eq!(offset(OFFSET_MAX_US * 2), 0);
    }
}
