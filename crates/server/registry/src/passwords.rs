//! The password rule, and generated passwords.

use env::random::Random;

use crate::limits::{PASSWORD_CHARS_MAX, PASSWORD_CHARS_MIN, PASSWORD_MADE_CHARS};
use crate::{PasswordError, RegistryError};

/// Characters of generated passwords, without those that a shell or a reader may misread.
const ALPHABET: &[u8; 64] = b"abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789-_.+=:@%";

/// Checks that a password has 8 to 64 characters and at least one lower-case letter, upper-case
/// letter, digit and symbol.
pub(crate) fn check(password: &str) -> Result<(), PasswordError> {
    let has = |kind: fn(char) -> bool| password.chars().any(kind);
    let fine = length_fits(password)
        && has(char::is_lowercase)
        && has(char::is_uppercase)
        && has(char::is_numeric)
        && has(|c| !c.is_alphanumeric());
    fine.then_some(()).ok_or(PasswordError)
}

/// Returns true if the length of a password satisfies the rule.
pub(crate) fn length_fits(password: &str) -> bool {
    (PASSWORD_CHARS_MIN..=PASSWORD_CHARS_MAX).contains(&password.chars().count())
}

/// Generates a random password that satisfies the rule: 24 characters with 6 random bits each.
pub(crate) fn make(random: &dyn Random) -> Result<String, RegistryError> {
    loop {
        let mut bytes = [0; PASSWORD_MADE_CHARS];
        random.fill_bytes(&mut bytes)?;
        let password: String = bytes
            .iter()
            .filter_map(|b| ALPHABET.get(usize::from(b & 63)))
            .map(|b| char::from(*b))
            .collect();
        if check(&password).is_ok() {
            return Ok(password);
        }
    }
}

#[cfg(test)]
mod tests {
    use env::random::SeededRandom;

    use super::*;

    #[test]
    fn password_rule_requires_every_character_class() {
        assert!(check("aB3-efgh").is_ok());
        for bad in ["aB3-efg", "AB3-EFGH", "ab3-efgh", "aBc-efgh", "aB3defgh"] {
            assert!(check(bad).is_err(), "{bad}");
        }
        assert!(check(&"aB3-".repeat(16)).is_ok());
        assert!(check(&"aB3-".repeat(17)).is_err());
    }

    #[test]
    fn generated_password_satisfies_the_rule_and_is_random() {
        let random = SeededRandom::new(1);
        let made: Vec<_> = (0..50).map(|_| make(&random).unwrap()).collect();
        assert!(made.iter().all(|p| check(p).is_ok() && p.len() >= 20));
        assert!(made.windows(2).all(|w| w[0] != w[1]));
    }
}
