//! RESP as clients of the series store write it. A sample is a name, a time and a value. A row
//! joins its metrics with `|` and has an array of values. A dictionary assigns numbers to names.
//!
//! `+sync` requests a reply once everything before it is persisted.
//!
//! The reader keeps its state between buffers, so a sample may be split anywhere. After a refusal
//! it resumes at the next item that can only be a name, so the samples around a bad one are kept.
//!
//! The content of a bulk string is never read as items. One that is too long is refused and passed
//! over. If a length is impossible, or the content does not end there, the next item cannot be found,
//! and the stream ends.
//!
//! Limits: [`ITEM_BYTES_MAX`], [`DICTIONARY_ENTRIES_MAX`], [`DICTIONARIES_ENTRIES_MAX`], and the
//! store's limits for names and rows.

mod dictionary;
mod items;

use query::time::{parse_int, parse_iso};
use series::{COLUMNS_MAX, RowLookup, Store, Value};

use crate::collector::RowCollector;
use crate::telnet::{ReadUntilAsked, TelnetCommand};

use dictionary::Dictionary;
pub use dictionary::{DICTIONARIES_ENTRIES_MAX, DICTIONARY_ENTRIES_MAX, DictionaryQuota};
use items::{Found, Item, WRONG_END, count_of, is_name, item, number};
pub use items::{ITEM_BYTES_MAX, STALE, is_resp_name};

/// The item that requests an acknowledgement.
const SYNC: &[u8] = b"sync";

/// The kind of the next item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Name,
    Time,
    Value,
    /// The number of values of a row still to come.
    Values(usize),
    /// The number of items of a dictionary still to come.
    Dictionary(usize),
    /// After a refusal: the maximum number of items of the refused sample still to come.
    Skip(usize),
}

/// Reads samples from a stream of bytes.
#[derive(Debug)]
pub struct RespReader {
    dictionary: Dictionary,
    place: Expected,
    row: Option<RowLookup>,
    /// The number that stands for the name of `row`, if its series did not exist.
    number: Option<i64>,
    time_ns: i64,
    values: Vec<Value>,
    /// The row to which the next number of the dictionary is assigned.
    named: Option<RowLookup>,
    /// True while the items of an array that is too long for a row are skipped. Valid samples may
    /// be skipped with them, so each one is reported.
    doubtful: bool,
    /// True inside a line that is too long, until its end.
    overlong: bool,
    /// Content of a bulk string that is too long, bytes still to be passed over before its line end.
    passing: Option<usize>,
    /// True if the items can no longer be separated. Nothing more is read.
    broken: bool,
    /// True if the client requested an acknowledgement that is still to be reported to the caller.
    sync: bool,
    /// Number of lines read, the current one included.
    line: u64,
}

impl Default for RespReader {
    fn default() -> Self {
        Self::new(DictionaryQuota::default())
    }
}

impl RespReader {
    /// Creates a reader whose dictionary shares a quota with others.
    pub fn new(quota: DictionaryQuota) -> Self {
        Self {
            dictionary: Dictionary::new(quota),
            place: Expected::Name,
            row: None,
            number: None,
            time_ns: 0,
            values: Vec::new(),
            named: None,
            doubtful: false,
            overlong: false,
            passing: None,
            broken: false,
            sync: false,
            line: 0,
        }
    }

    /// Reads all complete items of a buffer and ignores `+sync`. Returns the number of bytes
    /// consumed.
    pub fn read(&mut self, buffer: &[u8], collector: &mut RowCollector<'_>) -> usize {
        let mut done = 0;
        loop {
            let rest = buffer.get(done..).unwrap_or_default();
            let ReadUntilAsked { bytes, asked } = self.read_until_asked(rest, collector);
            done += bytes;
            if asked.is_none() || self.broken {
                return done;
            }
        }
    }

    /// Renews the dictionary's rows if the store's epoch has changed, so that the store does not
    /// drop them. Numbers whose rows it has dropped already become undefined.
    pub fn renew_dictionary(&mut self, store: &Store) {
        if self.dictionary.renew(store) {
            let is_kept = |row: &RowLookup| match row {
                RowLookup::Known(row) => store.keep_row(*row),
                RowLookup::New(_) => true,
            };
            self.row = self.row.take().filter(is_kept);
            self.named = self.named.take().filter(is_kept);
        }
    }

    /// Reads the complete items of a buffer up to the first `+sync`, which is returned as
    /// [`TelnetCommand::Sync`]. If the items can no longer be separated, consumes all and returns
    /// [`TelnetCommand::Exit`].
    pub fn read_until_asked(
        &mut self,
        buffer: &[u8],
        collector: &mut RowCollector<'_>,
    ) -> ReadUntilAsked {
        let mut done = 0;
        self.renew_dictionary(collector.store());
        while let Some(rest) = buffer.get(done..).filter(|r| !r.is_empty()) {
            if std::mem::take(&mut self.sync) {
                return ReadUntilAsked { bytes: done, asked: Some(TelnetCommand::Sync) };
            }
            if self.broken {
                return ReadUntilAsked { bytes: buffer.len(), asked: Some(TelnetCommand::Exit) };
            }
            if let Some(left) = self.passing {
                match self.pass_over(left, rest, collector) {
                    Some(passed) => done += passed,
                    None => break,
                }
                continue;
            }
            let end = rest.iter().position(|c| *c == b'\n');
            if self.overlong {
                self.overlong = end.is_none();
                done += end.map_or(rest.len(), |e| e + 1);
                continue;
            }
            if end.is_none() && rest.len() > ITEM_BYTES_MAX {
                self.line += 1;
                self.too_long(rest, collector);
                self.overlong = true;
                continue;
            }
            let Some(end) = end else { break };
            let line = rest.get(..end).unwrap_or_default();
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.len() > ITEM_BYTES_MAX {
                self.line += 1;
                self.too_long(line, collector);
                done += end + 1;
                continue;
            }
            let (item, used) = match item(line, rest, end + 1) {
                Found::Item(item, used) => (item, used),
                Found::Incomplete => break,
                Found::TooLong(bytes) => {
                    self.line += 1;
                    self.too_long(line, collector);
                    self.passing = Some(bytes);
                    done += end + 1;
                    continue;
                }
                Found::Broken(reason) => {
                    self.line += 1;
                    self.end_stream(reason, line, collector);
                    continue;
                }
            };
            done += used;
            self.line += 1;
            if !line.is_empty() {
                self.accept_item(item, collector);
            }
            if used > end + 1 {
                // A bulk string may contain line feeds, which count as lines too.
                let text = rest.get(end + 1..used).unwrap_or_default();
                self.line += text.split(|c| *c == b'\n').count() as u64 - 1;
            }
        }
        let asked = std::mem::take(&mut self.sync).then_some(TelnetCommand::Sync);
        ReadUntilAsked { bytes: done, asked }
    }

    /// Passes over the content of a bulk string that is too long, of which `left` bytes are left, and
    /// its line end. Returns the number of bytes consumed, or `None` if the line end is not complete.
    fn pass_over(
        &mut self,
        left: usize,
        rest: &[u8],
        collector: &mut RowCollector<'_>,
    ) -> Option<usize> {
        if left > 0 {
            let passed = left.min(rest.len());
            let content = rest.get(..passed).unwrap_or_default();
            self.line += memchr::memchr_iter(b'\n', content).count() as u64;
            self.passing = Some(left - passed);
            return Some(passed);
        }
        let bytes = match rest {
            [b'\n', ..] => 1,
            [b'\r', b'\n', ..] => 2,
            [b'\r'] => return None,
            _ => {
                self.end_stream(WRONG_END, rest, collector);
                return Some(0);
            }
        };
        self.passing = None;
        Some(bytes)
    }

    fn end_stream(&mut self, reason: &str, text: &[u8], collector: &mut RowCollector<'_>) {
        self.broken = true;
        collector.refuse(self.line, format!("PARSER {reason}"), text);
    }

    /// Handles the end of the stream: refuses an incomplete sample.
    pub fn end(&mut self, rest: &[u8], collector: &mut RowCollector<'_>) {
        let whole = matches!(self.place, Expected::Name | Expected::Skip(_)) && rest.is_empty();
        let refused = self.overlong || self.passing.is_some() || self.broken;
        if !whole && !refused {
            collector.refuse(
                self.line,
                "PARSER the stream ends inside a sample; send it again",
                rest,
            );
        }
    }

    /// Returns true if the text of an event is expected. It may look like any other item, even a
    /// name or `sync`.
    fn awaits_text(&self) -> bool {
        self.place == Expected::Value && self.row.as_ref().is_some_and(RowLookup::is_events)
    }

    /// Returns true if a name is expected in a dictionary. The name may be `sync`.
    fn awaits_name(&self) -> bool {
        matches!(self.place, Expected::Dictionary(left) if left.is_multiple_of(2))
    }

    fn too_long(&mut self, text: &[u8], collector: &mut RowCollector<'_>) {
        let reason = format!("PARSER item is over the limit of {ITEM_BYTES_MAX} bytes; shorten it");
        self.refuse(reason, text, collector);
    }

    /// Refuses the current sample. The rest of its items, including the current one, is skipped.
    fn refuse(&mut self, reason: impl Into<String>, text: &[u8], collector: &mut RowCollector<'_>) {
        collector.refuse(self.line, reason, text);
        self.place = Expected::Skip(match self.place {
            Expected::Name => 2,
            Expected::Time => 1,
            Expected::Value | Expected::Skip(0) => 0,
            Expected::Values(left) | Expected::Dictionary(left) | Expected::Skip(left) => left - 1,
        });
    }

    fn accept_item(&mut self, item: Item<'_>, collector: &mut RowCollector<'_>) {
        if item == Item::Text(SYNC) && !self.awaits_text() && !self.awaits_name() {
            if !matches!(self.place, Expected::Name | Expected::Skip(_)) {
                collector.refuse(self.line, "PARSER a sample is not whole before", SYNC);
            }
            (self.sync, self.place) = (true, Expected::Name);
            return;
        }
        match self.place {
            Expected::Skip(left) => self.skip(item, left, collector),
            Expected::Name => self.name(item, collector),
            Expected::Dictionary(left) => self.entry(item, left, collector),
            // A name instead of a time or a value: the sample before it is incomplete.
            _ if is_name(item) && !self.awaits_text() => {
                self.refuse("PARSER a sample is not whole before", item.text(), collector);
                self.name(item, collector);
            }
            Expected::Time => self.time(item, collector),
            Expected::Value => self.value(item, collector),
            Expected::Values(left) => self.column(item, left, collector),
        }
    }

    /// Skips an item of a refused sample. `left` is the number of items that may still belong to
    /// it; an item that can only be a name ends it early.
    fn skip(&mut self, item: Item<'_>, left: usize, collector: &mut RowCollector<'_>) {
        if left == 0 || is_name(item) {
            self.place = Expected::Name;
            return self.name(item, collector);
        }
        self.place = Expected::Skip(match item {
            // The values of the refused sample.
            Item::Array(count) => match count_of(count) {
                Some(n) if n <= COLUMNS_MAX => n,
                n => {
                    let reason = format!("PARSER an array has 1 to {COLUMNS_MAX} values");
                    collector.refuse(self.line, reason, item.text());
                    self.doubtful = true;
                    n.unwrap_or(0)
                }
            },
            Item::Number(id) if self.doubtful && self.is_assigned(id) => {
                let reason = "PARSER skipped with the array before, which no row can have";
                collector.refuse(self.line, reason, id);
                left - 1
            }
            _ => left - 1,
        });
    }

    /// Returns true if the dictionary has a number.
    fn is_assigned(&self, number: &[u8]) -> bool {
        parse_int(number).is_some_and(|number| self.dictionary.contains(number))
    }

    /// Returns the row for a number of the dictionary. The error is the reason for a refusal.
    fn numbered(
        &self,
        number: Option<i64>,
        collector: &RowCollector<'_>,
    ) -> Result<RowLookup, String> {
        let look_up = |raw: &[u8]| collector.look_up(raw).map_err(|e| format!("DB {e}"));
        number.and_then(|number| self.dictionary.find(number, look_up)).unwrap_or_else(|| {
            Err("PARSER number without a name; send the dictionary first".into())
        })
    }

    /// Stores the row of the last accepted sample in the dictionary, if its series is new.
    fn resolve(&mut self) {
        if let (Some(number), Some(RowLookup::Known(row))) = (self.number.take(), &self.row) {
            self.dictionary.assign(number, RowLookup::Known(*row));
        }
    }

    fn name(&mut self, item: Item<'_>, collector: &mut RowCollector<'_>) {
        (self.place, self.doubtful, self.number) = (Expected::Name, false, None);
        let row = match item {
            Item::Text(raw) if is_name(item) => {
                collector.look_up(raw).map_err(|e| format!("DB {e}"))
            }
            Item::Number(text) => {
                self.number = parse_int(text);
                let row = self.numbered(self.number, collector);
                self.number = self.number.filter(|_| matches!(row, Ok(RowLookup::New(_))));
                row
            }
            Item::Array(count) => {
                match count_of(count)
                    .filter(|n| n.is_multiple_of(2) && *n <= 2 * DICTIONARY_ENTRIES_MAX)
                {
                    Some(0) => return,
                    Some(n) => {
                        self.place = Expected::Dictionary(n);
                        return;
                    }
                    None => Err("PARSER a dictionary has pairs of name and number".to_owned()),
                }
            }
            _ => Err("PARSER a series name is due: +metric tag=value".to_owned()),
        };
        match row {
            Ok(row) => (self.row, self.place) = (Some(row), Expected::Time),
            Err(reason) => self.refuse(reason, item.text(), collector),
        }
    }

    /// Handles one item of a dictionary. `left` counts the remaining items, this one included: a
    /// name is expected if it is even, the number for that name if it is odd.
    fn entry(&mut self, item: Item<'_>, left: usize, collector: &mut RowCollector<'_>) {
        let next = if left > 1 { Expected::Dictionary(left - 1) } else { Expected::Name };
        if left.is_multiple_of(2) {
            self.named = match item {
                Item::Text(raw) => match collector.look_up(raw) {
                    Ok(row) => Some(row),
                    Err(e) => {
                        collector.refuse(self.line, format!("DB {e}"), raw);
                        None
                    }
                },
                _ => None,
            };
        } else if let (Item::Number(id), Some(row)) = (item, self.named.take()) {
            let Some(number) = parse_int(id) else {
                collector.refuse(self.line, "PARSER no number", item.text());
                self.place = next;
                return;
            };
            if !self.dictionary.assign(number, row) {
                let reason = "PARSER the dictionaries are full; send names without numbers";
                collector.refuse(self.line, reason, item.text());
            }
        } else {
            collector.refuse(
                self.line,
                "PARSER a dictionary has pairs of name and number",
                item.text(),
            );
        }
        self.place = next;
    }

    fn time(&mut self, item: Item<'_>, collector: &mut RowCollector<'_>) {
        let time = match item {
            Item::Number(ns) => parse_int(ns),
            Item::Text(text) => parse_iso(text),
            _ => None,
        };
        if let Some(time) = time {
            (self.time_ns, self.place) = (time, Expected::Value);
        } else {
            let reason = "PARSER no time; write :nanoseconds or +YYYYMMDDTHHMMSS.fffffffff";
            self.refuse(reason, item.text(), collector);
        }
    }

    fn value(&mut self, item: Item<'_>, collector: &mut RowCollector<'_>) {
        self.values.clear();
        if let Item::Array(count) = item {
            match count_of(count) {
                Some(n) if (1..=COLUMNS_MAX).contains(&n) => self.place = Expected::Values(n),
                n => {
                    // Skip the items of the array too. `refuse` subtracts one for the current item.
                    self.place = Expected::Values(n.unwrap_or(0) + 1);
                    self.doubtful = true;
                    let reason = format!("PARSER an array has 1 to {COLUMNS_MAX} values");
                    self.refuse(reason, item.text(), collector);
                }
            }
            return;
        }
        let Some(row) = &mut self.row else {
            return self.refuse("DB series was forgotten; send its name again", b"", collector);
        };
        let stored = if row.is_events() {
            collector.push_event(row, self.time_ns, item.text())
        } else {
            match number(item) {
                Some(value) => collector.push(row, self.time_ns, &[value]),
                None => return self.refuse("PARSER no number", item.text(), collector),
            }
        };
        match stored {
            Ok(()) => {
                self.resolve();
                self.place = Expected::Name;
            }
            Err(reason) => self.refuse(format!("DB {reason}"), item.text(), collector),
        }
    }

    fn column(&mut self, item: Item<'_>, left: usize, collector: &mut RowCollector<'_>) {
        let Some(value) = number(item) else {
            return self.refuse("PARSER no number", item.text(), collector);
        };
        self.values.push(value);
        self.place = Expected::Values(left - 1);
        if left > 1 {
            return;
        }
        self.place = Expected::Name;
        let pushed = match &mut self.row {
            Some(row) => collector.push(row, self.time_ns, &self.values),
            None => Err("series was forgotten; send its name again".into()),
        };
        match pushed {
            Ok(()) => self.resolve(),
            Err(reason) => collector.refuse(self.line, format!("DB {reason}"), item.text()),
        }
    }
}
