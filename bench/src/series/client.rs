//! One connection to a server under measurement, and the cost of its process.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use anyhow::{Context as _, ensure};

/// HTTP/1.1 over one connection that stays open.
pub struct Http(BufReader<TcpStream>);

impl Http {
    pub fn connect(port: u16) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a request, which must succeed. Returns the answer's body.
    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        head: &str,
        body: &[u8],
    ) -> anyhow::Result<Vec<u8>> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{head}content-length: {}\r\n\r\n",
            body.len()
        );
        self.0.get_mut().write_all(request.as_bytes())?;
        self.0.get_mut().write_all(body)?;
        let (mut line, mut length, mut chunked) = (String::new(), 0usize, false);
        self.0.read_line(&mut line)?;
        let status: u16 = line.split(' ').nth(1).context("no status")?.parse()?;
        loop {
            line.clear();
            self.0.read_line(&mut line)?;
            let field = line.trim_end().to_ascii_lowercase();
            if field.is_empty() {
                break;
            }
            if let Some(value) = field.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            chunked |= field == "transfer-encoding: chunked";
        }
        let mut answer = Vec::new();
        if chunked {
            self.chunks(&mut answer)?;
        } else {
            answer.resize(length, 0);
            self.0.read_exact(&mut answer)?;
        }
        let shown =
            String::from_utf8_lossy(answer.get(..answer.len().min(300)).unwrap_or_default());
        ensure!((200..300).contains(&status), "{path}: {status} {shown}");
        Ok(answer)
    }

    fn chunks(&mut self, into: &mut Vec<u8>) -> anyhow::Result<()> {
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line)?;
            let bytes = usize::from_str_radix(line.trim(), 16)?;
            let begin = into.len();
            into.resize(begin + bytes + 2, 0);
            self.0.read_exact(&mut into[begin..])?;
            into.truncate(begin + bytes);
            if bytes == 0 {
                return Ok(());
            }
        }
    }
}

/// Returns the user and system time of a process so far, seconds.
pub fn cpu_of(pid: u32) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = text.rsplit_once(')').context("no process")?.1;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    Ok(ticks / 100.0)
}

/// Returns the resident memory of a process, bytes.
pub fn rss_of(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with("VmRSS:"));
    line.and_then(|l| l.split_whitespace().nth(1)?.parse::<f64>().ok()).unwrap_or(0.0) * 1024.0
}

/// Returns the bytes that a process caused to be written to the disk.
pub fn written_of(pid: u32) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io"))?;
    let line = text.lines().find_map(|l| l.strip_prefix("write_bytes: "));
    Ok(line.context("no count of bytes written")?.parse()?)
}

/// Returns the bytes that the files below a folder occupy.
pub fn disk_of(dir: &Path) -> f64 {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(entries) = std::fs::read_dir(dir) else { return 0.0 };
    let of = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => disk_of(&entry.path()),
        Ok(meta) => (meta.blocks() * 512) as f64,
        Err(_) => 0.0,
    };
    entries.flatten().map(of).sum()
}
