//! Content of an item: an observation, or a document of another dataset. The queue itself does not
//! interpret it.
//!
//! The stored bytes of an observation begin with its format version, which is 1 or more. Those of a
//! document begin with [`DOCUMENT_TAG`].

use model::Observation;

/// First byte of a stored document.
pub(crate) const DOCUMENT_TAG: u8 = 0;

/// Content of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// The last observation of a file.
    Observation(Box<Observation>),
    /// A document as it was put, ready to be sent.
    Document(Vec<u8>),
    /// The item was deleted, and the delete is to be sent.
    Gone,
}

impl Body {
    /// Returns the observation, if the item holds one.
    pub fn observation(&self) -> Option<&Observation> {
        match self {
            Self::Observation(observation) => Some(observation),
            _ => None,
        }
    }

    /// Returns true if a delete is to be sent.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone)
    }

    /// Returns true if stored bytes can be decoded. In the dataset of files they must be an
    /// observation.
    pub(crate) fn is_sound(bytes: &[u8], files: bool) -> bool {
        (!files && bytes.first() == Some(&DOCUMENT_TAG)) || Observation::decode(bytes).is_some()
    }

    /// Decodes stored bytes; `None` if they are neither an observation nor a document.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (&DOCUMENT_TAG, document) => Some(Self::Document(document.to_vec())),
            _ => Observation::decode(bytes).map(|o| Self::Observation(Box::new(o))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Kind;

    #[test]
    fn first_byte_distinguishes_observation_from_document() {
        let observation = Observation::empty(Kind::File);
        let mut bytes = Vec::new();
        observation.encode(&mut bytes);
        assert_eq!(Body::decode(&bytes), Some(Body::Observation(Box::new(observation))));
        assert_eq!(Body::decode(b"\0{}"), Some(Body::Document(b"{}".to_vec())));
        assert_eq!(Body::decode(b""), None);
        assert_eq!(Body::decode(b"\xff"), None);
    }
}
