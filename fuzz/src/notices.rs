//! The decoder of kernel notifications; see `targets.rs`. The including file must define `decode`.

use crate::decode::{HANDLE_HEAD_BYTES, Handle, Notification, decode};

/// Decodes a read of a notification group.
#[allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a fuzzer that finds something panics"
)]
pub fn notices(data: &[u8]) {
    let mut at = 0;
    let mut failed = false;
    for result in decode(data) {
        assert!(!failed, "nothing follows an error");
        let Ok(found) = result else {
            failed = true;
            continue;
        };
        check(&found);
        let length = u32::from_ne_bytes(*data[at..].first_chunk().unwrap()) as usize;
        let mut alone = decode(&data[at..at + length]);
        assert_eq!(alone.next(), Some(Ok(found)), "its neighbours change a notification");
        assert_eq!(alone.next(), None);
        at += length;
    }
    assert!(failed || at == data.len(), "bytes are left over");
}

fn check(found: &Notification<'_>) {
    let entries = [found.entry, found.moved_to].into_iter().flatten();
    for entry in entries.clone() {
        assert!(!entry.name.is_empty() && !entry.name.contains(&0));
    }
    for Handle(handle) in entries.map(|entry| entry.directory).chain(found.object) {
        let length = u32::from_ne_bytes(*handle.get(8..).unwrap().first_chunk().unwrap()) as usize;
        assert_eq!(handle.len(), HANDLE_HEAD_BYTES + length);
    }
}
