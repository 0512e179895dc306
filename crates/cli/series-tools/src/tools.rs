//! Commands on a store that no other process has open: delete, verify, export and import.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use client::DataArg;
use env::files::RealFiles;
use model::timestamp;
use readers::influx::{self, InfluxReader};
use readers::{RespReader, RowCollector, TelnetReader};
use serde_json::json;
use series::{
    Ack, Direction, END_OF_SERIES, QueuedBatch, Selector, Series, SeriesOpenError, SeriesReadError,
    Store, StoreOptions, TimeRange, Values,
};
use service::Console;

use crate::arguments::{
    SeriesDeleteArgs, SeriesExportArgs, SeriesFormat, SeriesImportArgs, SeriesLookArgs,
};
use folder::{DataFolder, is_there};

/// Bytes read at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// Longest time that a command waits for another process that has the store open: a server that is
/// stopping seals its samples first.
const LOCK_TIME_MAX: Duration = Duration::from_secs(10);
/// Interval between attempts to open a store that another process has open.
const LOCK_RETRY: Duration = Duration::from_millis(50);
/// Most batches of an import that wait to be written to the log.
const PIPELINE_MAX: usize = 16;

pub(crate) fn existing(data: &DataArg) -> anyhow::Result<PathBuf> {
    let dir = DataFolder::new(data.folder()?).series();
    if !is_there(&dir)? {
        bail!("{}: no series store is here; name its data folder with --data", dir.display());
    }
    Ok(dir)
}

/// Opens a store with `open`. If another process has it open, tries again for up to 10 seconds. Blocks.
///
/// # Errors
/// Returns the error of the last attempt.
pub fn when_unlocked<T>(
    open: impl Fn() -> Result<T, SeriesOpenError>,
) -> Result<T, SeriesOpenError> {
    let begin = Instant::now();
    let mut opened = open();
    if let Err(SeriesOpenError::Locked(dir)) = &opened {
        let seconds = LOCK_TIME_MAX.as_secs();
        tracing::warn!(
            "{}: waits up to {seconds} s for the process that has it open",
            dir.display()
        );
    }
    while matches!(opened, Err(SeriesOpenError::Locked(_))) && begin.elapsed() < LOCK_TIME_MAX {
        std::thread::sleep(LOCK_RETRY);
        opened = open();
    }
    opened
}

/// Opens the store without retention: only the server's configuration decides what is deleted.
fn open(dir: &Path) -> anyhow::Result<Store> {
    expect_own(dir)?;
    let opened = when_unlocked(|| Store::open(dir, StoreOptions::default().keeping_all()));
    let (store, _) = opened.context("series")?;
    Ok(store)
}

/// Returns an error if root would open another user's store: that user could not write the files
/// which root creates.
fn expect_own(dir: &Path) -> anyhow::Result<()> {
    let above = dir.parent().unwrap_or(dir);
    let Ok(found) = fs::metadata(dir).or_else(|_| fs::metadata(above)) else { return Ok(()) };
    let (user, group) = (found.uid(), found.gid());
    if user != 0 && rustix::process::geteuid().is_root() {
        bail!(
            "{}: belongs to user {user}, who could not write what root leaves there: run this as that \
             user: setpriv --reuid={user} --regid={group} --clear-groups holdfast ...",
            dir.display()
        );
    }
    Ok(())
}

/// Opens the store read-only, so that it may be on a read-only file system. A store that was not
/// closed cleanly is opened for writing instead, because its log must be replayed into parts.
pub(crate) fn open_read_only(dir: &Path) -> anyhow::Result<Store> {
    match when_unlocked(|| Store::open_read_only(dir, StoreOptions::default())) {
        Err(e @ SeriesOpenError::NotClosed(_)) => {
            open(dir).map_err(|why| if is_read_only(&why) { e.into() } else { why })
        }
        looked => looked.context("series"),
    }
}

/// Returns true if another process has the store open.
pub(crate) fn is_locked(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(SeriesOpenError::Locked(_)))
}

/// Returns true if the error was caused by a file system or a folder that cannot be written.
fn is_read_only(error: &anyhow::Error) -> bool {
    let causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    let kinds = [io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::PermissionDenied];
    causes.into_iter().any(|cause| kinds.contains(&cause.kind()))
}

fn selector(metric: Option<&str>, tags: &[String]) -> anyhow::Result<Selector> {
    let mut selector = metric.map(Selector::metric).unwrap_or_default();
    for tag in tags {
        let Some((name, value)) = tag.split_once('=') else {
            bail!("--tag {tag}: write NAME=VALUE");
        };
        selector = selector.with(name, value);
    }
    Ok(selector)
}

fn range(from: Option<&str>, to: Option<&str>) -> anyhow::Result<TimeRange> {
    let time = |text: Option<&str>, default: i64| -> anyhow::Result<i64> {
        let Some(text) = text else { return Ok(default) };
        if let Ok(ns) = text.parse() {
            return Ok(ns);
        }
        let us = timestamp::parse_micros(text);
        us.and_then(|us| i64::try_from(us).ok()?.checked_mul(1000)).with_context(|| {
            format!("`{text}` is neither RFC 3339 nor nanoseconds since the epoch")
        })
    };
    Ok(TimeRange { from_ns: time(from, i64::MIN)?, to_ns: time(to, i64::MAX)? })
}

/// Returns the selected series. No match is an error: a mistyped name must not look like an empty
/// series.
fn find_required(store: &Store, chosen: &Selector) -> anyhow::Result<Vec<Series>> {
    let found = store.find(chosen);
    if found.is_empty() {
        bail!(
            "no series has this name and these tags; `holdfast series export` shows those there are"
        );
    }
    Ok(found)
}

/// `holdfast series delete`.
pub fn delete(args: &SeriesDeleteArgs) -> anyhow::Result<()> {
    let dir = existing(&args.data)?;
    let console = Console::new();
    if args.all {
        // Opening the store proves that no other process has it open. A damaged store can be
        // removed too.
        match when_unlocked(|| Store::open(&dir, StoreOptions::default().keeping_all())) {
            Err(e @ SeriesOpenError::Locked(_)) => return Err(e).context("series"),
            opened => drop(opened),
        }
        fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
        console.line(&format!("removed: {}", dir.display()));
        return Ok(());
    }
    let store = open(&dir)?;
    let chosen = selector(args.metric.as_deref(), &args.tag)?;
    let found = find_required(&store, &chosen)?.len();
    store.delete(&chosen, range(args.from.as_deref(), args.to.as_deref())?)?;
    store.close()?;
    console.line(&format!("deleted: samples of {found} series"));
    Ok(())
}

/// Runs `holdfast series verify`. Returns false if a file is damaged.
pub fn verify(args: &SeriesLookArgs) -> anyhow::Result<bool> {
    let dir = existing(&args.data)?;
    let files: Arc<dyn env::files::Files> = Arc::new(RealFiles);
    let found = when_unlocked(|| series::verify(&dir, &files)).context("series")?;
    let console = Console::new();
    if args.json {
        console.line(&json!({ "sound": found.is_empty(), "damage": found }).to_string());
    } else {
        for damage in &found {
            console.line(&format!("damage: {damage}"));
        }
        if found.is_empty() {
            console.line(&format!("{}: all files are intact", dir.display()));
        }
    }
    Ok(found.is_empty())
}

/// Runs `holdfast series export`. Returns false if something could not be read.
pub fn export(args: &SeriesExportArgs) -> anyhow::Result<bool> {
    let store = open_read_only(&existing(&args.data)?)?;
    let chosen = selector(args.metric.as_deref(), &args.tag)?;
    let range = range(args.from.as_deref(), args.to.as_deref())?;
    let mut out = BufWriter::with_capacity(CHUNK_BYTES, io::stdout().lock());
    let mut left = LeftOut::default();
    let all = args.metric.is_none() && args.tag.is_empty();
    let chosen = if all { store.find(&chosen) } else { find_required(&store, &chosen)? };
    for series in chosen {
        write_series(&mut out, &store, &series, range, &mut left).context("stdout")?;
    }
    out.flush().context("stdout")?;
    drop(out);
    store.close()?;
    Ok(left.end())
}

/// The read errors, each with the number of series it affects.
#[derive(Default)]
struct LeftOut(BTreeMap<String, u64>);

impl LeftOut {
    /// Returns the value if it was read. Logs each error once: one damaged block may affect many
    /// series.
    fn readable<T>(&mut self, series: &str, read: Result<T, SeriesReadError>) -> Option<T> {
        let error = match read {
            Ok(read) => return Some(read),
            Err(e) => e.to_string(),
        };
        let times = self.0.entry(error.clone()).or_default();
        *times += 1;
        if *times == 1 {
            tracing::error!("{series}: left out: {error}");
        }
        None
    }

    /// Reports how often each error was repeated. Returns true if nothing was left out.
    fn end(self) -> bool {
        for (error, times) in self.0.iter().filter(|(_, times)| **times > 1) {
            tracing::error!("{} more series: left out: {error}", times - 1);
        }
        self.0.is_empty()
    }
}

/// A float as it is exported: `stale` marks the end of a series.
struct ExportedFloat(f64);

impl std::fmt::Display for ExportedFloat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.to_bits() == END_OF_SERIES {
            return f.write_str("stale");
        }
        // With an exponent for long numbers: the import limits the length of a number.
        write!(f, "{:?}", self.0)
    }
}

/// Writes the readable samples and events of a series as RESP.
fn write_series(
    out: &mut impl Write,
    store: &Store,
    series: &Series,
    range: TimeRange,
    left: &mut LeftOut,
) -> io::Result<()> {
    let (name, snapshot) = (series.name(), store.snapshot());
    let head = if readers::is_resp_name(name.as_bytes()) {
        format!("+{name}")
    } else {
        // Such a name could be read as a value, so it is sent as an entry of a dictionary.
        write!(out, "*2\r\n+{name}\r\n:1\r\n")?;
        ":1".to_owned()
    };
    if series.is_events() {
        let scan = snapshot.scan_events(series, range, Direction::Forward);
        for event in scan.filter_map(|read| left.readable(&name, read)).flatten() {
            write!(out, "{head}\r\n:{}\r\n${}\r\n", event.time_ns, event.text.len())?;
            out.write_all(&event.text)?;
            out.write_all(b"\r\n")?;
        }
        return Ok(());
    }
    let scan = snapshot.scan(series, range, Direction::Forward).with_markers();
    for run in scan.filter_map(|read| left.readable(&name, read)) {
        match &run.values {
            Values::F64(values) => {
                for (time, value) in run.times.iter().zip(values) {
                    write!(out, "{head}\r\n:{time}\r\n+{}\r\n", ExportedFloat(*value))?;
                }
            }
            Values::I64(values) => {
                for (time, value) in run.times.iter().zip(values) {
                    write!(out, "{head}\r\n:{time}\r\n:{value}\r\n")?;
                }
            }
        }
    }
    Ok(())
}

/// Runs `holdfast series import`. Returns false if a sample was refused.
pub fn import(args: &SeriesImportArgs) -> anyhow::Result<bool> {
    let folder = DataFolder::new(args.data.folder()?);
    if !is_there(folder.path())? {
        bail!(
            "{}: no such folder; `holdfast series create` makes a store",
            folder.path().display()
        );
    }
    folder.make()?;
    let store = open(&folder.series())?;
    let mut importing =
        Importing { store: &store, tickets: VecDeque::new(), samples: 0, refused: 0 };
    if args.file.is_empty() {
        importing.read("stdin", io::stdin().lock(), args.format)?;
    }
    for path in &args.file {
        if path == Path::new("-") {
            importing.read("stdin", io::stdin().lock(), args.format)?;
            continue;
        }
        let what = path.display().to_string();
        let file = File::open(path).with_context(|| what.clone())?;
        importing.read(&what, file, args.format)?;
    }
    importing.wait_in_flight(0)?;
    let (samples, refused) = (importing.samples, importing.refused);
    store.close()?;
    Console::new().line(&format!("imported: {samples} samples, {refused} refused"));
    Ok(refused == 0)
}

/// A parser that turns bytes into rows.
enum Reader {
    Resp(RespReader),
    Opentsdb(TelnetReader),
    Influx(InfluxReader),
}

impl Reader {
    /// Parses the complete items in `bytes`. Returns the number of bytes consumed.
    fn read(&mut self, bytes: &[u8], ended: bool, collector: &mut RowCollector<'_>) -> usize {
        match self {
            Self::Resp(reader) => {
                let done = reader.read(bytes, collector);
                if ended {
                    reader.end(bytes.get(done..).unwrap_or_default(), collector);
                }
                done
            }
            Self::Opentsdb(reader) => {
                let (done, _) = reader.read(bytes, collector);
                if ended {
                    reader.end(bytes.get(done..).unwrap_or_default(), collector);
                }
                done
            }
            Self::Influx(reader) => reader.read(bytes, ended, now_ns(), collector),
        }
    }
}

fn now_ns() -> i64 {
    use std::time::{SystemTime, UNIX_EPOCH};
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_nanos() as i64
}

struct Importing<'a> {
    store: &'a Store,
    tickets: VecDeque<QueuedBatch>,
    samples: u64,
    refused: u64,
}

impl Importing<'_> {
    fn read(
        &mut self,
        what: &str,
        mut from: impl Read,
        format: SeriesFormat,
    ) -> anyhow::Result<()> {
        let mut reader = match format {
            SeriesFormat::Resp => Reader::Resp(RespReader::default()),
            SeriesFormat::Opentsdb => Reader::Opentsdb(TelnetReader::default()),
            SeriesFormat::Influx => {
                Reader::Influx(InfluxReader::new(influx::Precision::NANOSECONDS))
            }
        };
        let (mut buffer, mut chunk) = (Vec::new(), vec![0; CHUNK_BYTES]);
        loop {
            let read = from.read(&mut chunk).with_context(|| what.to_owned())?;
            buffer.extend_from_slice(chunk.get(..read).unwrap_or_default());
            let mut collector = RowCollector::new(self.store);
            let done = reader.read(&buffer, read == 0, &mut collector);
            let taken = collector.finish();
            buffer.drain(..done.min(buffer.len()));
            self.samples += taken.samples;
            self.refused += taken.refused;
            for refusal in &taken.refusals {
                let (line, reason) = (refusal.line, &refusal.reason);
                tracing::warn!("{what}: line {line}: {reason}: {}", refusal.text);
            }
            let shown = taken.refusals.len() as u64;
            if taken.refused > shown {
                tracing::warn!("{what}: {} more refused", taken.refused - shown);
            }
            for batch in taken.batches {
                self.tickets.push_back(self.store.submit(batch, Ack::Flushed)?);
            }
            self.wait_in_flight(PIPELINE_MAX)?;
            if read == 0 {
                return Ok(());
            }
        }
    }

    /// Waits until at most `left` batches are in flight.
    fn wait_in_flight(&mut self, left: usize) -> anyhow::Result<()> {
        while self.tickets.len() > left {
            if let Some(ticket) = self.tickets.pop_front() {
                ticket.wait()?;
            }
        }
        Ok(())
    }
}
