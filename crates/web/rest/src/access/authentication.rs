//! Identification of a caller from an `Authorization` header: a token, or a name and a password.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use registry::{Reader, Registry};

use crate::access::caller::Caller;
use crate::access::token::{self, Claims, Tokens};
use crate::error::Failure;

/// Verifies the token of an `Authorization` header and returns its claims. Accesses memory only.
pub fn claims(
    tokens: &Tokens,
    registry: &Registry,
    header: Option<&str>,
    now_s: i64,
) -> Result<Arc<Claims>, Failure> {
    let missing = || Failure::unauthorized("No authorization token provided");
    let (scheme, token) = header.and_then(|text| text.split_once(' ')).ok_or_else(missing)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(missing());
    }
    tokens.verify(registry, token.trim(), now_s)
}

/// Returns the user of a token with the permissions of its roles. Reads memory only if they are
/// cached.
pub fn recognise(
    registry: &Registry,
    reader: &Reader,
    claims: Arc<Claims>,
) -> Result<Caller, Failure> {
    let clearance = registry.clearance(reader, claims.uid, &claims.rbac_roles)?;
    let grants = token::current_grants(&claims, clearance.as_deref())?;
    Ok(Caller::User { id: claims.uid, name: claims.sub.clone(), claims, grants })
}

/// Parses the name and password of HTTP Basic.
pub fn basic(header: Option<&str>) -> Result<(String, String), Failure> {
    let missing = || Failure::unauthorized("No authorization token provided");
    let (scheme, text) = header.and_then(|h| h.split_once(' ')).ok_or_else(missing)?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(missing());
    }
    let invalid = || Failure::unauthorized("Invalid credentials");
    let bytes = STANDARD.decode(text.trim()).map_err(|_| invalid())?;
    let text = String::from_utf8(bytes).map_err(|_| invalid())?;
    let (name, password) = text.split_once(':').ok_or_else(invalid)?;
    Ok((name.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_auth_accepts_colons_and_utf8_in_passwords() {
        let of = |text: &str| basic(Some(&format!("Basic {}", STANDARD.encode(text))));
        assert_eq!(of("admin:a:b").unwrap(), ("admin".into(), "a:b".into()));
        assert_eq!(of("ädmin:ü").unwrap(), ("ädmin".into(), "ü".into()));
        for bad in [None, Some(""), Some("Basic"), Some("Bearer abc")] {
            assert_eq!(basic(bad).unwrap_err().detail, "No authorization token provided");
        }
        for bad in ["Basic !!", "Basic YWRtaW4=", "basic /w=="] {
            assert_eq!(basic(Some(bad)).unwrap_err().detail, "Invalid credentials", "{bad}");
        }
    }
}
