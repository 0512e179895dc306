//! Digests of configuration files by the algorithm names of the 4.x API.

use md5::Digest as _;
use std::fmt::Write as _;

pub(crate) const NAMES: &[&str] = &[
    "md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2b", "blake2s", "sha3_224",
    "sha3_256", "sha3_384", "sha3_512",
];

/// Returns the digest in lower-case hex; MD5 for an unknown name.
pub(crate) fn hex(name: &str, bytes: &[u8]) -> String {
    let digest: Vec<u8> = match name {
        "sha1" => sha1::Sha1::digest(bytes).to_vec(),
        "sha224" => sha2::Sha224::digest(bytes).to_vec(),
        "sha256" => sha2::Sha256::digest(bytes).to_vec(),
        "sha384" => sha2::Sha384::digest(bytes).to_vec(),
        "sha512" => sha2::Sha512::digest(bytes).to_vec(),
        "blake2b" => blake2::Blake2b512::digest(bytes).to_vec(),
        "blake2s" => blake2::Blake2s256::digest(bytes).to_vec(),
        "sha3_224" => sha3::Sha3_224::digest(bytes).to_vec(),
        "sha3_256" => sha3::Sha3_256::digest(bytes).to_vec(),
        "sha3_384" => sha3::Sha3_384::digest(bytes).to_vec(),
        "sha3_512" => sha3::Sha3_512::digest(bytes).to_vec(),
        _ => md5::Md5::digest(bytes).to_vec(),
    };
    digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn digests_of_empty_input_match_known_values() {
        let known = "md5 d41d8cd9 sha1 da39a3ee sha224 d14a028c sha256 e3b0c442 sha384 38b060a7 \
            sha512 cf83e135 blake2b 786a02f7 blake2s 69217a30 sha3_224 6b4e0342 sha3_256 a7ffc6f8 \
            sha3_384 0c63a75b sha3_512 a69f73cc";
        let words: Vec<_> = known.split_whitespace().collect();
        assert_eq!(words.len(), 2 * super::NAMES.len());
        for pair in words.chunks(2) {
            assert!(super::hex(pair[0], b"").starts_with(pair[1]), "{pair:?}");
        }
    }
}
