//! Computes several digests in one pass over the content.

use md5::Md5;
use model::Hashes;
use serde::{Deserialize, Serialize};
use sha1::{Digest as _, Sha1};

/// A digest of the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Algorithm {
    /// SHA-256, the default.
    Sha256,
    /// SHA-1, for compatibility.
    Sha1,
    /// MD5, for compatibility.
    Md5,
    /// BLAKE3.
    Blake3,
}

/// Returns the SHA-256 of the bytes.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let mut out = [0; 32];
    out.copy_from_slice(digest.as_ref());
    out
}

/// The digests of one file while it is read.
pub(crate) struct Digester {
    sha256: Option<ring::digest::Context>,
    sha1: Option<Sha1>,
    md5: Option<Md5>,
    blake3: Option<Box<blake3::Hasher>>,
}

impl Digester {
    pub(crate) fn new(algorithms: &[Algorithm]) -> Self {
        let wants = |a| algorithms.contains(&a);
        Self {
            sha256: wants(Algorithm::Sha256)
                .then(|| ring::digest::Context::new(&ring::digest::SHA256)),
            sha1: wants(Algorithm::Sha1).then(Sha1::new),
            md5: wants(Algorithm::Md5).then(Md5::new),
            blake3: wants(Algorithm::Blake3).then(Box::default),
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        if let Some(sha256) = &mut self.sha256 {
            sha256.update(bytes);
        }
        if let Some(sha1) = &mut self.sha1 {
            sha1.update(bytes);
        }
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
        if let Some(blake3) = &mut self.blake3 {
            blake3.update(bytes);
        }
    }

    pub(crate) fn finish(self) -> Hashes {
        Hashes {
            sha256: self.sha256.map(|c| {
                let mut out = [0; 32];
                out.copy_from_slice(c.finish().as_ref());
                out
            }),
            sha1: self.sha1.map(|h| h.finalize().into()),
            md5: self.md5.map(|h| h.finalize().into()),
            blake3: self.blake3.map(|h| *h.finalize().as_bytes()),
        }
    }
}

/// Returns true if a wanted digest is missing.
pub fn lacks_digest(hashes: &Hashes, wanted: &[Algorithm]) -> bool {
    wanted.iter().any(|a| match a {
        Algorithm::Sha256 => hashes.sha256.is_none(),
        Algorithm::Sha1 => hashes.sha1.is_none(),
        Algorithm::Md5 => hashes.md5.is_none(),
        Algorithm::Blake3 => hashes.blake3.is_none(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_match_published_test_vectors() {
        let all = [Algorithm::Sha256, Algorithm::Sha1, Algorithm::Md5, Algorithm::Blake3];
        let mut d = Digester::new(&all);
        d.update(b"a");
        d.update(b"bc");
        let h = d.finish();
        let head = |b: &[u8]| u64::from_be_bytes(b[..8].try_into().unwrap());
        assert_eq!(head(&h.sha256.unwrap()), 0xba78_16bf_8f01_cfea);
        assert_eq!(head(&h.sha1.unwrap()), 0xa999_3e36_4706_816a);
        assert_eq!(head(&h.md5.unwrap()), 0x9001_5098_3cd2_4fb0);
        assert_eq!(head(&h.blake3.unwrap()), 0x6437_b3ac_3846_5133);
        assert_eq!(h.sha256.unwrap(), sha256(b"abc"));
        assert!(!lacks_digest(&h, &all));
        assert!(lacks_digest(&Hashes::default(), &all[..1]));
    }
}
