//! The host's metrics, read from `/proc` (proc(5)). A sample is a list of rows; each row has a name
//! with tags, and values. Counters are reported as the kernel counts them, since boot; queries
//! compute differences.
//!
//! A source that cannot be read or is malformed has one line in [`Reading::problems`]. The rows of the
//! other sources are complete. Limits: [`ROWS_MAX`], [`TEXT_BYTES_MAX`], [`PROCESSES_MAX`].

mod process;
mod space;
mod system;

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Most rows of one sample; further devices, mounts and interfaces are left out.
pub const ROWS_MAX: usize = 512;
/// Largest file of `/proc` that is read, bytes.
pub const TEXT_BYTES_MAX: u64 = 4 << 20;
/// Most processes that are searched for a name.
pub const PROCESSES_MAX: usize = 100_000;

/// Interfaces that are left out by default: the host's ends of container links, and bridges. Each
/// start of a container creates new names, and each name would be a series until its samples
/// expire.
const INTERFACES_IGNORED: [&str; 6] = ["veth*", "cali*", "lxc*", "eni*", "br-*", "tap*"];

/// Returns the patterns of interfaces that are left out by default.
pub fn ignored_interfaces() -> Vec<String> {
    INTERFACES_IGNORED.map(str::to_owned).into()
}

/// Values that share a name, tags and a time.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricRow {
    /// `metric|metric tag=value`, with special characters escaped by `\`.
    pub name: String,
    /// One value for each metric: bytes, seconds or counts.
    pub values: Vec<f64>,
}

/// Result of one sample.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reading {
    /// Values that could be read.
    pub rows: Vec<MetricRow>,
    /// Sources that could not be read, one line each.
    pub problems: Vec<String>,
}

impl Reading {
    fn row(&mut self, metrics: &[&str], tag: (&str, &str), values: Vec<f64>) {
        if self.rows.len() < ROWS_MAX {
            let (key, value) = (tag.0, escaped(tag.1));
            let name = format!("{} {key}={value}", metrics.join("|"));
            self.rows.push(MetricRow { name, values });
        }
    }

    /// Adds the rows of one source. If `read` returns `None`, adds a line to `problems`.
    fn part(&mut self, what: &str, read: impl FnOnce(&mut Self) -> Option<()>) {
        if read(self).is_none() {
            self.problems.push(format!("{what}: not there, or not as proc(5) describes it"));
        }
    }
}

/// The sampler of the host's metrics.
#[derive(Debug, Clone)]
pub struct Metrics {
    root: PathBuf,
    names: Vec<String>,
    ignored: Vec<String>,
    space: space::Space,
}

impl Metrics {
    /// Returns a sampler of the system below `root` (usually `/`) and of the processes with these
    /// names (at most 15 bytes, as in `/proc/PID/comm`). Interfaces that match one of `ignored`, a
    /// name or a prefix followed by `*`, are left out.
    pub fn new(root: &Path, names: &[String], ignored: &[String]) -> Self {
        let (names, ignored) = (names.to_vec(), ignored.to_vec());
        Self { root: root.to_owned(), names, ignored, space: space::Space::default() }
    }

    /// Takes a sample. Blocks for a few seconds at most: network file systems are not queried, and
    /// a local one that does not answer is skipped.
    pub fn sample(&self) -> Reading {
        let mut look = Reading::default();
        look.part("/proc/stat", |look| system::stat(&self.text("stat")?, look));
        look.part("/proc/loadavg", |look| system::load(&self.text("loadavg")?, look));
        look.part("/proc/meminfo", |look| system::memory(&self.text("meminfo")?, look));
        look.part("/proc/net/dev", |look| {
            system::network(&self.text("net/dev")?, &self.ignored, look)
        });
        look.part("/proc/diskstats", |look| {
            let whole = |device: &str| self.root.join("sys/block").join(device).exists();
            system::disks(&self.text("diskstats")?, whole, look)
        });
        look.part("/proc/self/mounts", |look| self.space.rows(&self.text("self/mounts")?, look));
        if !self.names.is_empty() {
            look.part("/proc", |look| process::named(&self.root.join("proc"), &self.names, look));
        }
        look
    }

    fn text(&self, name: &str) -> Option<String> {
        text(&self.root.join("proc").join(name))
    }
}

/// Returns the content of a file of `/proc`; `None` if it cannot be read or is larger than
/// [`TEXT_BYTES_MAX`].
fn text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    let read = File::open(path).ok()?.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
    if read as u64 > TEXT_BYTES_MAX {
        return None;
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns a tag's value escaped for a row's name; `-` if it is empty.
fn escaped(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ' ' | '=' | '|' | '\\' => name.extend(['\\', c]),
            c if c.is_control() => name.push('?'),
            c => name.push(c),
        }
    }
    if name.is_empty() { "-".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_sample_has_finite_values_and_no_problems() {
        let own = text(Path::new("/proc/self/comm")).unwrap();
        let look = Metrics::new(Path::new("/"), &[own.trim().to_owned()], &[]).sample();
        assert_eq!(look.problems, Vec::<String>::new());
        for wanted in ["cpu.user|", "load.1|", "memory.total|", "process.count|"] {
            assert!(look.rows.iter().any(|row| row.name.starts_with(wanted)), "{wanted}: {look:?}");
        }
        for row in &look.rows {
            let (metrics, _) = row.name.split_once(' ').unwrap();
            assert_eq!(metrics.split('|').count(), row.values.len(), "{row:?}");
            assert!(row.values.iter().all(|v| v.is_finite() && *v >= 0.0), "{row:?}");
        }
    }

    #[test]
    fn unreadable_source_gives_problem_and_no_row() {
        let look = Metrics::new(Path::new("/does/not/exist"), &["x".into()], &[]).sample();
        assert_eq!((look.rows.len(), look.problems.len()), (0, 7), "{look:?}");
    }

    #[test]
    fn tag_values_are_escaped() {
        assert_eq!(escaped("/mnt/a b|c=d\\e\n"), "/mnt/a\\ b\\|c\\=d\\\\e?");
        assert_eq!(escaped(""), "-");
    }
}
