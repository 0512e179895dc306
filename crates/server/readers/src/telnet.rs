//! The telnet commands of `OpenTSDB`, one per line: `put metric time value tag=value ...`.
//!
//! An accepted `put` gets no reply; a refused one gets a line that repeats it. `sync` requests a
//! reply once everything before it is persisted.

use query::time::{parse_any, parse_int};
use series::Value;

use crate::collector::RowCollector;
use crate::number::parse_float;

/// Longest line, in bytes.
pub const LINE_BYTES_MAX: usize = 16 << 10;

/// A command that asks for a reply or closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TelnetCommand {
    Version,
    Stats,
    /// Asks for a reply when everything before is persisted.
    Sync,
    /// Closes the connection.
    Exit,
}

/// The part of a buffer that was read, and the command that stopped the reader.
#[derive(Debug)]
pub struct ReadUntilAsked {
    /// Number of bytes consumed.
    pub bytes: usize,
    /// The command at the end of these bytes; `None` if all complete lines or items were read.
    pub asked: Option<TelnetCommand>,
}

/// Reads lines from a stream of bytes.
#[derive(Debug, Default)]
pub struct TelnetReader {
    line: u64,
    overlong: bool,
    name: Vec<u8>,
}

impl TelnetReader {
    /// Reads all complete lines of a buffer. Returns the number of bytes consumed and the commands.
    pub fn read(
        &mut self,
        buffer: &[u8],
        collector: &mut RowCollector<'_>,
    ) -> (usize, Vec<TelnetCommand>) {
        let (mut done, mut all) = (0, Vec::new());
        loop {
            let rest = buffer.get(done..).unwrap_or_default();
            let ReadUntilAsked { bytes, asked } = self.read_until_asked(rest, collector);
            done += bytes;
            let Some(asked) = asked else { return (done, all) };
            all.push(asked);
        }
    }

    /// Reads the complete lines of a buffer up to the first one that is a command of [`TelnetCommand`].
    pub fn read_until_asked(
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

    /// Handles the end of a connection: refuses a line without its line feed, because it may be
    /// truncated.
    pub fn cut(&mut self, rest: &[u8], collector: &mut RowCollector<'_>) {
        if !self.overlong && !rest.trim_ascii().is_empty() {
            let reason = "the stream ends inside a line; end it with a line feed and send it again";
            collector.refuse(self.line + 1, reason, rest);
        }
    }

    /// Handles the end of a file: the last line may lack its line feed.
    pub fn end(&mut self, rest: &[u8], collector: &mut RowCollector<'_>) {
        self.line += 1;
        if !self.overlong {
            self.command(rest.trim_ascii(), collector);
        }
    }

    fn command(&mut self, line: &[u8], collector: &mut RowCollector<'_>) -> Option<TelnetCommand> {
        let (word, rest) = word(line);
        match word {
            b"" => None,
            b"version" => Some(TelnetCommand::Version),
            b"stats" => Some(TelnetCommand::Stats),
            b"sync" => Some(TelnetCommand::Sync),
            b"exit" | b"quit" => Some(TelnetCommand::Exit),
            b"put" => {
                if let Err(reason) = self.push_put_line(rest, collector) {
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

    fn push_put_line(
        &mut self,
        line: &[u8],
        collector: &mut RowCollector<'_>,
    ) -> Result<(), String> {
        let (metric, rest) = word(line);
        let (time, rest) = word(rest);
        let (value, tags) = word(rest);
        let time_ns = parse_any(time).ok_or("no time; write seconds or milliseconds")?;
        let value = parse_value(value).ok_or("no value; write a number")?;
        self.name.clear();
        self.name.extend_from_slice(metric);
        self.name.push(b' ');
        self.name.extend_from_slice(tags);
        let mut row = collector.look_up(&self.name)?;
        collector.push(&mut row, time_ns, &[value])
    }
}

/// Parses an integer, or else a float.
#[inline]
pub(crate) fn parse_value(text: &[u8]) -> Option<Value> {
    parse_int(text).map(Value::I64).or_else(|| parse_float(text).map(Value::F64))
}

fn too_long() -> String {
    format!("line is over the limit of {LINE_BYTES_MAX} bytes; shorten it")
}

/// Splits a line into its first word and the rest.
fn word(line: &[u8]) -> (&[u8], &[u8]) {
    let line = line.trim_ascii_start();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    line.split_at(end)
}
