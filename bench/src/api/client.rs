//! A small HTTP/1.1 client that keeps its connection. Its own cost must be low, because client and
//! server share the machine.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// One persistent connection.
pub struct Client {
    stream: BufReader<Box<dyn Stream>>,
    /// Header lines of every request.
    head: String,
}

/// One answer.
pub struct Answer {
    pub status: u16,
    pub queries: Option<f64>,
    pub body: Vec<u8>,
    pub took: Duration,
}

impl Client {
    pub fn tcp(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        Ok(Self { stream: BufReader::new(Box::new(stream)), head: String::new() })
    }

    pub fn unix(socket: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(socket).with_context(|| socket.display().to_string())?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        Ok(Self { stream: BufReader::new(Box::new(stream)), head: String::new() })
    }

    /// Connects over TLS, as an agent does.
    pub fn tls(address: SocketAddr, config: Arc<ClientConfig>) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        let session = ClientConnection::new(config, ServerName::try_from("localhost")?)?;
        let stream = BufReader::new(Box::new(StreamOwned::new(session, stream)) as Box<_>);
        Ok(Self { stream, head: String::new() })
    }

    /// Adds a token to every request.
    pub fn bearer(mut self, token: &str) -> Self {
        self.head = format!("Authorization: Bearer {token}\r\n");
        self
    }

    pub fn get(&mut self, path: &str) -> anyhow::Result<Answer> {
        self.send("GET", path, "", b"")
    }

    /// Sends one request and reads its whole answer. `lines` are additional header lines.
    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        lines: &str,
        body: &[u8],
    ) -> anyhow::Result<Answer> {
        let mut request =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{}{lines}", self.head);
        if !body.is_empty() || method != "GET" {
            request.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        request.push_str("\r\n");
        let mut bytes = request.into_bytes();
        bytes.extend(body);
        let started = Instant::now();
        self.stream.get_mut().write_all(&bytes)?;
        let (status, queries, body) = self.read()?;
        Ok(Answer { status, queries, body, took: started.elapsed() })
    }

    fn read(&mut self) -> anyhow::Result<(u16, Option<f64>, Vec<u8>)> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
        let Some(status) = status else { bail!("not an answer: {line:?}") };
        let (mut length, mut chunked, mut queries) = (0, false, None);
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            let text = line.trim_end();
            if text.is_empty() {
                break;
            }
            let Some((name, value)) = text.split_once(':') else { continue };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse()?,
                "transfer-encoding" => chunked = value.contains("chunked"),
                "server-timing" => queries = described(value, "queries"),
                _ => {}
            }
        }
        let mut body = Vec::new();
        if chunked {
            self.chunks(&mut body)?;
        } else {
            body.resize(length, 0);
            self.stream.read_exact(&mut body)?;
        }
        Ok((status, queries, body))
    }

    fn chunks(&mut self, body: &mut Vec<u8>) -> anyhow::Result<()> {
        let mut line = String::new();
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            let size = usize::from_str_radix(line.trim_end(), 16)?;
            let start = body.len();
            body.resize(start + size, 0);
            self.stream.read_exact(&mut body[start..])?;
            line.clear();
            self.stream.read_line(&mut line)?;
            if size == 0 {
                return Ok(());
            }
        }
    }
}

/// Parses `queries;desc="3"` from a `Server-Timing` header.
fn described(text: &str, name: &str) -> Option<f64> {
    let part = text.split(',').find_map(|part| part.trim().strip_prefix(name))?;
    part.split('"').nth(1)?.parse().ok()
}
