//! Tools for a store that nobody has open: delete, stat, verify, export, import.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use env::files::RealFiles;
use ingest::{Intake, RespReader, TelnetReader, influx};
use model::timestamp;
use serde_json::{Value as Json, json};
use series::{
    Ack, Direction, Event, OpenError, ReadError, Selector, Series, Snapshot, Store, StoreOptions,
    StoreStats, Ticket, TimeRange, Values,
};

use crate::agent::Console;
use crate::cli::{
    DataArg, SeriesDeleteArgs, SeriesExportArgs, SeriesFormat, SeriesImportArgs, SeriesLookArgs,
    SeriesStatArgs,
};
use crate::folder::{DataFolder, is_there};
use crate::local::Local;

/// Bytes read at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// Batches of an import on their way to the log.
const PIPELINE_MAX: usize = 16;

fn existing(data: &DataArg) -> anyhow::Result<PathBuf> {
    let dir = DataFolder::new(&data.data).series();
    if !is_there(&dir)? {
        bail!("{}: no series store is here; name its data folder with --data", dir.display());
    }
    Ok(dir)
}

/// Everything is kept while a tool looks: the retention is the server's.
fn open(dir: &Path) -> anyhow::Result<Store> {
    let (store, _) = Store::open(dir, StoreOptions::default()).context("series")?;
    Ok(store)
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

/// The series that are chosen; none is an error, for a mistyped name must not pass for an empty one.
fn found(store: &Store, chosen: &Selector) -> anyhow::Result<Vec<Series>> {
    let found = store.find(chosen);
    if found.is_empty() {
        bail!(
            "no series has this name and these tags; `holdfast series export` shows those there are"
        );
    }
    Ok(found)
}

/// `holdfast series delete`.
pub(super) fn delete(args: &SeriesDeleteArgs) -> anyhow::Result<()> {
    let dir = existing(&args.data)?;
    // Opening it proves that nobody has it open.
    let store = open(&dir);
    let console = Console::new();
    if args.all {
        match store {
            Err(e)
                if e.downcast_ref::<OpenError>()
                    .is_some_and(|e| matches!(e, OpenError::Locked(_))) =>
            {
                return Err(e);
            }
            // A damaged store can be removed too.
            opened => drop(opened),
        }
        fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
        console.line(&format!("removed: {}", dir.display()));
        return Ok(());
    }
    let store = store?;
    let chosen = selector(args.metric.as_deref(), &args.tag)?;
    let found = found(&store, &chosen)?.len();
    store.delete(&chosen, range(args.from.as_deref(), args.to.as_deref())?)?;
    store.close()?;
    console.line(&format!("deleted: samples of {found} series"));
    Ok(())
}

/// `holdfast series stat`.
pub(super) async fn stat(args: &SeriesStatArgs) -> anyhow::Result<()> {
    let stats = if let Some(url) = &args.url {
        ask(url, args).await?
    } else {
        of_folder(&args.data).await?
    };
    crate::show::report(args.json, &stats);
    Ok(())
}

/// Of a store at rest, or of the server that has it open.
async fn of_folder(data: &DataArg) -> anyhow::Result<Json> {
    let dir = existing(data)?;
    let socket = DataFolder::new(&data.data).socket();
    match tokio::task::spawn_blocking(move || open(&dir)).await? {
        Ok(store) => {
            let stats = shown(&store.stats());
            tokio::task::spawn_blocking(move || store.close()).await??;
            Ok(stats)
        }
        Err(locked) if socket.exists() => {
            Local::open(&socket)?.get("/series/stats", &[]).await.map_err(|_| locked)
        }
        Err(locked) => Err(locked.context(
            "a running `holdfast series serve` is asked with --url http://HOST:PORT of its query port",
        )),
    }
}

async fn ask(url: &str, args: &SeriesStatArgs) -> anyhow::Result<Json> {
    if !reqwest::Url::parse(url).is_ok_and(|url| url.has_host()) {
        bail!("--url {url}: name the store's query port as http://HOST:PORT");
    }
    let url = format!("{}/api/stats", url.trim_end_matches('/'));
    let mut builder = reqwest::Client::builder().no_proxy();
    if let Some(ca) = &args.ca {
        builder = builder.tls_backend_preconfigured(crate::follow::trusting(ca)?);
    }
    let mut request = builder.build()?.get(&url);
    if let Some(token) = &args.token {
        request = request.bearer_auth(token);
    }
    let answer = request.send().await.with_context(|| url.clone())?;
    let status = answer.status();
    let text = answer.text().await.with_context(|| url.clone())?;
    if !status.is_success() {
        bail!("{url}: status {status}: {}", text.trim());
    }
    serde_json::from_str(&text).with_context(|| url.clone())
}

fn shown(s: &StoreStats) -> Json {
    json!({
        "rows": s.rows, "series": s.series, "position": s.position, "parts": s.parts,
        "part_bytes": s.part_bytes, "part_samples": s.part_samples, "index_bytes": s.index_bytes,
        "partitions": s.partitions, "tombstones": s.tombstones, "head_samples": s.head_samples,
    })
}

/// `holdfast series verify`: `false` when something is wrong.
pub(super) fn verify(args: &SeriesLookArgs) -> anyhow::Result<bool> {
    let dir = existing(&args.data)?;
    let files: Arc<dyn env::files::Files> = Arc::new(RealFiles);
    let found = series::verify(&dir, &files).context("series")?;
    let console = Console::new();
    if args.json {
        console.line(&json!({ "sound": found.is_empty(), "damage": found }).to_string());
    } else {
        for damage in &found {
            console.line(&format!("damage: {damage}"));
        }
        if found.is_empty() {
            console.line(&format!("{}: all files are whole", dir.display()));
        }
    }
    Ok(found.is_empty())
}

/// `holdfast series export`: `false` when something could not be read.
pub(super) fn export(args: &SeriesExportArgs) -> anyhow::Result<bool> {
    let store = open(&existing(&args.data)?)?;
    let chosen = selector(args.metric.as_deref(), &args.tag)?;
    let range = range(args.from.as_deref(), args.to.as_deref())?;
    let mut out = BufWriter::with_capacity(CHUNK_BYTES, io::stdout().lock());
    let mut whole = true;
    let all = args.metric.is_none() && args.tag.is_empty();
    let chosen = if all { store.find(&chosen) } else { found(&store, &chosen)? };
    for series in chosen {
        whole &= write_series(&mut out, &store, &series, range).context("stdout")?;
    }
    out.flush().context("stdout")?;
    drop(out);
    store.close()?;
    Ok(whole)
}

/// What could not be read is told, and left out.
fn readable<T>(series: &str, read: Result<T, ReadError>) -> Option<T> {
    read.inspect_err(|e| tracing::error!("{series}: left out: {e}")).ok()
}

/// Write a series; `false` when some of it could not be read.
fn write_series(
    out: &mut impl Write,
    store: &Store,
    series: &Series,
    range: TimeRange,
) -> io::Result<bool> {
    let (name, snapshot, mut whole) = (series.name(), store.snapshot(), true);
    let head = if ingest::is_resp_name(name.as_bytes()) {
        format!("+{name}")
    } else {
        // Nothing but a dictionary tells such a name from a value.
        write!(out, "*2\r\n+{name}\r\n:1\r\n")?;
        ":1".to_owned()
    };
    if series.is_events() {
        let mut events = Vec::new();
        whole = read_events(&snapshot, series, range, &mut events);
        for event in events {
            write!(out, "{head}\r\n:{}\r\n${}\r\n", event.time_ns, event.text.len())?;
            out.write_all(&event.text)?;
            out.write_all(b"\r\n")?;
        }
        return Ok(whole);
    }
    for run in snapshot.scan(series, range, Direction::Forward) {
        let Some(run) = readable(&name, run) else {
            whole = false;
            continue;
        };
        match &run.values {
            Values::F64(values) => {
                for (time, value) in run.times.iter().zip(values) {
                    // With an exponent where it is long: what is read back has a limit.
                    write!(out, "{head}\r\n:{time}\r\n+{value:?}\r\n")?;
                }
            }
            Values::I64(values) => {
                for (time, value) in run.times.iter().zip(values) {
                    write!(out, "{head}\r\n:{time}\r\n:{value}\r\n")?;
                }
            }
        }
    }
    Ok(whole)
}

/// Events in a range that can be read; `false` when there are others.
fn read_events(
    snapshot: &Snapshot,
    series: &Series,
    range: TimeRange,
    into: &mut Vec<Event>,
) -> bool {
    match snapshot.events(series, range, Direction::Forward) {
        Ok(events) => {
            into.extend(events);
            true
        }
        Err(torn) => {
            tracing::error!("{}: left out: {torn}", series.name());
            into.extend(torn.found);
            false
        }
    }
}

/// `holdfast series import`: `false` when something was refused.
pub(super) fn import(args: &SeriesImportArgs) -> anyhow::Result<bool> {
    let folder = DataFolder::new(&args.data.data);
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
        let what = path.display().to_string();
        let file = File::open(path).with_context(|| what.clone())?;
        importing.read(&what, file, args.format)?;
    }
    importing.settle(0)?;
    let (samples, refused) = (importing.samples, importing.refused);
    store.close()?;
    Console::new().line(&format!("imported: {samples} samples, {refused} refused"));
    Ok(refused == 0)
}

/// What turns bytes into rows.
enum Reader {
    Resp(RespReader),
    Opentsdb(TelnetReader),
    Influx,
}

impl Reader {
    /// Read what is whole; the bytes that are done with.
    fn read(&mut self, bytes: &[u8], ended: bool, intake: &mut Intake<'_>) -> usize {
        match self {
            Self::Resp(reader) => {
                let done = reader.read(bytes, intake);
                if ended {
                    reader.end(bytes.get(done..).unwrap_or_default(), intake);
                }
                done
            }
            Self::Opentsdb(reader) => {
                let (done, _) = reader.read(bytes, intake);
                if ended {
                    reader.end(bytes.get(done..).unwrap_or_default(), intake);
                }
                done
            }
            Self::Influx => {
                let lines = bytes.iter().rposition(|c| *c == b'\n').map_or(0, |end| end + 1);
                let done = if ended { bytes.len() } else { lines };
                let text = bytes.get(..done).unwrap_or_default();
                influx::read(text, influx::Precision::NANOSECONDS, now_ns(), intake);
                done
            }
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
    tickets: VecDeque<Ticket>,
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
            SeriesFormat::Influx => Reader::Influx,
        };
        let (mut buffer, mut chunk) = (Vec::new(), vec![0; CHUNK_BYTES]);
        loop {
            let read = from.read(&mut chunk).with_context(|| what.to_owned())?;
            buffer.extend_from_slice(chunk.get(..read).unwrap_or_default());
            let mut intake = Intake::new(self.store);
            let done = reader.read(&buffer, read == 0, &mut intake);
            let taken = intake.finish();
            buffer.drain(..done.min(buffer.len()));
            self.samples += taken.samples;
            self.refused += taken.refused;
            for refusal in &taken.refusals {
                tracing::warn!("{what}: {}: {}", refusal.reason, refusal.text);
            }
            for batch in taken.batches {
                self.tickets.push_back(self.store.submit(batch, Ack::Flushed)?);
            }
            self.settle(PIPELINE_MAX)?;
            if read == 0 {
                return Ok(());
            }
        }
    }

    /// Wait until at most so many batches are on their way.
    fn settle(&mut self, left: usize) -> anyhow::Result<()> {
        while self.tickets.len() > left {
            if let Some(ticket) = self.tickets.pop_front() {
                ticket.wait()?;
            }
        }
        Ok(())
    }
}
