//! Identification of a caller from the token in an `Authorization` header.

use std::sync::Arc;

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
