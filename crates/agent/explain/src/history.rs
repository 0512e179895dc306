//! The history of apt: which of its commands ran when. dpkg's log does not say who started dpkg.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use crate::limits;
use crate::log::Stamp;

/// A run of apt or one of its relatives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AptRun {
    /// Microseconds since the epoch.
    pub(crate) began_us: u64,
    /// `None` while it runs.
    ended_us: Option<u64>,
    /// Such as `apt-get`.
    pub(crate) tool: String,
}

/// The history as last read.
#[derive(Debug)]
pub(crate) struct History {
    path: PathBuf,
    read: Option<(Stamp, i64)>,
    runs: Vec<AptRun>,
}

impl History {
    /// Returns the history of the system below `root`, not yet read.
    pub(crate) fn new(root: &Path) -> Self {
        Self { path: root.join("var/log/apt/history.log"), read: None, runs: Vec::new() }
    }

    /// Reads the end of the history if it was written since. Its times are local, with this offset.
    pub(crate) fn refresh(&mut self, offset_us: i64) {
        let stamp = Stamp::of(&self.path).map(|stamp| (stamp, offset_us));
        if stamp != self.read {
            self.read = stamp;
            let text = read_end(&self.path).unwrap_or_default();
            self.runs = parse(&String::from_utf8_lossy(&text), offset_us);
        }
    }

    /// Returns the run in which a line of dpkg's log was written.
    pub(crate) fn run_at(&self, at_us: u64) -> Option<AptRun> {
        let within = |run: &&AptRun| {
            run.began_us <= at_us && run.ended_us.is_none_or(|ended_us| at_us <= ended_us)
        };
        self.runs.iter().rev().find(within).cloned()
    }
}

fn read_end(path: &Path) -> Option<Vec<u8>> {
    let mut file = File::open(path).ok()?;
    let meta = file.metadata().ok().filter(fs::Metadata::is_file)?;
    file.seek(SeekFrom::Start(meta.len().saturating_sub(limits::LOG_BYTES_MAX))).ok()?;
    let mut text = Vec::new();
    file.take(limits::LOG_BYTES_MAX).read_to_end(&mut text).ok()?;
    Some(text)
}

/// Reads paragraphs with `Start-Date`, `Commandline` and `End-Date`. A run without an end has ended
/// if another one follows.
fn parse(text: &str, offset_us: i64) -> Vec<AptRun> {
    let mut runs: Vec<AptRun> = Vec::new();
    for line in text.lines() {
        let Some((field, value)) = line.split_once(": ") else { continue };
        let time = || {
            let (day, time) = value.split_once("  ")?;
            let at_us = model::timestamp::parse_micros(&format!("{day}T{time}Z"))?;
            Some(at_us.saturating_add_signed(offset_us))
        };
        match (field, runs.last_mut()) {
            ("Start-Date", before) => {
                let Some(began_us) = time() else { continue };
                if let Some(before) = before {
                    before.ended_us.get_or_insert(began_us.saturating_sub(1));
                }
                runs.push(AptRun { began_us, ended_us: None, tool: "apt".into() });
            }
            ("Commandline", Some(run)) => {
                let words = value.split(' ').filter(|word| !word.starts_with('-'));
                let names = words.take(2).map(|word| word.rsplit('/').next().unwrap_or_default());
                // An interpreter comes before its script.
                let mut names = names.filter(|name| !name.starts_with("python"));
                names.next().unwrap_or("apt").clone_into(&mut run.tool);
            }
            ("End-Date", Some(run)) => run.ended_us = time().or(run.ended_us),
            _ => {}
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_belong_to_the_run_around_them() {
        let text = "\nStart-Date: 2026-11-28  23:54:30\n\
            Commandline: apt-get install -y a\nInstall: a:amd64 (1)\n\
            End-Date: 2026-11-28  23:54:40\n\n\
            Start-Date: 2026-11-28  23:55:00\n\
            Commandline: /usr/bin/python3 /usr/bin/unattended-upgrade\n";
        let hour_us = 3_600_000_000;
        let runs = parse(text, -hour_us);
        let history = History { runs, ..History::new(Path::new("/none")) };
        let at = |time: &str| {
            let at_us = model::timestamp::parse_micros(&format!("2026-11-28T{time}Z")).unwrap();
            history.run_at(at_us).map(|run| run.tool)
        };
        assert_eq!(at("22:54:29"), None);
        assert_eq!(at("22:54:40").as_deref(), Some("apt-get"));
        assert_eq!(at("22:54:50"), None, "between two runs");
        assert_eq!(at("23:30:00").as_deref(), Some("unattended-upgrade"), "it still runs");
    }
}
