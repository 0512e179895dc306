//! Encoding of sessions.

use flatbuffers::{FlatBufferBuilder, TableFinishedWIPOffset, Vector, WIPOffset};

use crate::session::{Context, Operation, Payload, Session, SessionValue, Start};
use crate::wire::{
    MESSAGE_FULL_SESSION, PAYLOAD_CHECKSUM, PAYLOAD_CLEANS, PAYLOAD_SYNC_DATA, slot,
};

type FinishedTable = WIPOffset<TableFinishedWIPOffset>;
type Builder = FlatBufferBuilder<'static>;

/// Bytes kept free for the start, the vectors of offsets and the root, when a caller compares
/// [`SessionBuilder::bytes`] with a limit.
const TAIL_BYTES: usize = 8 * 1024;
/// Most bytes one value adds beyond its id, index and data: table, vtable, lengths, padding and
/// its offset in the vector.
const VALUE_OVERHEAD_BYTES: usize = 80;

/// Writes a session value by value, so that a sender can stop at its byte limit without ever
/// holding the documents twice.
pub struct SessionBuilder {
    buffer: Builder,
    values: Vec<FinishedTable>,
    contexts: Vec<FinishedTable>,
}

impl Default for SessionBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl SessionBuilder {
    /// Returns a builder without values.
    pub fn new() -> Self {
        Self { buffer: Builder::with_capacity(16 * 1024), values: Vec::new(), contexts: Vec::new() }
    }

    /// Appends a value. `index` is the name on the wire; `data` is a JSON object.
    pub fn push(&mut self, operation: Operation, id: &str, index: &str, version: u64, data: &[u8]) {
        let b = &mut self.buffer;
        let data = (!data.is_empty()).then(|| b.create_vector(data));
        let index = shared(b, index);
        let id = text(b, id);
        let table = b.start_table();
        b.push_slot(slot(3), version, 0);
        push_offset(b, 4, data);
        push_offset(b, 2, index);
        push_offset(b, 1, id);
        b.push_slot(slot(0), operation.code(), 0);
        let done = b.end_table(table);
        self.values.push(done);
    }

    /// Appends a context.
    fn push_context(&mut self, id: &str, index: &str, data: &[u8]) {
        let b = &mut self.buffer;
        let data = (!data.is_empty()).then(|| b.create_vector(data));
        let index = shared(b, index);
        let id = text(b, id);
        let table = b.start_table();
        push_offset(b, 2, data);
        push_offset(b, 1, index);
        push_offset(b, 0, id);
        let done = b.end_table(table);
        self.contexts.push(done);
    }

    /// Returns the number of values appended so far.
    pub fn values(&self) -> usize {
        self.values.len()
    }

    /// Returns an upper bound of the finished session's bytes; only an unusually long start exceeds
    /// it.
    pub fn bytes(&self) -> usize {
        let offsets = 4 * (self.values.len() + self.contexts.len());
        self.buffer.unfinished_data().len() + offsets + TAIL_BYTES
    }

    /// Returns the most bytes that one more value adds.
    pub fn cost(id: &str, index: &str, data: &[u8]) -> usize {
        id.len() + index.len() + data.len() + VALUE_OVERHEAD_BYTES
    }

    /// Returns the finished buffer.
    pub fn finish(mut self, start: &Start) -> Vec<u8> {
        let b = &mut self.buffer;
        let values = list(b, &self.values);
        let contexts = list(b, &self.contexts);
        let table = b.start_table();
        push_offset(b, 1, contexts);
        push_offset(b, 0, values);
        let payload = b.end_table(table);
        message(self.buffer, start, PAYLOAD_SYNC_DATA, Some(payload))
    }
}

/// Encodes a session.
pub fn encode(session: &Session) -> Vec<u8> {
    let mut b = Builder::with_capacity(1024);
    match &session.payload {
        Payload::None => message(b, &session.start, 0, None),
        Payload::Sync { values, contexts } => {
            let mut builder = SessionBuilder::new();
            for SessionValue { operation, id, index, version, data } in values {
                builder.push(*operation, id, index, *version, data);
            }
            for Context { id, index, data } in contexts {
                builder.push_context(id, index, data);
            }
            builder.finish(&session.start)
        }
        Payload::Cleans(indices) => {
            let mut items = Vec::with_capacity(indices.len());
            for index in indices {
                let index = text(&mut b, index);
                let table = b.start_table();
                push_offset(&mut b, 0, index);
                items.push(b.end_table(table));
            }
            let items = list(&mut b, &items);
            let table = b.start_table();
            push_offset(&mut b, 0, items);
            let payload = b.end_table(table);
            message(b, &session.start, PAYLOAD_CLEANS, Some(payload))
        }
        Payload::Checksum { index, checksum } => {
            let index = text(&mut b, index);
            let checksum = text(&mut b, checksum);
            let table = b.start_table();
            push_offset(&mut b, 1, checksum);
            push_offset(&mut b, 0, index);
            let payload = b.end_table(table);
            message(b, &session.start, PAYLOAD_CHECKSUM, Some(payload))
        }
    }
}

/// Appends the start, the session and the root around a payload of this kind, and returns the
/// buffer.
fn message(mut b: Builder, start: &Start, kind: u8, payload: Option<FinishedTable>) -> Vec<u8> {
    let start = write_start(&mut b, start);
    let table = b.start_table();
    push_offset(&mut b, 2, payload);
    push_offset(&mut b, 0, Some(start));
    b.push_slot(slot(1), kind, 0);
    let session = b.end_table(table);
    let table = b.start_table();
    push_offset(&mut b, 1, Some(session));
    b.push_slot(slot(0), MESSAGE_FULL_SESSION, 0);
    let root = b.end_table(table);
    b.finish_minimal(root);
    let (mut bytes, from) = b.collapse();
    bytes.drain(..from);
    bytes
}

/// Appends the start. Fields are pushed by descending size, so that the table has no padding; the
/// golden files depend on this order.
fn write_start(b: &mut Builder, start: &Start) -> FinishedTable {
    let names = |b: &mut Builder, names: &[String]| {
        let texts: Vec<_> = names.iter().map(|n| b.create_shared_string(n)).collect();
        (!texts.is_empty()).then(|| b.create_vector(&texts))
    };
    let index = names(b, &start.index);
    let groups = names(b, &start.groups);
    let texts = [
        (0, &start.module),
        (4, &start.architecture),
        (5, &start.hostname),
        (6, &start.osname),
        (7, &start.osplatform),
        (8, &start.ostype),
        (9, &start.osversion),
        (10, &start.agentversion),
        (11, &start.agentname),
        (12, &start.agentid),
        (15, &start.cluster_name),
    ]
    .map(|(field, value)| (field, text(b, value)));
    let table = b.start_table();
    b.push_slot(slot(16), start.feed_offset, 0);
    b.push_slot(slot(14), start.global_version, 0);
    for (field, value) in texts {
        push_offset(b, field, value);
    }
    push_offset(b, 13, groups);
    push_offset(b, 2, index);
    b.push_slot(slot(3), start.option.code(), 0);
    b.push_slot(slot(1), start.mode.code(), 0);
    b.end_table(table)
}

fn text(b: &mut Builder, text: &str) -> Option<WIPOffset<&'static str>> {
    (!text.is_empty()).then(|| b.create_string(text))
}

fn shared(b: &mut Builder, text: &str) -> Option<WIPOffset<&'static str>> {
    (!text.is_empty()).then(|| b.create_shared_string(text))
}

type List = WIPOffset<Vector<'static, flatbuffers::ForwardsUOffset<TableFinishedWIPOffset>>>;

fn list(b: &mut Builder, tables: &[FinishedTable]) -> Option<List> {
    (!tables.is_empty()).then(|| b.create_vector(tables))
}

fn push_offset<T>(b: &mut Builder, field: u16, offset: Option<WIPOffset<T>>) {
    if let Some(offset) = offset {
        b.push_slot_always(slot(field), offset);
    }
}
