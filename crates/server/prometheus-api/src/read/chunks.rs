//! The streamed answer: a frame for each series.
//!
//! A frame is the length of a `ChunkedReadResponse` as a varint, its CRC-32C, big endian, and the message
//! (`storage/remote/chunked.go`). Series follow each other in the order of their labels.
//!
//! Prometheus splits a series into frames of 1 MiB, but its client then takes each for a series of its
//! own: queries fail, or have values several times. So a series is never split here, and one that does
//! not fit into a frame is an error. A client reads frames of up to 50 MB (`chunked_read_limit`).

use budget::{Budget, HeldMemory};
use promql::{Labels, QueryError};

use super::encode::{CONTENT, push_bytes, push_int, push_labels, push_length, push_varint};
use super::xor::{SAMPLES_MAX, XorChunk};
use crate::stream::{BodySender, PIECE_BYTES};
use crate::{Refusal, query};

/// Most bytes of the labels and chunks of a series.
const SERIES_BYTES_MAX: usize = 32 << 20;
const SERIES_OVER: &str = "a series has more than 32 MiB in this range: ask for a shorter one";

// Field numbers of messages (`prompb/remote.proto`, `prompb/types.proto`).
const SERIES: u8 = 1;
const QUERY_INDEX: u8 = 2;
const CHUNK_FIRST: u8 = 1;
const CHUNK_LAST: u8 = 2;
const CHUNK_ENCODING: u8 = 3;
const CHUNK_DATA: u8 = 4;
/// The encoding of an [`XorChunk`].
const XOR: i64 = 1;

/// Writes series as frames and hands them to the client.
pub(super) struct ChunkWriter<'a> {
    budget: &'a Budget,
    held: HeldMemory,
    pieces: &'a BodySender,
    /// Bytes that were not handed over yet.
    framed: Vec<u8>,
    query: usize,
    /// The labels of the series.
    labels: Vec<u8>,
    /// The chunks of the series.
    chunks: Vec<u8>,
    chunk: XorChunk,
    /// Buffer for one chunk.
    encoded: Vec<u8>,
}

impl<'a> ChunkWriter<'a> {
    pub(super) fn new(budget: &'a Budget, pieces: &'a BodySender) -> Self {
        Self {
            budget,
            held: budget.nothing(),
            pieces,
            framed: Vec::new(),
            query: 0,
            labels: Vec::new(),
            chunks: Vec::new(),
            chunk: XorChunk::default(),
            encoded: Vec::new(),
        }
    }

    /// Begins a series of a query.
    pub(super) fn begin(&mut self, query: usize, labels: &Labels) {
        self.query = query;
        self.labels.clear();
        push_labels(&mut self.labels, labels);
    }

    /// Appends a sample of the series.
    pub(super) fn push(&mut self, time_ms: i64, value: f64) -> Result<(), Refusal> {
        if self.chunk.count == SAMPLES_MAX {
            self.end_chunk()?;
        }
        self.chunk.push(time_ms, value);
        Ok(())
    }

    /// Ends a series: frames it and hands over what fills a piece. One without samples is not in the
    /// answer.
    pub(super) fn end(&mut self) -> Result<(), Refusal> {
        if self.chunk.count == 0 {
            return Ok(());
        }
        self.end_chunk()?;
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        push_length(&mut head, SERIES, self.labels.len() + self.chunks.len());
        push_int(&mut tail, QUERY_INDEX, self.query as i64);
        let message = [&*head, &self.labels, &self.chunks, &tail];
        let sum = message.iter().fold(0, |sum, part| crc32c::crc32c_append(sum, part));
        let length: usize = message.iter().map(|part| part.len()).sum();
        push_varint(&mut self.framed, length as u64);
        self.framed.extend_from_slice(&sum.to_be_bytes());
        for bytes in message.iter().flat_map(|part| part.chunks(PIECE_BYTES)) {
            self.framed.extend_from_slice(bytes);
            if self.framed.len() >= PIECE_BYTES {
                self.pieces.send(std::mem::take(&mut self.framed))?;
            }
        }
        self.chunks.clear();
        self.chunks.shrink_to(PIECE_BYTES);
        Ok(())
    }

    /// Hands over what is left.
    pub(super) fn finish(self) -> Result<(), Refusal> {
        if self.framed.is_empty() { Ok(()) } else { self.pieces.send(self.framed) }
    }

    fn end_chunk(&mut self) -> Result<(), Refusal> {
        self.encoded.clear();
        push_int(&mut self.encoded, CHUNK_FIRST, self.chunk.first_ms);
        push_int(&mut self.encoded, CHUNK_LAST, self.chunk.last_ms);
        push_int(&mut self.encoded, CHUNK_ENCODING, XOR);
        push_bytes(&mut self.encoded, CHUNK_DATA, self.chunk.encoded());
        self.chunk.clear();
        if self.labels.len() + self.chunks.len() + self.encoded.len() > SERIES_BYTES_MAX {
            return Err(Refusal::bad_data(SERIES_OVER));
        }
        push_bytes(&mut self.chunks, CONTENT, &self.encoded);
        // A buffer grows to twice of what is in it.
        let held = self.held.set(2 * (self.labels.len() + self.chunks.len()));
        held.map_err(|error| query::refusal(QueryError::Over(error), self.budget))
    }
}
