//! Receives rows over connections and datagrams, one batch per read. Refusals are reported in-band
//! and the connection stays open.
//!
//! Accepted rows get no reply in these protocols. They are persisted within 100 ms if the log is
//! enabled. A client that needs confirmation sends `+sync` in RESP or `sync` in `OpenTSDB` lines.
//! The reply is `+OK` or `ok` when everything before it on this connection is persisted, and an
//! error if some of it was not stored and not reported one by one. Replies come in order with the
//! refusals. A client that reads no reply for [`ANSWER_TIME_MAX`] is disconnected. The end of the
//! stream is not a confirmation, because it looks the same when the server crashes.
//!
//! Limits: [`Guard::connections_max`], [`READ_BYTES_MAX`], [`REPLY_BYTES_MAX`], [`PIPELINE_BATCHES_MAX`].

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use env::listen::AcceptFailures;
use series::{Ack, Batch, QueuedBatch, Store, WriteError};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::io::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use crate::guard::{AUTH_TIME_MAX, Guard};
use readers::{CollectedRows, RowCollector};
use readers::{DictionaryQuota, RespReader};
use readers::{LINE_BYTES_MAX, ReadUntilAsked, TelnetCommand, TelnetReader};

#[cfg(test)]
mod tests;
mod udp;
pub use udp::serve_udp;

/// Most bytes read into one batch.
pub const READ_BYTES_MAX: usize = 256 << 10;
/// Most bytes of queued refusals for a client that does not read. Further refusals are dropped and
/// counted in the reply to the next `sync`.
pub const REPLY_BYTES_MAX: usize = 64 << 10;
/// Longest time that the reply to a `sync` waits for a client that does not read.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// Most batches of one connection that may be submitted and not yet written to the log.
pub const PIPELINE_BATCHES_MAX: usize = 16;
/// Longest time that the last replies wait for a client that does not read.
const GOODBYE_TIME_MAX: Duration = Duration::from_secs(2);
/// The reply to `sync` if the store refused rows before it.
const LOST: &str = "some rows before were not stored; send them again";
/// Interval at which an idle connection renews the rows of its dictionary. It is shorter than the
/// interval at which the store drops unused rows.
const KEEP_EVERY: Duration = Duration::from_mins(5);
/// Pause after a failed accept, most often because no file descriptor is free, or a failed read of
/// datagrams.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Resp,
    /// The telnet commands of `OpenTSDB`.
    OpenTsdb,
}

impl Protocol {
    fn name(self) -> &'static str {
        match self {
            Self::Resp => "resp",
            Self::OpenTsdb => "opentsdb",
        }
    }
}

/// Serves a TCP port until `stop` changes. Returns when all connections have ended and everything
/// received is persisted.
pub async fn serve_tcp(
    listener: TcpListener,
    protocol: Protocol,
    store: Store,
    guard: Guard,
    mut stop: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(guard.connections_max));
    let dictionaries = DictionaryQuota::default();
    let mut running = tokio::task::JoinSet::new();
    let mut failures = AcceptFailures::new();
    loop {
        let accepted = tokio::select! {
            _ = stop.changed() => break,
            accepted = listener.accept() => accepted,
            Some(_) = running.join_next() => continue,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(e) => {
                if let Some(line) = failures.line(&e) {
                    tracing::warn!("series {}: {line}", protocol.name());
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
            let text =
                format!("-ERR {} connections are open; close some\r\n", guard.connections_max);
            let _ = stream.try_write(text.as_bytes());
            continue;
        };
        // Replies are short and must not wait for the TCP acknowledgement of the previous one.
        let _ = stream.set_nodelay(true);
        let reader = match protocol {
            Protocol::Resp => Reader::Resp(RespReader::new(dictionaries.clone())),
            Protocol::OpenTsdb => Reader::OpenTsdb(TelnetReader::default()),
        };
        let (store, guard, stop) = (store.clone(), guard.clone(), stop.clone());
        running.spawn(async move {
            attend(stream, peer.ip(), reader, store, &guard, stop).await;
            drop(permit);
        });
    }
    while running.join_next().await.is_some() {}
}

/// Serves one connection, including its TLS handshake if the port uses TLS.
async fn attend(
    stream: TcpStream,
    peer: IpAddr,
    reader: Reader,
    store: Store,
    guard: &Guard,
    mut stop: watch::Receiver<bool>,
) {
    let protocol = reader.protocol();
    let Some(acceptor) = &guard.tls else {
        return talk(stream, peer, reader, store, guard, stop).await;
    };
    let shaken = tokio::select! {
        _ = stop.changed() => return,
        shaken = timeout(AUTH_TIME_MAX, acceptor.accept(stream)) => shaken,
    };
    match shaken {
        Ok(Ok(stream)) => talk(stream, peer, reader, store, guard, stop).await,
        Ok(Err(e)) => tracing::debug!("{}: TLS: {e}", protocol.name()),
        Err(_) => tracing::debug!("{}: TLS: the handshake took too long", protocol.name()),
    }
}

async fn talk<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    peer: IpAddr,
    reader: Reader,
    store: Store,
    guard: &Guard,
    mut stop: watch::Receiver<bool>,
) {
    let mut buffer = BytesMut::new();
    if let Some(token) = &guard.token {
        let protocol = reader.protocol().name();
        let authenticated = tokio::select! {
            _ = stop.changed() => return,
            outcome = token.authenticate(protocol, peer, &mut stream, &mut buffer) => outcome,
        };
        if let Err(text) = authenticated {
            let _ = timeout(GOODBYE_TIME_MAX, stream.write_all(text.as_bytes())).await;
            let _ = timeout(GOODBYE_TIME_MAX, stream.shutdown()).await;
            return;
        }
    }
    let mut due = tokio::time::interval(KEEP_EVERY);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let due = move |cx: &mut Context<'_>| due.poll_tick(cx).map(drop);
    Connection::new(stream, buffer, reader, store).run(stop, due).await;
}

enum Reader {
    Resp(RespReader),
    OpenTsdb(TelnetReader),
}

impl Reader {
    fn protocol(&self) -> Protocol {
        match self {
            Self::Resp(_) => Protocol::Resp,
            Self::OpenTsdb(_) => Protocol::OpenTsdb,
        }
    }

    /// Renews the rows of the dictionary, if the protocol has one.
    fn renew_rows(&mut self, store: &Store) {
        if let Self::Resp(reader) = self {
            reader.renew_dictionary(store);
        }
    }
}

struct Connection<S> {
    input: ReadHalf<S>,
    output: WriteHalf<S>,
    store: Store,
    protocol: Protocol,
    reader: Reader,
    buffer: BytesMut,
    begun: bool,
    tickets: VecDeque<QueuedBatch>,
    replies: Vec<u8>,
    /// True if something was submitted to the store that may not be persisted yet.
    unsettled: bool,
    /// True if the store refused or lost valid rows since the last `sync`.
    lost: bool,
    /// Number of rows refused since the last `sync` whose refusals were dropped.
    untold: u64,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    fn new(stream: S, buffer: BytesMut, reader: Reader, store: Store) -> Self {
        let (input, output) = tokio::io::split(stream);
        Self {
            input,
            output,
            store,
            protocol: reader.protocol(),
            reader,
            buffer,
            begun: false,
            tickets: VecDeque::new(),
            replies: Vec::new(),
            unsettled: false,
            lost: false,
            untold: 0,
        }
    }

    /// Serves the connection to its end. Each time `due` is ready, the rows of the dictionary are
    /// renewed.
    async fn run(
        mut self,
        mut stop: watch::Receiver<bool>,
        mut due: impl FnMut(&mut Context<'_>) -> Poll<()>,
    ) {
        // Process what was received together with the line of the token.
        let mut next = if self.buffer.is_empty() {
            ControlFlow::Continue(())
        } else {
            self.process_buffer().await
        };
        while next.is_continue() {
            self.buffer.reserve(READ_BYTES_MAX.saturating_sub(self.buffer.len()).max(1));
            let room = self.tickets.len() < PIPELINE_BATCHES_MAX;
            tokio::select! {
                _ = stop.changed() => break,
                result = first(&mut self.tickets), if !self.tickets.is_empty() => {
                    self.failed(result.err());
                }
                read = self.input.read_buf(&mut self.buffer), if room => {
                    next = self.handle_read(read).await;
                }
                () = poll_fn(&mut due) => self.reader.renew_rows(&self.store),
            }
            self.reply().await;
        }
        self.finish().await;
    }

    /// Handles the result of a read. Breaks at the end of the connection.
    async fn handle_read(&mut self, read: io::Result<usize>) -> ControlFlow<()> {
        match read {
            Ok(0) => {
                self.end().await;
                ControlFlow::Break(())
            }
            Ok(_) => self.process_buffer().await,
            Err(e) => {
                tracing::debug!("{}: {e}", self.protocol.name());
                ControlFlow::Break(())
            }
        }
    }

    /// Returns true if the connection begins with an HTTP request line, which no line of the
    /// protocols resembles. A web page in a browser on this machine can send a request to any port,
    /// with rows in its body.
    fn is_http(&mut self) -> bool {
        let end = self.buffer.iter().position(|c| *c == b'\n');
        self.begun = end.is_some() || self.buffer.len() >= LINE_BYTES_MAX;
        let line = self.buffer.get(..end.unwrap_or(0)).unwrap_or_default().trim_ascii_end();
        line.first().is_some_and(u8::is_ascii_uppercase)
            && [&b" HTTP/1.1"[..], b" HTTP/1.0"].iter().any(|version| line.ends_with(version))
    }

    /// Submits the complete rows in the buffer and answers its commands. Breaks if the connection
    /// must end.
    async fn process_buffer(&mut self) -> ControlFlow<()> {
        if !self.begun && self.is_http() {
            self.queue_reply("-ERR this port takes no HTTP\r\n");
            return ControlFlow::Break(());
        }
        loop {
            let mut collector = RowCollector::new(&self.store);
            let ReadUntilAsked { bytes, asked } = match &mut self.reader {
                Reader::Resp(reader) => reader.read_until_asked(&self.buffer, &mut collector),
                Reader::OpenTsdb(reader) => reader.read_until_asked(&self.buffer, &mut collector),
            };
            let taken = collector.finish();
            self.buffer.advance(bytes);
            self.submit(taken).await;
            let Some(asked) = asked else { return ControlFlow::Continue(()) };
            self.answer_question(asked).await?;
        }
    }

    /// Handles the rest of the buffer after the client has closed its side.
    async fn end(&mut self) {
        let mut collector = RowCollector::new(&self.store);
        match &mut self.reader {
            Reader::Resp(reader) => reader.end(&self.buffer, &mut collector),
            Reader::OpenTsdb(reader) => reader.cut(&self.buffer, &mut collector),
        }
        let taken = collector.finish();
        self.submit(taken).await;
    }

    async fn submit(&mut self, taken: CollectedRows) {
        count(self.protocol.name(), &taken);
        self.untold += taken.refused.saturating_sub(taken.refusals.len() as u64);
        for refusal in &taken.refusals {
            let text = match self.protocol {
                Protocol::Resp => format!("-{} - {}\r\n", refusal.reason, refusal.text),
                Protocol::OpenTsdb => format!("{}: {}\n", refusal.reason, refusal.text),
            };
            self.untold += u64::from(!self.queue_reply(&text));
        }
        for batch in taken.batches {
            self.unsettled = true;
            match self.store.submit_async(batch, Ack::Flushed).await {
                Ok(ticket) => self.tickets.push_back(ticket),
                Err(e) => self.failed(Some(e)),
            }
        }
    }

    /// Waits until everything submitted so far is persisted.
    async fn persist(&mut self) {
        if !std::mem::take(&mut self.unsettled) {
            return;
        }
        // An empty batch after all others is persisted when they are.
        match self.store.submit_async(Batch::new(), Ack::Persisted).await {
            Ok(ticket) => self.tickets.push_back(ticket),
            Err(e) => self.failed(Some(e)),
        }
        while !self.tickets.is_empty() {
            let result = first(&mut self.tickets).await;
            self.failed(result.err());
        }
    }

    /// Waits until everything is persisted, then sends the remaining replies.
    async fn finish(&mut self) {
        self.persist().await;
        let replies = std::mem::take(&mut self.replies);
        let goodbye = async {
            self.output.write_all(&replies).await?;
            self.output.shutdown().await
        };
        // Everything is stored. A client that has disconnected or does not read loses only replies.
        let _ = timeout(GOODBYE_TIME_MAX, goodbye).await;
    }

    fn failed(&mut self, error: Option<WriteError>) {
        let Some(error) = error else { return };
        self.lost = true;
        tracing::warn!("{}: a batch was refused: {error}", self.protocol.name());
        let text = match self.protocol {
            Protocol::Resp => format!("-DB {error}\r\n"),
            Protocol::OpenTsdb => format!("put: {error}\n"),
        };
        self.queue_reply(&text);
    }

    /// Answers a command. Breaks if the connection must end.
    async fn answer_question(&mut self, question: TelnetCommand) -> ControlFlow<()> {
        let text = match question {
            TelnetCommand::Sync => return self.acknowledge().await,
            TelnetCommand::Exit => return ControlFlow::Break(()),
            TelnetCommand::Version => format!("holdfast series {}\n", env!("CARGO_PKG_VERSION")),
            TelnetCommand::Stats => {
                let stats = self.store.stats();
                format!("series.samples {}\nseries.known {}\n", stats.samples, stats.series)
            }
        };
        self.queue_reply(&text);
        ControlFlow::Continue(())
    }

    /// Replies that everything so far is persisted, or with the error. Unlike refusals, this reply
    /// is never dropped, because the client waits for it. Breaks if the client does not read it in
    /// time.
    async fn acknowledge(&mut self) -> ControlFlow<()> {
        self.persist().await;
        let (lost, untold) = (std::mem::take(&mut self.lost), std::mem::take(&mut self.untold));
        let trouble = if lost {
            Some(LOST.to_owned())
        } else {
            (untold > 0).then(|| {
                format!(
                    "{untold} rows refused since the last sync were not reported one by one; send \
                     fewer rows between two syncs to see which"
                )
            })
        };
        let text = match (self.protocol, trouble) {
            (Protocol::Resp, None) => "+OK\r\n".into(),
            (Protocol::OpenTsdb, None) => "ok\n".into(),
            (Protocol::Resp, Some(text)) => format!("-DB {text}\r\n"),
            (Protocol::OpenTsdb, Some(text)) => format!("sync: {text}\n"),
        };
        self.replies.extend_from_slice(text.as_bytes());
        let replies = std::mem::take(&mut self.replies);
        let sending = async {
            self.output.write_all(&replies).await?;
            self.output.flush().await
        };
        let sending = timeout(ANSWER_TIME_MAX, sending).await;
        if sending.is_err() {
            tracing::warn!("{}: a client does not read its answers", self.protocol.name());
        }
        if matches!(sending, Ok(Ok(()))) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }

    /// Queues a reply. Returns false if it was dropped because the queue is full.
    fn queue_reply(&mut self, text: &str) -> bool {
        let room = self.replies.len() + text.len() <= REPLY_BYTES_MAX;
        if room {
            self.replies.extend_from_slice(text.as_bytes());
        }
        room
    }

    /// Sends as much of the queued replies as the socket accepts now. Does not wait, so a client
    /// that does not read its replies can go on writing.
    async fn reply(&mut self) {
        if self.replies.is_empty() {
            return;
        }
        let (output, replies) = (&mut self.output, &self.replies);
        let sent = poll_fn(|cx| {
            let sent = match Pin::new(&mut *output).poll_write(cx, replies) {
                Poll::Ready(Ok(sent)) => sent,
                _ => 0,
            };
            let _ = Pin::new(&mut *output).poll_flush(cx);
            Poll::Ready(sent)
        });
        let sent = sent.await;
        self.replies.drain(..sent);
    }
}

/// Waits for the result of the oldest batch and removes it. Cancel safe: the batch stays in the
/// queue until its result is there.
async fn first(tickets: &mut VecDeque<QueuedBatch>) -> Result<(), WriteError> {
    let Some(ticket) = tickets.front_mut() else { return Ok(()) };
    let result = ticket.await;
    tickets.pop_front();
    result.map(drop)
}

pub(crate) fn count(protocol: &'static str, taken: &CollectedRows) {
    metrics::counter!("holdfast_series_samples_total", "protocol" => protocol)
        .increment(taken.samples);
    if taken.refused > 0 {
        metrics::counter!("holdfast_series_refused_total", "protocol" => protocol)
            .increment(taken.refused);
    }
}
