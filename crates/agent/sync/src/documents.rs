//! From what the queue holds to what the wire carries.

use model::{Dataset, FileWriter, ItemKey, Names};
use queue::Body;
use sha1::{Digest as _, Sha1};

/// Bytes of a file's document that are reserved ahead.
const DOCUMENT_BYTES_USUAL: usize = 768;

/// One item as a document.
pub(crate) struct Document {
    /// The id on the wire.
    pub(crate) id: String,
    /// JSON; empty for an item that is gone.
    pub(crate) json: Vec<u8>,
    /// `checksum.hash.sha1`; empty for an item that is gone.
    pub(crate) checksum: String,
}

/// The id of an item: for files SHA-1 of the path, for other datasets the key itself when it can
/// stand in an id, else its SHA-1.
pub(crate) fn id(dataset: &Dataset, key: &ItemKey) -> String {
    if dataset.name() == Dataset::FIM_FILES {
        return key.document_id();
    }
    match std::str::from_utf8(&key.name) {
        Ok(text) if !text.is_empty() && text.len() <= model::limits::DOCUMENT_ID_BYTES_MAX => {
            text.to_owned()
        }
        _ => hex::encode(Sha1::digest(&key.name)),
    }
}

/// Build the document of an item.
pub(crate) fn build(
    dataset: &Dataset,
    key: &ItemKey,
    seen: u64,
    body: &Body,
    names: &dyn Names,
) -> Document {
    let id = id(dataset, key);
    match body {
        Body::Gone => Document { id, json: Vec::new(), checksum: String::new() },
        Body::Observation(observation) => {
            let mut json = Vec::with_capacity(DOCUMENT_BYTES_USUAL);
            let checksum = FileWriter::default().write(&mut json, key, observation, seen, names);
            Document { id, json, checksum: String::from_utf8_lossy(&checksum).into_owned() }
        }
        Body::Document(json) => {
            let checksum = checksum_within(json).unwrap_or_else(|| hex::encode(Sha1::digest(json)));
            Document { id, json: json.clone(), checksum }
        }
    }
}

/// `checksum.hash.sha1` of a document that carries it.
fn checksum_within(json: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Carrier {
        checksum: model::document::ChecksumBody,
    }
    serde_json::from_slice::<Carrier>(json).ok().map(|c| c.checksum.hash.sha1)
}

/// The digest of a dataset: checksums sorted, their hex concatenated, SHA-1 of that, lower-case
/// hex (`spec/sync.md` 1.5). `checksums` is sorted in place.
pub(crate) fn digest(checksums: &mut [[u8; 20]]) -> String {
    checksums.sort_unstable();
    let mut hash = Sha1::new();
    for checksum in checksums {
        hash.update(hex::encode(checksum));
    }
    hex::encode(hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_nothing_is_sha1_of_nothing() {
        assert_eq!(digest(&mut []), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    }

    #[test]
    fn the_digest_does_not_depend_on_order() {
        let (a, b) = ([1; 20], [2; 20]);
        assert_eq!(digest(&mut [a, b]), digest(&mut [b, a]));
        assert_ne!(digest(&mut [a, b]), digest(&mut [a, a]));
    }

    #[test]
    fn other_datasets_are_known_by_their_key() {
        let packages = Dataset::new("inventory-packages");
        assert_eq!(id(&packages, &ItemKey::new(b"".as_slice(), b"bash".as_slice())), "bash");
        assert_eq!(id(&packages, &ItemKey::new(b"".as_slice(), b"\xff".as_slice())).len(), 40);
    }
}
