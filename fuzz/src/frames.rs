//! The reader of a follower's stream; see `targets.rs`. The including file must define `wire`.

use crate::wire;

/// Decodes a stream to a follower that arrives in two pieces.
#[allow(
    clippy::indexing_slicing,
    clippy::panic,
    unreachable_pub,
    reason = "a fuzzer that finds something panics"
)]
pub fn frames(data: &[u8]) {
    let Some((cut, stream)) = data.split_first() else { return };
    let mut whole = wire::Decoder::default();
    whole.push(stream);
    let at = usize::from(*cut).min(stream.len());
    let mut pieces = wire::Decoder::default();
    pieces.push(&stream[..at]);
    let mut got = Vec::new();
    while let Ok(Some(frame)) = pieces.next_frame() {
        got.push(frame);
    }
    pieces.push(&stream[at..]);
    while let Ok(Some(frame)) = pieces.next_frame() {
        got.push(frame);
    }
    for frame in got {
        let mut bytes = Vec::new();
        frame.push(&mut bytes);
        assert_eq!(whole.next_frame(), Ok(Some(frame)), "pieces differ from the whole");
        assert!(bytes.len() >= wire::HEAD_BYTES);
    }
    assert!(!matches!(whole.next_frame(), Ok(Some(_))));
}
