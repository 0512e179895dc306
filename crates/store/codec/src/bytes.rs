//! Little-endian numbers and varints.

/// Reads bytes from the front. All reads are checked; they return `None` at the end or for
/// malformed bytes.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn take_bytes(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(bytes)?;
        self.0 = tail;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[b]| b)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    pub fn f64(&mut self) -> Option<f64> {
        self.u64().map(f64::from_bits)
    }

    pub fn varint(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(value);
            }
            shift += 7;
        }
    }

    /// Skips a varint of any length.
    pub fn skip_varint(&mut self) -> Option<()> {
        let end = self.0.iter().position(|byte| *byte < 0x80)?;
        self.0 = self.0.get(end + 1..)?;
        Some(())
    }

    pub fn signed(&mut self) -> Option<i64> {
        self.varint().map(|z| ((z >> 1) as i64) ^ -((z & 1) as i64))
    }

    pub fn text(&mut self) -> Option<&'a str> {
        let bytes = self.varint()? as usize;
        std::str::from_utf8(self.take_bytes(bytes)?).ok()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

pub fn push_varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

pub fn push_signed(into: &mut Vec<u8>, value: i64) {
    push_varint(into, ((value << 1) ^ (value >> 63)) as u64);
}

pub fn push_text(into: &mut Vec<u8>, text: &str) {
    push_varint(into, text.len() as u64);
    into.extend_from_slice(text.as_bytes());
}
