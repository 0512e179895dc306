//! Connections and datagrams that bring rows: one batch per read buffer, refusals told in-band, the
//! connection stays open.
//!
//! Nothing answers a row that was taken: these protocols fire and forget, and what they bring is
//! persisted within 100 ms (with the log on). A client that wants to know closes its side: the
//! server closes its own only after everything taken is persisted, so the end of the stream is the
//! acknowledgement.
//!
//! Limits: [`CONNECTIONS_MAX`], [`READ_BYTES_MAX`], [`REPLY_BYTES_MAX`], [`PIPELINE_BATCHES_MAX`].

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::{Buf as _, BytesMut};
use series::{Ack, Batch, Store, Ticket, WriteError};
use tokio::io::AsyncReadExt as _;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Semaphore, watch};

use crate::intake::{Intake, Taken};
use crate::resp::RespReader;
use crate::telnet::{Asked, TelnetReader};

/// Most connections of one port at a time.
pub const CONNECTIONS_MAX: usize = 1024;
/// Most bytes read into one batch.
pub const READ_BYTES_MAX: usize = 256 << 10;
/// Most bytes of replies that wait for a client that does not read; more are left out.
pub const REPLY_BYTES_MAX: usize = 64 << 10;
/// Most batches of one connection on their way to the log.
pub const PIPELINE_BATCHES_MAX: usize = 16;
/// Most datagrams in one batch.
const DATAGRAMS_MAX: usize = 256;
/// Largest datagram, in bytes.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;

/// What a port speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// RESP rows.
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

/// Serve a TCP port until `stop` changes; returns when all connections have ended and what they
/// brought is persisted.
pub async fn serve_tcp(
    listener: TcpListener,
    protocol: Protocol,
    store: Store,
    mut stop: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut running = tokio::task::JoinSet::new();
    loop {
        let accepted = tokio::select! {
            _ = stop.changed() => break,
            accepted = listener.accept() => accepted,
            Some(_) = running.join_next() => continue,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(e) => {
                tracing::warn!("{}: accept: {e}", protocol.name());
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
            let text = format!("-ERR {CONNECTIONS_MAX} connections are open; close some\r\n");
            let _ = stream.try_write(text.as_bytes());
            continue;
        };
        let connection = Connection::new(stream, protocol, store.clone());
        let stop = stop.clone();
        running.spawn(async move {
            connection.run(stop).await;
            drop(permit);
        });
    }
    while running.join_next().await.is_some() {}
}

enum Reader {
    Resp(RespReader),
    OpenTsdb(TelnetReader),
}

struct Connection {
    input: OwnedReadHalf,
    output: OwnedWriteHalf,
    store: Store,
    protocol: Protocol,
    reader: Reader,
    buffer: BytesMut,
    tickets: VecDeque<Ticket>,
    replies: Vec<u8>,
}

impl Connection {
    fn new(stream: TcpStream, protocol: Protocol, store: Store) -> Self {
        let (input, output) = stream.into_split();
        let reader = match protocol {
            Protocol::Resp => Reader::Resp(RespReader::default()),
            Protocol::OpenTsdb => Reader::OpenTsdb(TelnetReader::default()),
        };
        let (tickets, replies) = (VecDeque::new(), Vec::new());
        let buffer = BytesMut::new();
        Self { input, output, store, protocol, reader, buffer, tickets, replies }
    }

    async fn run(mut self, mut stop: watch::Receiver<bool>) {
        loop {
            self.buffer.reserve(READ_BYTES_MAX.saturating_sub(self.buffer.len()).max(1));
            let room = self.tickets.len() < PIPELINE_BATCHES_MAX;
            tokio::select! {
                _ = stop.changed() => break,
                result = first(&mut self.tickets), if !self.tickets.is_empty() => {
                    self.failed(result.err());
                }
                read = self.input.read_buf(&mut self.buffer), if room => match read {
                    Ok(0) => {
                        self.end().await;
                        break;
                    }
                    Ok(_) => if self.take().await { break },
                    Err(e) => {
                        tracing::debug!("{}: {e}", self.protocol.name());
                        break;
                    }
                },
            }
            self.reply();
        }
        self.settle().await;
    }

    /// Store what the buffer holds; whether the client asked for the end.
    async fn take(&mut self) -> bool {
        let mut intake = Intake::new(&self.store);
        let (done, asked) = match &mut self.reader {
            Reader::Resp(reader) => (reader.read(&self.buffer, &mut intake), Vec::new()),
            Reader::OpenTsdb(reader) => reader.read(&self.buffer, &mut intake),
        };
        let taken = intake.finish();
        self.buffer.advance(done);
        self.submit(taken).await;
        for question in &asked {
            self.answer(*question);
        }
        asked.contains(&Asked::Exit)
    }

    /// The client has closed its side: what is left in the buffer is all there is.
    async fn end(&mut self) {
        let mut intake = Intake::new(&self.store);
        match &mut self.reader {
            Reader::Resp(reader) => reader.end(&self.buffer, &mut intake),
            Reader::OpenTsdb(reader) => reader.end(&self.buffer, &mut intake),
        }
        let taken = intake.finish();
        self.submit(taken).await;
    }

    async fn submit(&mut self, taken: Taken) {
        count(self.protocol.name(), &taken);
        for refusal in &taken.refusals {
            let text = match self.protocol {
                Protocol::Resp => format!("-{} - {}\r\n", refusal.reason, refusal.text),
                Protocol::OpenTsdb => format!("{}: {}\n", refusal.reason, refusal.text),
            };
            self.say(&text);
        }
        for batch in taken.batches {
            match self.store.submit_async(batch, Ack::Flushed).await {
                Ok(ticket) => self.tickets.push_back(ticket),
                Err(e) => self.failed(Some(e)),
            }
        }
    }

    /// Wait until everything is persisted, then tell what is left to tell.
    async fn settle(&mut self) {
        // A batch behind all others: it is persisted when they are.
        match self.store.submit_async(Batch::new(), Ack::Persisted).await {
            Ok(ticket) => self.tickets.push_back(ticket),
            Err(e) => self.failed(Some(e)),
        }
        while !self.tickets.is_empty() {
            let result = first(&mut self.tickets).await;
            self.failed(result.err());
        }
        self.reply();
    }

    fn failed(&mut self, error: Option<WriteError>) {
        let Some(error) = error else { return };
        tracing::warn!("{}: a batch was refused: {error}", self.protocol.name());
        let text = match self.protocol {
            Protocol::Resp => format!("-DB {error}\r\n"),
            Protocol::OpenTsdb => format!("put: {error}\n"),
        };
        self.say(&text);
    }

    fn answer(&mut self, question: Asked) {
        let stats = self.store.stats();
        let text = match question {
            Asked::Version => format!("holdfast series {}\n", env!("CARGO_PKG_VERSION")),
            Asked::Stats => {
                format!("series.samples {}\nseries.known {}\n", stats.samples, stats.series)
            }
            Asked::Exit => return,
        };
        self.say(&text);
    }

    fn say(&mut self, text: &str) {
        if self.replies.len() + text.len() <= REPLY_BYTES_MAX {
            self.replies.extend_from_slice(text.as_bytes());
        }
    }

    /// Hand over as much of the replies as the client takes now. Never waits: a client that does
    /// not read its replies goes on writing.
    fn reply(&mut self) {
        if let Ok(sent) = self.output.try_write(&self.replies) {
            self.replies.drain(..sent);
        }
    }
}

/// The result of the oldest batch. Stays in the queue until there is one.
async fn first(tickets: &mut VecDeque<Ticket>) -> Result<(), WriteError> {
    let Some(ticket) = tickets.front_mut() else { return Ok(()) };
    let result = ticket.await;
    tickets.pop_front();
    result.map(drop)
}

pub(crate) fn count(protocol: &'static str, taken: &Taken) {
    metrics::counter!("holdfast_series_samples_total", "protocol" => protocol)
        .increment(taken.samples);
    if taken.refused > 0 {
        metrics::counter!("holdfast_series_refused_total", "protocol" => protocol)
            .increment(taken.refused);
    }
}

/// Serve RESP over UDP until `stop` changes. Samples do not span datagrams; refusals are counted,
/// not told.
///
/// # Errors
/// When the socket fails for good.
pub async fn serve_udp(
    socket: UdpSocket,
    store: Store,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let first = tokio::select! {
            _ = stop.changed() => break,
            read = socket.recv_from(&mut buffer) => read,
        };
        // A refusal by the receiver of an earlier datagram is no failure of the socket.
        let Ok((mut length, _)) = first else { continue };
        let mut intake = Intake::new(&store);
        for _ in 0..DATAGRAMS_MAX {
            let datagram = buffer.get(..length).unwrap_or_default();
            let mut reader = RespReader::default();
            let done = reader.read(datagram, &mut intake);
            reader.end(datagram.get(done..).unwrap_or_default(), &mut intake);
            match socket.try_recv_from(&mut buffer) {
                Ok((next, _)) => length = next,
                Err(_) => break,
            }
        }
        let taken = intake.finish();
        count("udp", &taken);
        for batch in taken.batches {
            if let Err(e) = store.submit_async(batch, Ack::Flushed).await {
                tracing::warn!("udp: a batch was refused: {e}");
            }
        }
    }
    // What fails here is told by the store when it is closed.
    let _ = store.write_async(Batch::new(), Ack::Persisted).await;
    Ok(())
}
