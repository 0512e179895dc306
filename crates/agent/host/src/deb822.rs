//! A streaming reader of stanzas of `Name: value` lines, the format of dpkg's database. It holds
//! one stanza at a time, with only the requested fields.
//!
//! It is strict, because leniency could hide a package. A line without a colon, a continuation
//! without a field, a requested field given twice, and a last stanza without an empty line after it
//! are errors with their line number.

use std::io::{self, BufRead};

use crate::limits::{FIELDS_MAX, LINE_BYTES_MAX, STANZA_BYTES_MAX};

/// The reason why no further stanza can be read.
#[derive(Debug)]
pub(crate) enum Fault {
    Io(io::Error),
    /// A line is malformed.
    Malformed(&'static str),
    /// A limit is exceeded: a description and the limit.
    Limit(&'static str, u64),
}

/// A field with the first line of its value, trimmed. Continuation lines are skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    name: String,
    value: Vec<u8>,
}

/// A stanza with its requested fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Stanza {
    fields: Vec<Field>,
    /// Number of its first line, from 1.
    pub(crate) line: u64,
}

impl Stanza {
    /// Returns the value of a field. The name is compared without case.
    pub(crate) fn get(&self, name: &str) -> Option<&[u8]> {
        let field = self.fields.iter().find(|f| f.name.eq_ignore_ascii_case(name))?;
        Some(&field.value)
    }
}

/// The reader of stanzas.
pub(crate) struct Stanzas<R> {
    input: R,
    wanted: &'static [&'static str],
    /// The current line, without its line end.
    text: Vec<u8>,
    /// Number of the current line, from 1; 0 before the first.
    line: u64,
}

/// The stanza being read, with its size so far.
#[derive(Default)]
struct Open {
    stanza: Stanza,
    bytes: usize,
    fields: usize,
}

impl<R: BufRead> Stanzas<R> {
    /// Returns a reader of `input` that keeps the `wanted` fields.
    pub(crate) fn new(input: R, wanted: &'static [&'static str]) -> Self {
        Self { input, wanted, text: Vec::new(), line: 0 }
    }

    /// Returns the number of the last line read, from 1; 0 before the first.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// Returns the next stanza; `None` at the end.
    ///
    /// # Errors
    /// Returns the fault of the current line; see [`Stanzas::line()`]. Nothing more can be read
    /// then.
    pub(crate) fn next_stanza(&mut self) -> Result<Option<Stanza>, Fault> {
        let mut open = Open::default();
        while self.read_line()? {
            let blank = self.text.iter().all(|b| matches!(b, b' ' | b'\t' | b'\r'));
            if blank && open.fields > 0 {
                return Ok(Some(open.stanza));
            }
            if !blank {
                self.append_line(&mut open)?;
            }
        }
        if open.fields > 0 {
            // dpkg ends each stanza with an empty line.
            return Err(Fault::Malformed("cut off before the end of the stanza"));
        }
        Ok(None)
    }

    /// Checks the current line, and adds it to the stanza if it is a requested field. Continuation
    /// lines and other fields only count against the limits.
    fn append_line(&self, open: &mut Open) -> Result<(), Fault> {
        open.bytes = open.bytes.saturating_add(self.text.len());
        if open.bytes > STANZA_BYTES_MAX {
            return Err(Fault::Limit("the stanza is too large", STANZA_BYTES_MAX as u64));
        }
        if matches!(self.text.first(), Some(b' ' | b'\t')) {
            if open.fields == 0 {
                return Err(Fault::Malformed("a continuation of no field"));
            }
            return Ok(());
        }
        let Some(colon) = self.text.iter().position(|b| *b == b':') else {
            return Err(Fault::Malformed("neither a field nor a continuation"));
        };
        let (name, rest) = self.text.split_at(colon);
        if name.is_empty() || !name.iter().all(u8::is_ascii_graphic) {
            return Err(Fault::Malformed("no name of a field"));
        }
        if open.fields == 0 {
            open.stanza.line = self.line;
        }
        open.fields += 1;
        if open.fields > FIELDS_MAX {
            return Err(Fault::Limit("the stanza has too many fields", FIELDS_MAX as u64));
        }
        let name = String::from_utf8_lossy(name);
        let wanted = self.wanted.iter().any(|wanted| wanted.eq_ignore_ascii_case(&name));
        if !wanted {
            return Ok(());
        }
        if open.stanza.get(&name).is_some() {
            return Err(Fault::Malformed("a field that the stanza has already"));
        }
        let value = rest.get(1..).unwrap_or_default().trim_ascii().to_vec();
        open.stanza.fields.push(Field { name: name.into_owned(), value });
        Ok(())
    }

    /// Reads the next line into `text`. Returns false at the end of the input.
    fn read_line(&mut self) -> Result<bool, Fault> {
        self.text.clear();
        loop {
            let found = match self.input.fill_buf() {
                Ok(found) => found,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Fault::Io(e)),
            };
            if found.is_empty() && self.text.is_empty() {
                return Ok(false);
            }
            if found.is_empty() {
                return Err(Fault::Malformed("cut off before the end of the line"));
            }
            if self.text.is_empty() {
                self.line += 1;
            }
            let end = found.iter().position(|b| *b == b'\n');
            let (part, used) = match end {
                Some(at) => (found.get(..at).unwrap_or_default(), at + 1),
                None => (found, found.len()),
            };
            if self.text.len() + part.len() > LINE_BYTES_MAX {
                return Err(Fault::Limit("the line is too long", LINE_BYTES_MAX as u64));
            }
            self.text.extend_from_slice(part);
            self.input.consume(used);
            if end.is_some() {
                return Ok(true);
            }
        }
    }
}
