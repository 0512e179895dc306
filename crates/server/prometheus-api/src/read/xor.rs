//! Chunks of samples in the encoding XOR of Prometheus (`tsdb/chunkenc/xor.go`).
//!
//! Two bytes with the number of samples, big endian, are followed by bits, the highest first. The first
//! sample is a signed varint of its milliseconds and the 64 bits of its value, the second one the varint
//! of the time since the first. Later times are the change of that distance. A value from the second
//! sample on is the XOR with the one before it.

use super::encode::push_varint;

/// Most samples of a chunk.
pub(crate) const SAMPLES_MAX: u16 = 120;
/// Bytes of the number of samples.
const HEADER_BYTES: usize = 2;

/// A chunk that grows by a sample at a time, up to [`SAMPLES_MAX`].
#[derive(Default)]
pub(crate) struct XorChunk {
    bytes: Vec<u8>,
    /// Bits of the last byte that are not used yet.
    free: u32,
    pub(crate) count: u16,
    pub(crate) first_ms: i64,
    pub(crate) last_ms: i64,
    /// Time between the last two samples, milliseconds.
    delta: u64,
    /// Bits of the last value.
    value: u64,
    /// Zeros before and after the bits of the last XOR that was written with its position.
    window: Option<(u32, u32)>,
}

impl XorChunk {
    /// Appends a sample that is later than the one before it.
    pub(crate) fn push(&mut self, time_ms: i64, value: f64) {
        let bits = value.to_bits();
        let delta = time_ms.wrapping_sub(self.last_ms).cast_unsigned();
        match self.count {
            0 => {
                self.bytes.resize(HEADER_BYTES, 0);
                self.first_ms = time_ms;
                push_varint(&mut self.bytes, ((time_ms << 1) ^ (time_ms >> 63)).cast_unsigned());
                self.push_bits(bits, 64);
            }
            1 => {
                push_varint(&mut self.bytes, delta);
                self.push_value(bits);
            }
            _ => {
                self.push_change(delta.wrapping_sub(self.delta).cast_signed());
                self.push_value(bits);
            }
        }
        // The first sample has no distance.
        self.delta = if self.count == 0 { 0 } else { delta };
        (self.last_ms, self.value) = (time_ms, bits);
        self.count += 1;
    }

    /// Returns the encoded chunk.
    pub(crate) fn encoded(&mut self) -> &[u8] {
        if let Some(header) = self.bytes.first_chunk_mut() {
            *header = self.count.to_be_bytes();
        }
        &self.bytes
    }

    /// Removes all samples.
    pub(crate) fn clear(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        *self = Self { bytes, ..Self::default() };
    }

    /// Appends the change of the distance of times.
    fn push_change(&mut self, change: i64) {
        // A size holds one number more above zero than below it.
        let fits = |bits: u32| -(1 << (bits - 1)) < change && change <= 1 << (bits - 1);
        let value = change.cast_unsigned();
        if change == 0 {
            self.push_bits(0, 1);
        } else if fits(14) {
            self.push_bits(0b10, 2);
            self.push_bits(value, 14);
        } else if fits(17) {
            self.push_bits(0b110, 3);
            self.push_bits(value, 17);
        } else if fits(20) {
            self.push_bits(0b1110, 4);
            self.push_bits(value, 20);
        } else {
            self.push_bits(0b1111, 4);
            self.push_bits(value, 64);
        }
    }

    /// Appends the bits of a value by which it differs from the last one.
    fn push_value(&mut self, bits: u64) {
        let xor = bits ^ self.value;
        if xor == 0 {
            return self.push_bits(0, 1);
        }
        // The number has five bits.
        let (leading, trailing) = (xor.leading_zeros().min(31), xor.trailing_zeros());
        if let Some((before, after)) = self.window
            && leading >= before
            && trailing >= after
        {
            self.push_bits(0b10, 2);
            return self.push_bits(xor >> after, 64 - before - after);
        }
        self.window = Some((leading, trailing));
        let length = 64 - leading - trailing;
        self.push_bits(0b11, 2);
        self.push_bits(u64::from(leading), 5);
        // 64 is written as 0: no XOR that is written has a length of 0.
        self.push_bits(u64::from(length), 6);
        self.push_bits(xor >> trailing, length);
    }

    /// Appends the lowest bits of a number, the highest of them first.
    fn push_bits(&mut self, bits: u64, count: u32) {
        let mut left = count;
        while left > 0 {
            if self.free == 0 {
                self.bytes.push(0);
                self.free = 8;
            }
            let taken = left.min(self.free);
            let part = (bits >> (left - taken)) & ((1 << taken) - 1);
            if let Some(last) = self.bytes.last_mut() {
                *last |= (part << (self.free - taken)) as u8;
            }
            self.free -= taken;
            left -= taken;
        }
    }
}
