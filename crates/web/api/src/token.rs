//! Tokens: ES256 JWT, made at login, verified without a database. A verified signature is
//! remembered; expiry and revocation are looked at on every request, so a revoked token dies at
//! once.

use std::sync::Arc;

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use moka::sync::Cache;
use registry::{Registry, TokenKeys, User};
use serde::{Deserialize, Serialize};

use crate::error::Failure;
use crate::limits::TOKENS_CACHED_MAX;

/// `iss` of every token.
const ISSUER: &str = "holdfast";
/// `aud` of every token.
const AUDIENCE: &str = "Holdfast API REST";
/// Longest token that is looked at, bytes.
const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// How far a token's begin may lie ahead, seconds: see [`Tokens::issue`].
const AHEAD_SECONDS_MAX: i64 = 1;

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claims {
    iss: String,
    aud: String,
    /// Issued at, seconds since the epoch.
    pub(crate) nbf: i64,
    /// Ends at, seconds since the epoch.
    pub(crate) exp: i64,
    /// The user's name.
    pub(crate) sub: String,
    /// The user's id.
    pub(crate) uid: u32,
    /// Whether made with an authorization context.
    pub(crate) run_as: bool,
    /// The user's roles.
    pub(crate) rbac_roles: Vec<u32>,
    /// `white`: nothing is permitted unless allowed.
    rbac_mode: String,
}

/// The token keys could not be used.
#[derive(Debug, thiserror::Error)]
#[error("token keys: {0}")]
pub struct TokenKeyError(#[from] jsonwebtoken::errors::Error);

/// Makes and verifies tokens.
pub(crate) struct Tokens {
    encoding: EncodingKey,
    decoding: DecodingKey,
    validation: Validation,
    ttl_s: i64,
    verified: Cache<String, Arc<Claims>>,
}

impl Tokens {
    pub(crate) fn new(keys: &TokenKeys, ttl_s: u64) -> Result<Self, TokenKeyError> {
        let mut validation = Validation::new(Algorithm::ES256);
        validation.set_audience(&[AUDIENCE]);
        validation.set_issuer(&[ISSUER]);
        validation.set_required_spec_claims(&["exp", "nbf", "iss", "aud", "sub"]);
        // Both are checked on every request against this server's clock, not once.
        validation.validate_exp = false;
        validation.validate_nbf = false;
        Ok(Self {
            encoding: EncodingKey::from_ec_pem(keys.private_pem.as_bytes())?,
            decoding: DecodingKey::from_ec_pem(keys.public_pem.as_bytes())?,
            validation,
            ttl_s: i64::try_from(ttl_s).unwrap_or(i64::MAX / 2),
            verified: Cache::new(TOKENS_CACHED_MAX),
        })
    }

    /// A token for a user who has just logged in. Revocations speak in whole seconds: who logs in
    /// within the second of their own logout gets a token that begins with the next one.
    pub(crate) fn issue(
        &self,
        registry: &Registry,
        user: &User,
        now_s: i64,
    ) -> Result<String, Failure> {
        let rbac_roles = user.role_ids();
        let revoked = registry.token_revoked(user.id, &rbac_roles, false, now_s);
        let nbf = now_s + i64::from(revoked);
        let claims = Claims {
            iss: ISSUER.into(),
            aud: AUDIENCE.into(),
            nbf,
            exp: nbf + self.ttl_s,
            sub: user.name.clone(),
            uid: user.id,
            run_as: false,
            rbac_roles,
            rbac_mode: "white".into(),
        };
        jsonwebtoken::encode(&Header::new(Algorithm::ES256), &claims, &self.encoding)
            .map_err(|e| Failure::internal(&e))
    }

    /// What a token says, if it is ours, in its time and not revoked. Memory only.
    pub(crate) fn verify(
        &self,
        registry: &Registry,
        token: &str,
        now_s: i64,
    ) -> Result<Arc<Claims>, Failure> {
        let invalid = || Failure::unauthorized("Invalid token");
        if token.len() > TOKEN_BYTES_MAX {
            return Err(invalid());
        }
        let claims = if let Some(claims) = self.verified.get(token) {
            claims
        } else {
            let data = jsonwebtoken::decode::<Claims>(token, &self.decoding, &self.validation)
                .map_err(|_| invalid())?;
            let claims = Arc::new(data.claims);
            self.verified.insert(token.to_owned(), Arc::clone(&claims));
            claims
        };
        if now_s >= claims.exp {
            return Err(Failure::unauthorized("Token expired"));
        }
        let ahead = claims.nbf > now_s + AHEAD_SECONDS_MAX;
        if ahead
            || registry.token_revoked(claims.uid, &claims.rbac_roles, claims.run_as, claims.nbf)
        {
            return Err(invalid());
        }
        Ok(claims)
    }
}
