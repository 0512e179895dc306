//! Conversion of queued items to documents on the wire.

use model::{Dataset, FileWriter, KeyRef, Names, Observation};
use queue::Body;
use sha1::{Digest as _, Sha1};

/// The source of a document.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content<'a> {
    /// The last observation of a file.
    Observation(&'a Observation),
    /// JSON ready to be sent.
    Document(&'a [u8]),
    /// The item was deleted.
    Gone,
}

impl<'a> From<&'a Body> for Content<'a> {
    fn from(body: &'a Body) -> Self {
        match body {
            Body::Observation(observation) => Self::Observation(observation),
            Body::Document(json) => Self::Document(json),
            Body::Gone => Self::Gone,
        }
    }
}

/// The document of an item, borrowed from its [`DocumentWriter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Document<'a> {
    /// The id on the wire.
    pub(crate) id: &'a str,
    /// JSON; empty for a deleted item.
    pub(crate) json: &'a [u8],
    /// `checksum.hash.sha1`; empty for a deleted item.
    pub(crate) checksum: &'a str,
}

/// A writer of documents that reuses its buffers.
pub(crate) struct DocumentWriter<'a> {
    dataset: &'a Dataset,
    names: &'a dyn Names,
    writer: FileWriter,
    id: String,
    json: Vec<u8>,
    checksum: String,
}

impl<'a> DocumentWriter<'a> {
    pub(crate) fn new(dataset: &'a Dataset, names: &'a dyn Names) -> Self {
        let (id, json, checksum) = (String::new(), Vec::new(), String::new());
        Self { dataset, names, writer: FileWriter::default(), id, json, checksum }
    }

    /// Returns the id of an item's document. For files it is the SHA-1 of the path. For other
    /// datasets it is the key if that is a valid id, and otherwise the key's SHA-1.
    pub(crate) fn id(&mut self, key: KeyRef<'_>) -> &str {
        self.id.clear();
        if self.dataset.name() == Dataset::FIM_FILES {
            push_ascii(&mut self.id, &self.writer.document_id(key));
            return &self.id;
        }
        match std::str::from_utf8(key.name) {
            Ok(text) if !text.is_empty() && text.len() <= model::limits::DOCUMENT_ID_BYTES_MAX => {
                self.id.push_str(text);
            }
            _ => self.id.push_str(&hex::encode(Sha1::digest(key.name))),
        }
        &self.id
    }

    /// Makes the document of an item.
    pub(crate) fn make(
        &mut self,
        key: KeyRef<'_>,
        seen: u64,
        content: Content<'_>,
    ) -> Document<'_> {
        self.id(key);
        self.json.clear();
        self.checksum.clear();
        match content {
            Content::Gone => {}
            Content::Observation(o) => {
                let checksum = self.writer.write(&mut self.json, key, o, seen, self.names);
                push_ascii(&mut self.checksum, &checksum);
            }
            Content::Document(json) => {
                self.json.extend_from_slice(json);
                let checksum = checksum_within(json);
                self.checksum = checksum.unwrap_or_else(|| hex::encode(Sha1::digest(json)));
            }
        }
        Document { id: &self.id, json: &self.json, checksum: &self.checksum }
    }
}

/// Appends ASCII digits.
fn push_ascii(into: &mut String, digits: &[u8]) {
    into.push_str(std::str::from_utf8(digits).unwrap_or_default());
}

/// Returns `checksum.hash.sha1` of a document that contains it.
fn checksum_within(json: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Carrier {
        checksum: model::document::ChecksumBody,
    }
    serde_json::from_slice::<Carrier>(json).ok().map(|c| c.checksum.hash.sha1)
}

/// Returns the digest of a dataset: checksums sorted, their hex concatenated, SHA-1 of that,
/// lower-case hex (`docs/reference/wire.md`, "Checksums"). `checksums` is sorted in place.
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
    fn empty_dataset_digest_is_sha1_of_empty_input() {
        assert_eq!(digest(&mut []), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    }

    #[test]
    fn dataset_digest_is_independent_of_order() {
        let (a, b) = ([1; 20], [2; 20]);
        assert_eq!(digest(&mut [a, b]), digest(&mut [b, a]));
        assert_ne!(digest(&mut [a, b]), digest(&mut [a, a]));
    }

    #[test]
    fn document_id_of_other_datasets_is_their_key() {
        let packages = Dataset::new("inventory-packages");
        let mut maker = DocumentWriter::new(&packages, &model::document::NoNames);
        assert_eq!(maker.id(KeyRef { directory: b"", name: b"bash" }), "bash");
        assert_eq!(maker.id(KeyRef { directory: b"", name: b"\xff" }).len(), 40);
    }
}
