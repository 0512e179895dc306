//! Writes over HTTP: Influx lines, Prometheus remote write, `OpenTSDB`'s data points.
//!
//! All connections together hold at most [`WRITES_BYTES_MAX`] of bodies and unpacked bodies. At
//! most [`READERS_MAX`] bodies are parsed at a time; a body counts until it is parsed, even if its
//! client has disconnected. A body that does not arrive within [`BODY_TIME_MAX`] is refused.
//! Unpacked lines have the same limit as a body, a message of remote write has
//! [`MESSAGE_BYTES_MAX`].

use std::io::Read as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Extension, Router};
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use hyper::body::Body as _;
use series::{Ack, Batch, Store, WriteError};
use tokio::runtime::Handle;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::{busy, failed, refused};
use crate::net;
use readers::influx;
use readers::remote::{MESSAGE_BYTES_MAX, RemoteReader};
use readers::{CollectedRows, RowCollector, RowRefusal};

mod put;

/// Largest body of a write, in bytes.
pub const WRITE_BYTES_MAX: usize = 32 << 20;
/// Most bytes of all bodies that are being received, waiting to be parsed or being parsed, together
/// with what they unpack into.
pub const WRITES_BYTES_MAX: usize = 256 << 20;
/// Most bodies that are parsed at a time.
const READERS_MAX: usize = 4;
/// Longest time in which a body must arrive.
const BODY_TIME_MAX: Duration = Duration::from_mins(1);
/// Longest time that a write waits for the quotas that other bodies hold.
const TURN_TIME_MAX: Duration = Duration::from_secs(30);
/// Bodies up to this size, in bytes, are parsed on the spot without waking another thread first.
const TINY_BYTES: usize = 16 << 10;
/// Bodies up to this size, in bytes, are parsed on the async thread, as a read of a line-based
/// connection is. Larger ones are parsed on a blocking thread.
const SMALL_BYTES: usize = net::READ_BYTES_MAX;
/// Bodies that unpack into more than this are not parsed on the spot either, in bytes.
const SMALL_UNPACKED_BYTES: usize = 2 << 20;
const TOO_MANY: &str = "too many writes are being read; send it again later\n";
/// Unit of the quotas for bodies, in bytes.
const UNIT_BYTES: usize = 1 << 10;
/// Units for bodies as they arrive, and the same number for what they unpack into. The quotas are
/// separate so that a request that holds units of the second one never waits for units of the
/// first.
const UNITS: usize = WRITES_BYTES_MAX / 2 / UNIT_BYTES;

/// The quotas that the writes of one port share.
#[derive(Clone)]
struct WriteQuotas {
    /// Units of bodies.
    bodies: Arc<Semaphore>,
    /// Units of what bodies unpack into.
    unpacked: Arc<Semaphore>,
    readers: Arc<Semaphore>,
    remote: Arc<RemoteReader>,
}

impl Default for WriteQuotas {
    fn default() -> Self {
        Self {
            bodies: Arc::new(Semaphore::new(UNITS)),
            unpacked: Arc::new(Semaphore::new(UNITS)),
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            remote: Arc::default(),
        }
    }
}

pub(super) fn routes() -> Router<Store> {
    Router::new()
        .route("/write", post(write_lines))
        // Version 2 of the same; organisation and bucket are ignored.
        .route("/api/v2/write", post(write_lines))
        .route("/api/v1/write", post(write_remote))
        .route("/api/put", post(put::write_points))
        .layer(Extension(WriteQuotas::default()))
}

/// The settings for the bodies of a protocol.
#[derive(Clone, Copy)]
struct Protocol {
    name: &'static str,
    /// The noun for the items that it counts.
    noun: &'static str,
    /// Bodies up to this size, in bytes, are parsed on the spot, larger ones outside the async
    /// tasks.
    small: usize,
    /// Most bytes that a body unpacks into.
    unpacked: fn(&[u8]) -> usize,
}

const LINES: Protocol =
    Protocol { name: "influx", noun: "line", small: SMALL_BYTES, unpacked: |_| 0 };
/// A gzip stream of a thousand bytes may unpack into a million, so lines in one are never parsed on
/// the async thread.
const PACKED_LINES: Protocol = Protocol { small: 0, unpacked: |_| WRITE_BYTES_MAX, ..LINES };
const REMOTE: Protocol = Protocol {
    name: "remote",
    noun: "series",
    small: SMALL_BYTES,
    // An invalid or too large body is refused before it is unpacked.
    unpacked: |body| snap::raw::decompress_len(body).unwrap_or(0).min(MESSAGE_BYTES_MAX),
};

/// The reason why a body was not parsed. Nothing of it is stored.
enum Unread {
    /// The reason of the refusal.
    Refused(String),
    /// The body unpacks into more than [`WRITE_BYTES_MAX`].
    TooLarge,
}

/// The reason why a body was not stored.
enum NotStored {
    /// The reason for which the protocol refuses the body.
    Refused(String),
    /// An answer that is the same in every protocol.
    Answered(Response),
}

impl From<Response> for NotStored {
    fn from(answer: Response) -> Self {
        Self::Answered(answer)
    }
}

impl From<String> for Unread {
    fn from(what: String) -> Self {
        Self::Refused(what)
    }
}

/// The encoding of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Plain,
    Gzip,
}

impl Coding {
    /// Returns the encoding that the headers name, or the error in them.
    fn of(headers: &HeaderMap) -> Result<Self, String> {
        let mut named = headers.get_all(header::CONTENT_ENCODING).iter();
        let name = match (named.next(), named.next()) {
            (None, _) => return Ok(Self::Plain),
            (Some(name), None) => name,
            _ => return Err("content-encoding: more than one; send gzip or none\n".into()),
        };
        let is = |known: &str| name.as_bytes().eq_ignore_ascii_case(known.as_bytes());
        if is("identity") {
            Ok(Self::Plain)
        } else if is("gzip") || is("x-gzip") {
            Ok(Self::Gzip)
        } else {
            let shown = name.as_bytes().escape_ascii();
            Err(format!("content-encoding: {shown} is not taken here; send gzip or none\n"))
        }
    }
}

/// Returns an error if the headers announce anything other than remote write 1 in snappy. Missing
/// ones announce nothing. Source: Prometheus 3.16, whose receiver does the same.
fn check_remote(headers: &HeaderMap) -> Result<(), String> {
    let value = |name| headers.get(name).map(HeaderValue::as_bytes).unwrap_or_default();
    let (coding, kind) = (value(header::CONTENT_ENCODING), value(header::CONTENT_TYPE));
    if !coding.is_empty() && !coding.eq_ignore_ascii_case(b"snappy") {
        let shown = coding.escape_ascii();
        return Err(format!("content-encoding: {shown} is not taken here; send snappy\n"));
    }
    let mut parts = kind.split(|c| *c == b';').map(<[u8]>::trim_ascii);
    let media = parts.next().unwrap_or_default();
    let message = parts.find_map(|part| part.strip_prefix(b"proto="));
    let known = media.eq_ignore_ascii_case(b"application/x-protobuf")
        && message.is_none_or(|message| message == b"prometheus.WriteRequest");
    if known || kind.is_empty() {
        return Ok(());
    }
    let shown = kind.escape_ascii();
    Err(format!(
        "content-type: {shown} is not taken here; send version 1 of remote write, \
         application/x-protobuf\n"
    ))
}

/// Unpacks a gzip stream.
fn unpacked(body: &[u8]) -> Result<Vec<u8>, Unread> {
    let mut lines = Vec::new();
    MultiGzDecoder::new(body)
        .take(WRITE_BYTES_MAX as u64 + 1)
        .read_to_end(&mut lines)
        .map_err(|e| format!("body: gzip: {e}; nothing of it was stored, send it again whole"))?;
    if lines.len() > WRITE_BYTES_MAX { Err(Unread::TooLarge) } else { Ok(lines) }
}

#[derive(Debug, serde::Deserialize)]
struct WriteQuery {
    precision: Option<String>,
}

async fn write_lines(
    State(store): State<Store>,
    Query(asked): Query<WriteQuery>,
    Extension(quotas): Extension<WriteQuotas>,
    request: Request,
) -> Response {
    let Some(precision) = influx::Precision::parse(asked.precision.as_deref()) else {
        return refused("precision: unknown; use ns, us, ms, s, m or h");
    };
    let coding = match Coding::of(request.headers()) {
        Ok(coding) => coding,
        Err(text) => return (StatusCode::UNSUPPORTED_MEDIA_TYPE, text).into_response(),
    };
    let read = move |body: &[u8], collector: &mut RowCollector<'_>| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut read =
            |body: &[u8]| influx::read(body, precision, now.as_nanos() as i64, collector);
        match coding {
            Coding::Plain => read(body),
            Coding::Gzip => read(&unpacked(body)?),
        }
        Ok(())
    };
    let protocol = if coding == Coding::Plain { LINES } else { PACKED_LINES };
    store_body(&store, &quotas, request, protocol, read).await
}

async fn write_remote(
    State(store): State<Store>,
    Extension(quotas): Extension<WriteQuotas>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    if let Err(text) = check_remote(&headers) {
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, text).into_response();
    }
    let remote = Arc::clone(&quotas.remote);
    let read =
        move |body: &[u8], collector: &mut RowCollector<'_>| Ok(remote.read(body, collector)?);
    store_body(&store, &quotas, request, REMOTE, read).await
}

/// Reads, parses and stores a body, and answers in plain words when it is persisted.
async fn store_body(
    store: &Store,
    quotas: &WriteQuotas,
    request: Request,
    protocol: Protocol,
    read: impl FnOnce(&[u8], &mut RowCollector<'_>) -> Result<(), Unread> + Send + 'static,
) -> Response {
    let taken = match persist_body(store, quotas, request, protocol, read).await {
        Ok(taken) => taken,
        Err(NotStored::Refused(e)) => return refused(&e),
        Err(NotStored::Answered(answer)) => return answer,
    };
    let (count, samples) = (taken.refused, taken.samples);
    if count == 0 {
        return StatusCode::NO_CONTENT.into_response();
    }
    let noun = protocol.noun;
    let each = |r: &RowRefusal| format!("{noun} {}: {}: {}", r.line, r.reason, r.text);
    let each: Vec<String> = taken.refusals.iter().map(each).collect();
    refused(&format!(
        "partial write: {count} refused, {samples} samples stored: {}",
        each.join("; ")
    ))
}

/// Reads, parses and stores a body. Returns its refusals and counts when it is persisted.
async fn persist_body(
    store: &Store,
    quotas: &WriteQuotas,
    request: Request,
    protocol: Protocol,
    read: impl FnOnce(&[u8], &mut RowCollector<'_>) -> Result<(), Unread> + Send + 'static,
) -> Result<CollectedRows, NotStored> {
    let ReceivedBody { bytes: body, room } = read_body(quotas, request).await?;
    let unpacks = (protocol.unpacked)(&body);
    let units = unpacks.div_ceil(UNIT_BYTES) as u32;
    let turn = async {
        // With the quota for its unpacked body, a request waits only for the requests being read.
        let unpacked = Arc::clone(&quotas.unpacked).acquire_many_owned(units).await?;
        Ok::<_, AcquireError>((unpacked, Arc::clone(&quotas.readers).acquire_owned().await?))
    };
    let Ok(Ok((unpacked, reader))) = timeout(TURN_TIME_MAX, turn).await else {
        return Err(busy(TOO_MANY.into()).into());
    };
    let small = if unpacks > SMALL_UNPACKED_BYTES { 0 } else { protocol.small };
    let permits = Permits { body: room, unpacked, reader };
    let Parsed { mut taken, reader } = match parse(store, body, small, permits, read).await {
        Ok(parsed) => parsed,
        Err(Unread::Refused(e)) => return Err(NotStored::Refused(e)),
        Err(Unread::TooLarge) => return Err(too_large().into()),
    };
    net::count(protocol.name, &taken);
    let batches = std::mem::take(&mut taken.batches);
    persist(store, batches, reader).await.map_err(|e| failed(&e))?;
    Ok(taken)
}

/// Submits the batches of a body, releases the reader's permit, and waits until everything is
/// persisted.
async fn persist(
    store: &Store,
    batches: Vec<Batch>,
    reader: OwnedSemaphorePermit,
) -> Result<(), WriteError> {
    let mut tickets = Vec::new();
    for batch in batches {
        tickets.push(store.submit_async(batch, Ack::Persisted).await?);
    }
    drop(reader);
    for ticket in tickets {
        ticket.await?;
    }
    Ok(())
}

fn too_large() -> Response {
    let text = format!("body: over the limit of {WRITE_BYTES_MAX} bytes; send smaller requests");
    (StatusCode::PAYLOAD_TOO_LARGE, text).into_response()
}

/// The body of a request, with its share of the quota.
struct ReceivedBody {
    bytes: Bytes,
    room: OwnedSemaphorePermit,
}

async fn read_body(quotas: &WriteQuotas, request: Request) -> Result<ReceivedBody, Response> {
    let announced = request.body().size_hint().exact();
    let bytes = announced.map_or(WRITE_BYTES_MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    if bytes > WRITE_BYTES_MAX {
        return Err(too_large());
    }
    let units = bytes.div_ceil(UNIT_BYTES).max(1) as u32;
    let room = timeout(TURN_TIME_MAX, Arc::clone(&quotas.bodies).acquire_many_owned(units)).await;
    let Ok(Ok(room)) = room else {
        return Err(busy(TOO_MANY.into()));
    };
    let body = axum::body::to_bytes(request.into_body(), WRITE_BYTES_MAX);
    match timeout(BODY_TIME_MAX, body).await {
        Ok(Ok(bytes)) => Ok(ReceivedBody { bytes, room }),
        Ok(Err(_)) if announced.is_none() => Err(too_large()),
        Ok(Err(e)) => Err(refused(&format!("body: {e}"))),
        Err(_) => {
            let text = "the body did not come in time; send smaller requests";
            Err((StatusCode::REQUEST_TIMEOUT, text).into_response())
        }
    }
}

/// The share of the limits that a body holds while it is parsed. It moves with the body, so that a
/// client that leaves frees nothing early.
struct Permits {
    body: OwnedSemaphorePermit,
    unpacked: OwnedSemaphorePermit,
    reader: OwnedSemaphorePermit,
}

/// The rows of a body, and the reader's permit, which is held until they are queued.
struct Parsed {
    taken: CollectedRows,
    reader: OwnedSemaphorePermit,
}

/// Makes another thread of the runtime poll the connections while this one computes. If all others
/// sleep and none of them polls for I/O, no connection makes progress. Of two new tasks, the
/// spawning thread keeps one for itself and wakes a sleeping thread, if any, for the other. Tokio
/// 1.54 does so but does not promise it; otherwise a connection waits until the body of another is
/// parsed.
fn wake_another_thread() {
    if Handle::current().metrics().num_workers() > 1 {
        for _ in 0..2 {
            tokio::spawn(async {});
        }
    }
}

/// Parses a body: on a thread of its own if it is larger than `small` bytes.
async fn parse(
    store: &Store,
    body: Bytes,
    small: usize,
    permits: Permits,
    read: impl FnOnce(&[u8], &mut RowCollector<'_>) -> Result<(), Unread> + Send + 'static,
) -> Result<Parsed, Unread> {
    let store = store.clone();
    let bytes = body.len();
    let parsing = move || {
        let mut collector = RowCollector::new(&store);
        let done = read(&body, &mut collector);
        drop((body, permits.body, permits.unpacked));
        done.map(|()| Parsed { taken: collector.finish(), reader: permits.reader })
    };
    if bytes <= small {
        if bytes > TINY_BYTES {
            wake_another_thread();
        }
        return parsing();
    }
    let parsing = tokio::task::spawn_blocking(parsing);
    parsing.await.map_err(|e| format!("reading the body failed: {e}"))?
}

#[cfg(test)]
mod tests;
