//! Names and limits of the routes (`docs/format/follow.md`).

/// Longest name of a follower, bytes; letters, digits, `-` and `_`.
pub(crate) const FOLLOWER_NAME_BYTES_MAX: usize = 48;
/// Most followers of one server.
pub const FOLLOWERS_MAX: usize = 8;
/// Header of a stream's answer: the last position persisted when it began.
pub(crate) const HEADER_PERSISTED: &str = "x-holdfast-persisted";
/// Header of a stream's answer: the store's name.
pub(crate) const HEADER_STORE: &str = "x-holdfast-store";

/// Header of each request and of each answer for records: the version of the protocol.
pub(crate) const HEADER_VERSION: &str = "x-holdfast-follow";
/// The version: since 2, decisions are records.
pub(crate) const VERSION: u32 = 2;

/// Returns true if a text may name a follower.
pub(crate) fn is_follower_name(text: &str) -> bool {
    (1..=FOLLOWER_NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}
