//! Frames of a stream to a follower (`docs/format/follow.md`).
//!
//! ```text
//! length u32 | number u64 | kind u8 | crc u32 | body
//! ```
//! Little-endian; `length` counts the body, `crc` is CRC-32C over length, number, kind and body.
//! The remains of a broken connection are never a valid frame, and a stream of files ends with a frame
//! that says so.

/// Bytes before a frame's body.
pub const HEAD_BYTES: usize = 17;
/// Longest body: above the largest record that the server's journal accepts.
pub const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Longest piece of a file in one frame, bytes.
pub const PIECE_BYTES_MAX: usize = 256 * 1024;
/// Longest name of a file, bytes.
pub const NAME_BYTES_MAX: usize = 256;

const RECORD: u8 = 0;
const STATUS: u8 = 1;
const FILE: u8 = 2;
const PIECE: u8 = 3;
const END: u8 = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A persisted record of the journal.
    Record { position: u64, bytes: Vec<u8> },
    /// The server's position; sent whenever the stream has caught up, and every second.
    Status {
        /// The server's last persisted position.
        persisted: u64,
        /// The server's time, microseconds since the epoch.
        at_us: u64,
    },
    /// The beginning of a file of a seed.
    File {
        /// Size of the file, bytes.
        size: u64,
        /// Path of the file, relative to the data folder.
        name: String,
    },
    /// The next bytes of the file.
    Piece {
        /// Offset of the bytes in the file.
        offset: u64,
        bytes: Vec<u8>,
    },
    /// The end of the seed, with the number of files sent.
    End { files: u64 },
}

/// The reason why bytes are not a valid frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The checksum does not match.
    #[error("a frame arrived damaged: connect again")]
    Damaged,
    /// The body is longer than the limit.
    #[error("a frame of {0} bytes is above the limit of {BODY_BYTES_MAX}: use a newer program")]
    TooLong(u32),
    /// The kind or the body is not known to this program.
    #[error("a frame of kind {0} is not understood: use a newer program")]
    Unknown(u8),
}

/// Appends the frame of a record.
pub fn push_record(out: &mut Vec<u8>, position: u64, bytes: &[u8]) {
    push(out, RECORD, position, bytes);
}

/// Appends the frame of a piece of a file.
pub fn push_piece(out: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    push(out, PIECE, offset, bytes);
}

impl Frame {
    /// Appends the frame to `out`.
    pub fn push(&self, out: &mut Vec<u8>) {
        match self {
            Self::Record { position, bytes } => push(out, RECORD, *position, bytes),
            Self::Status { persisted, at_us } => {
                push(out, STATUS, *persisted, &at_us.to_le_bytes());
            }
            Self::File { size, name } => push(out, FILE, *size, name.as_bytes()),
            Self::Piece { offset, bytes } => push(out, PIECE, *offset, bytes),
            Self::End { files } => push(out, END, *files, &[]),
        }
    }

    fn parse(kind: u8, number: u64, body: &[u8]) -> Option<Self> {
        Some(match kind {
            RECORD => Self::Record { position: number, bytes: body.to_vec() },
            STATUS => {
                let at_us = u64::from_le_bytes(body.try_into().ok()?);
                Self::Status { persisted: number, at_us }
            }
            FILE if body.len() <= NAME_BYTES_MAX => {
                Self::File { size: number, name: String::from_utf8(body.to_vec()).ok()? }
            }
            PIECE => Self::Piece { offset: number, bytes: body.to_vec() },
            END if body.is_empty() => Self::End { files: number },
            _ => return None,
        })
    }
}

fn push(out: &mut Vec<u8>, kind: u8, number: u64, body: &[u8]) {
    let mut head = [0; HEAD_BYTES - 4];
    let (length, rest) = head.split_at_mut(4);
    length.copy_from_slice(&(body.len() as u32).to_le_bytes());
    let (place, last) = rest.split_at_mut(8);
    place.copy_from_slice(&number.to_le_bytes());
    last.fill(kind);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head), body);
    out.extend_from_slice(&head);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(body);
}

/// A decoder that takes bytes as they arrive and returns whole frames.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Number of bytes of `buffer` that were already decoded.
    taken: usize,
}

impl Decoder {
    /// Adds bytes from the connection.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next whole frame; `None` until more bytes arrive.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a frame. The bytes after them cannot be trusted.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, WireError> {
        let rest = self.buffer.get(self.taken..).unwrap_or_default();
        let Some((head, rest)) = rest.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let (covered, crc) = head.split_at(HEAD_BYTES - 4);
        let [l0, l1, l2, l3, number @ .., kind] = covered else { return Ok(None) };
        let length = u32::from_le_bytes([*l0, *l1, *l2, *l3]);
        if length as usize > BODY_BYTES_MAX {
            return Err(WireError::TooLong(length));
        }
        let Some(body) = rest.get(..length as usize) else { return Ok(None) };
        if crc32c::crc32c_append(crc32c::crc32c(covered), body).to_le_bytes() != *crc {
            return Err(WireError::Damaged);
        }
        let number = u64::from_le_bytes(number.try_into().map_err(|_| WireError::Damaged)?);
        let frame = Frame::parse(*kind, number, body).ok_or(WireError::Unknown(*kind))?;
        self.taken += HEAD_BYTES + length as usize;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Frame> {
        vec![
            Frame::Record { position: 7, bytes: b"record".to_vec() },
            Frame::Record { position: 8, bytes: Vec::new() },
            Frame::Status { persisted: 8, at_us: 99 },
            Frame::File { size: 3, name: "state.db".into() },
            Frame::Piece { offset: 1, bytes: vec![0; 3] },
            Frame::End { files: 1 },
        ]
    }

    #[test]
    fn frames_decode_at_any_split_of_the_stream() {
        let mut bytes = Vec::new();
        for frame in all() {
            frame.push(&mut bytes);
        }
        for piece in 1..=bytes.len() {
            let (mut decoder, mut got) = (Decoder::default(), Vec::new());
            for part in bytes.chunks(piece) {
                decoder.push(part);
                got.extend(std::iter::from_fn(|| decoder.next_frame().unwrap()));
            }
            assert_eq!(got, all(), "pieces of {piece}");
        }
    }

    #[test]
    fn frame_with_a_flipped_bit_is_never_decoded() {
        for frame in all() {
            let mut bytes = Vec::new();
            frame.push(&mut bytes);
            for bit in 0..bytes.len() * 8 {
                let mut wrong = bytes.clone();
                wrong[bit / 8] ^= 1 << (bit % 8);
                let mut decoder = Decoder::default();
                decoder.push(&wrong);
                // Incomplete, too long or damaged; never a frame.
                assert!(!matches!(decoder.next_frame(), Ok(Some(_))), "{frame:?}, bit {bit}");
            }
        }
    }

    #[test]
    fn status_frame_matches_the_documented_bytes() {
        let mut bytes = Vec::new();
        Frame::Status { persisted: 258, at_us: 1 }.push(&mut bytes);
        assert_eq!(hex::encode(&bytes), "08000000020100000000000001d691ce560100000000000000");
    }
}
