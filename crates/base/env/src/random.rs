//! Randomness: from the operating system, or from a seed where a test must repeat.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// A source of random bytes. Shared between threads.
pub trait Random: Send + Sync {
    /// Fills `into` completely.
    ///
    /// # Errors
    /// Returns an error if the operating system's source cannot be read.
    fn fill_bytes(&self, into: &mut [u8]) -> io::Result<()>;

    /// Returns eight random bytes as a number.
    ///
    /// # Errors
    /// See [`Random::fill_bytes`].
    fn next_u64(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.fill_bytes(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// Entropy of the operating system; fit for keys.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill_bytes(&self, into: &mut [u8]) -> io::Result<()> {
        getrandom::fill(into).map_err(|e| io::Error::other(e.to_string()))
    }
}

/// `SplitMix64` from a seed: the same bytes for the same seed. Not fit for keys.
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
#[derive(Debug)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    /// Returns a generator that repeats for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl Random for SeededRandom {
    fn fill_bytes(&self, into: &mut [u8]) -> io::Result<()> {
        for chunk in into.chunks_mut(8) {
            let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let bytes = (z ^ (z >> 31)).to_le_bytes();
            for (to, from) in chunk.iter_mut().zip(bytes) {
                *to = from;
            }
        }
        Ok(())
    }
}
