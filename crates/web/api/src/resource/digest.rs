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
        assert_eq!(super::hex("md5", b""), "d41d8cd98f00b204e9800998ecf8427e");
        assert!(super::hex("sha256", b"").starts_with("e3b0c44298fc1c14"));
        assert_eq!(super::hex("sha512", b"").len(), 128);
        assert!(super::hex("blake2b", b"").starts_with("786a02f742015903"));
        assert!(super::hex("blake2s", b"").starts_with("69217a3079908094"));
        assert!(super::hex("sha3_224", b"").starts_with("6b4e03423667dbb7"));
        assert!(super::hex("sha3_256", b"").starts_with("a7ffc6f8bf1ed766"));
        assert!(super::hex("sha3_384", b"").starts_with("0c63a75b845e4f7d"));
        assert!(super::hex("sha3_512", b"").starts_with("a69f73cca23a9ac5"));
    }

    #[test]
    fn digest_names_select_distinct_algorithms() {
        let all: std::collections::HashSet<String> =
            super::NAMES.iter().map(|name| super::hex(name, b"x")).collect();
        assert_eq!(all.len(), super::NAMES.len());
    }
}
