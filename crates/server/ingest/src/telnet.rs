//! The telnet commands of `OpenTSDB`: `put metric time value tag=value ...`, a line each.
//!
//! Nothing answers a `put` that was taken; one that was not is answered by a line that repeats it.
//! `sync` asks to be answered when everything before it is persisted.

use query::time::{parse_guess, parse_int};
use series::Value;

use crate::collector::RowCollector;
use crate::number::parse_float;

/// Longest line, in bytes.
pub const LINE_BYTES_MAX: usize = 16 << 10;

/// A request that a line makes instead of bringing a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Version,
    Stats,
    /// An answer when everything before is persisted.
    Sync,
    /// The end of the connection.
    Exit,
}

/// The extent to which a buffer was read.
#[derive(Debug)]
pub(crate) struct ReadUntilAsked {
    /// Bytes that are done with.
    pub(crate) bytes: usize,
    /// The request that follows them; `None` when all whole lines or items are read.
    pub(crate) asked: Option<Asked>,
}

/// Reads lines from a stream of bytes.
#[derive(Debug, Default)]
pub struct TelnetReader {
    line: u64,
    overlong: bool,
    name: Vec<u8>,
}

impl TelnetReader {
    /// Reads all whole lines of a buffer; the number of bytes that are done with, and what was
    /// asked.
    pub fn read(&mut self, buffer: &[u8], collector: &mut RowCollector<'_>) -> (usize, Vec<Asked>) {
        let (mut done, mut all) = (0, Vec::new());
        loop {
            let rest = buffer.get(done..).unwrap_or_default();
            let ReadUntilAsked { bytes, asked } = self.read_until_asked(rest, collector);
            done += bytes;
            let Some(asked) = asked else { return (done, all) };
            all.push(asked);
        }
    }

    /// Reads whole lines of a buffer up to the first that asks for something.
    pub(crate) fn read_until_asked(
        &mut self,
        buffer: &[u8],
        collector: &mut RowCollector<'_>,
    ) -> ReadUntilAsked {
        let mut done = 0;
        while let Some(rest) = buffer.get(done..).filter(|r| !r.is_empty()) {
            let end = rest.iter().position(|c| *c == b'\n');
            if self.overlong {
                self.overlong = end.is_none();
                done += end.map_or(rest.len(), |e| e + 1);
                continue;
            }
            if end.is_none() && rest.len() > LINE_BYTES_MAX {
                self.line += 1;
                collector.refuse(self.line, too_long(), rest);
                self.overlong = true;
                continue;
            }
            let Some(end) = end else { break };
            done += end + 1;
            self.line += 1;
            let line = rest.get(..end).unwrap_or_default().trim_ascii();
            if line.len() > LINE_BYTES_MAX {
                collector.refuse(self.line, too_long(), line);
            } else if let Some(asked) = self.command(line, collector) {
                return ReadUntilAsked { bytes: done, asked: Some(asked) };
            }
        }
        ReadUntilAsked { bytes: done, asked: None }
    }

    /// A connection has ended: a line without its end may lack more than that, and is refused.
    pub(crate) fn cut(&mut self, rest: &[u8], collector: &mut RowCollector<'_>) {
        if !self.overlong && !rest.trim_ascii().is_empty() {
            let reason = "the stream ends inside a line; end it with a line feed and send it again";
            collector.refuse(self.line + 1, reason, rest);
        }
    }

    /// A file has ended: the last line may do without its end.
    pub fn end(&mut self, rest: &[u8], collector: &mut RowCollector<'_>) {
        self.line += 1;
        if !self.overlong {
            self.command(rest.trim_ascii(), collector);
        }
    }

    fn command(&mut self, line: &[u8], collector: &mut RowCollector<'_>) -> Option<Asked> {
        let (word, rest) = word(line);
        match word {
            b"" => None,
            b"version" => Some(Asked::Version),
            b"stats" => Some(Asked::Stats),
            b"sync" => Some(Asked::Sync),
            b"exit" | b"quit" => Some(Asked::Exit),
            b"put" => {
                if let Err(reason) = self.put(rest, collector) {
                    collector.refuse(self.line, format!("put: {reason}"), line);
                }
                None
            }
            _ => {
                collector.refuse(
                    self.line,
                    "unknown command; use put, sync, version, stats or exit",
                    line,
                );
                None
            }
        }
    }

    fn put(&mut self, line: &[u8], collector: &mut RowCollector<'_>) -> Result<(), String> {
        let (metric, rest) = word(line);
        let (time, rest) = word(rest);
        let (value, tags) = word(rest);
        let time_ns = parse_guess(time).ok_or("no time; write seconds or milliseconds")?;
        let value = match parse_int(value).map(Value::I64) {
            Some(value) => value,
            None => Value::F64(parse_float(value).ok_or("no value; write a number")?),
        };
        self.name.clear();
        self.name.extend_from_slice(metric);
        self.name.push(b' ');
        self.name.extend_from_slice(tags);
        let row = collector.row(&self.name)?;
        collector.push(row, time_ns, &[value])
    }
}

fn too_long() -> String {
    format!("line is over the limit of {LINE_BYTES_MAX} bytes; shorten it")
}

/// The first word, and what follows.
fn word(line: &[u8]) -> (&[u8], &[u8]) {
    let line = line.trim_ascii_start();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    line.split_at(end)
}
