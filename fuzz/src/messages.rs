//! The decoder of the process connector; see `targets.rs`. The including file must define `message`.

use crate::message::decode;

/// Decodes a datagram of the process connector.
#[allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a fuzzer that finds something panics"
)]
pub fn messages(data: &[u8]) {
    let Some(messages) = decode(data) else {
        return;
    };
    let mut at = 0;
    for found in messages {
        let length = u32::from_ne_bytes(*data[at..].first_chunk().unwrap()) as usize;
        let alone = decode(&data[at..at + length]);
        assert_eq!(alone, Some(vec![found]), "its neighbours change a message");
        // The last message may lack its padding.
        at = data.len().min(at + length.next_multiple_of(4));
    }
    assert_eq!(at, data.len(), "bytes are left over");
}
