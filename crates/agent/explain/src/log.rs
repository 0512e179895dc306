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
    /// The run of dpkg that wrote the line.
    pub(crate) run: DpkgRun,
}

/// A run of dpkg, from its `startup` line to the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DpkgRun {
    /// Distinguishes runs that began in the same second.
    number: u32,
    /// Time of its first known line, microseconds since the epoch.
    pub(crate) first_us: u64,
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
    /// The log before the last rotation.
    rotated: PathBuf,
    stamp: Option<Stamp>,
    lines: Vec<LogLine>,
    /// To be added to local time.
    offset_us: i64,
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
        let [path, rotated] =
            ["dpkg.log", "dpkg.log.1"].map(|name| root.join("var/log").join(name));
        Self { path, rotated, stamp: None, lines: Vec::new(), offset_us: 0 }
    }

    /// Reads the end of the log if it was written since.
    pub(crate) fn refresh(&mut self) {
        let stamp = Stamp::of(&self.path);
        if stamp != self.stamp {
            self.stamp = stamp;
            // A run may have begun before the rotation.
            let rotated = Some(&self.rotated).filter(|path| is_recent(path));
            self.lines = rotated.and_then(|path| read_end(path)).unwrap_or_default().0;
            let rotated_runs = self.lines.last().map_or(0, |line| line.run.number + 1);
            let (lines, offset_us) = read_end(&self.path).unwrap_or_default();
            self.offset_us = offset_us;
            for mut line in lines {
                line.run.number += rotated_runs;
                self.lines.push(line);
            }
        }
    }

    /// Returns what is to be added to local time, microseconds.
    pub(crate) fn offset_us(&self) -> i64 {
        self.offset_us
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
}

/// Returns true if a file was written lately.
fn is_recent(path: &Path) -> bool {
    let written = fs::metadata(path).and_then(|meta| meta.modified());
    written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < limits::ROTATED_AGE_MAX))
}

/// Reads the end of a log. Returns its lines, and the offset that was added to their local times.
fn read_end(path: &Path) -> Option<(Vec<LogLine>, i64)> {
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

fn parse<'a>(lines: impl Iterator<Item = &'a [u8]>, written_us: i64) -> (Vec<LogLine>, i64) {
    let mut found = Vec::new();
    let mut last_us = 0;
    let mut run = DpkgRun::default();
    for line in lines {
        let Some((at_us, rest)) = split_time(line) else { continue };
        last_us = at_us;
        if rest.starts_with("startup ") {
            run = DpkgRun { number: run.number + 1, first_us: at_us };
        } else if run.first_us == 0 {
            run.first_us = at_us;
        }
        found.extend(parse_rest(at_us, rest).map(|line| LogLine { run, ..line }));
    }
    let offset_us = i64::try_from(last_us).map_or(0, |last_us| offset(written_us - last_us));
    for line in &mut found {
        line.at_us = line.at_us.saturating_add_signed(offset_us);
        line.run.first_us = line.run.first_us.saturating_add_signed(offset_us);
    }
    (found, offset_us)
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
    let run = DpkgRun::default();
    package.contains(':').then_some(LogLine { at_us, action, package, before, after, run })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "2026-11-26 15:03:58 startup archives unpack\n\
        2026-11-26 15:03:59 upgrade a:amd64 1.0 2.0\n\
        2026-11-26 15:04:00 status half-installed a:amd64 1.0\n\
        2026-11-26 15:04:50 install b:all <none> 3\n\
        2026-11-26 15:04:51 startup packages remove\n\
        2026-11-26 15:04:52 status installed c:all 1\n\
        no line\n\
        2026-11-26 15:10:04 remove a:amd64 2.0 <none>\n";

    fn at(text: &str) -> u64 {
        model::timestamp::parse_micros(text).unwrap()
    }

    fn log() -> Log {
        let written_us = at("2026-11-26T13:10:04.300Z") as i64;
        let (lines, _) = parse(TEXT.split('\n').map(str::as_bytes), written_us);
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
    fn lines_belong_to_the_run_that_wrote_them() {
        let log = log();
        let near: Vec<_> = log.near(at("2026-11-26T13:05:30Z")).map(LogLine::name).collect();
        assert_eq!(near, ["b", "c"]);
        let runs: Vec<_> = log.lines.iter().map(|line| line.run).collect();
        let first = DpkgRun { number: 1, first_us: at("2026-11-26T13:03:58Z") };
        let second = DpkgRun { number: 2, first_us: at("2026-11-26T13:04:51Z") };
        assert_eq!(runs, [first, first, first, second, second]);
    }

    #[test]
    fn offset_is_rounded_and_bounded() {
        assert_eq!(offset(-7_200_000_000 + 300_000), -7_200_000_000);
        assert_eq!(offset(20_700_000_000), 20_700_000_000, "UTC-5:45");
        assert_eq!(offset(OFFSET_MAX_US * 2), 0);
    }
}
