//! Tokens: ES256 JWT, issued at login and verified without a database query. Verified signatures
//! are cached; expiry, revocation and the user are checked on every request, so revoking a token
//! takes effect at once, and a second process needs only the keys to verify tokens.

use std::sync::Arc;

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use moka::sync::Cache;
use parking_lot::RwLock;
use registry::{Clearance, Grants, Registry, SecurityConfig, TokenKeys};
use serde::{Deserialize, Serialize};

use crate::error::Failure;
use crate::limits::{SESSION_SECONDS_MAX, TOKENS_CACHED_MAX};

/// `iss` of every token.
const ISSUER: &str = "holdfast";
/// `aud` of every token.
const AUDIENCE: &str = "Holdfast API REST";
/// Longest token that is parsed, bytes.
const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// The claims of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    iss: String,
    aud: String,
    /// Time of issue, seconds since the epoch.
    pub nbf: i64,
    /// Time of expiry, seconds since the epoch.
    pub exp: i64,
    /// The user's name.
    pub sub: String,
    /// The user's id.
    pub uid: u32,
    /// True if made with an authorization context.
    pub run_as: bool,
    /// The user's roles, or those that the authorization context gives.
    pub rbac_roles: Vec<u32>,
    /// The RBAC mode: the decision when no policy matches.
    pub rbac_mode: String,
    /// Digest of the authorization context, for a token issued with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_auth_context: Option<String>,
    /// Time of the login from which this token was renewed, seconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<i64>,
}

/// The user and the times of a new token.
pub struct Bearer {
    pub id: u32,
    pub name: String,
    pub roles: Vec<u32>,
    /// Digest of the authorization context, for a login with one.
    pub context: Option<String>,
    /// `nbf` of the new token, seconds since the epoch.
    pub nbf_s: i64,
    /// Time of the login from which the token is renewed, seconds since the epoch.
    pub since_s: Option<i64>,
}

/// The token keys could not be used.
#[derive(Debug, thiserror::Error)]
#[error("token keys: {0}")]
pub struct TokenKeyError(#[from] jsonwebtoken::errors::Error);

struct Keys {
    generation: u64,
    encoding: EncodingKey,
    decoding: DecodingKey,
}

impl Keys {
    fn new(keys: &TokenKeys, generation: u64) -> Result<Self, TokenKeyError> {
        Ok(Self {
            generation,
            encoding: EncodingKey::from_ec_pem(keys.private_pem.as_bytes())?,
            decoding: DecodingKey::from_ec_pem(keys.public_pem.as_bytes())?,
        })
    }
}

/// The issuer and verifier of tokens.
pub struct Tokens {
    keys: RwLock<Arc<Keys>>,
    validation: Validation,
    /// Verified tokens, with the generation of the keys that verified them.
    verified: Cache<String, (u64, Arc<Claims>)>,
}

impl Tokens {
    /// Creates the issuer for one generation of keys.
    pub fn new(keys: &TokenKeys, generation: u64) -> Result<Self, TokenKeyError> {
        let keys = Keys::new(keys, generation)?;
        let mut validation = Validation::new(Algorithm::ES256);
        validation.set_audience(&[AUDIENCE]);
        validation.set_issuer(&[ISSUER]);
        validation.set_required_spec_claims(&["exp", "nbf", "iss", "aud", "sub"]);
        // Expiry is checked on every request against the guarded clock, not only when the token is
        // decoded.
        validation.validate_exp = false;
        validation.validate_nbf = false;
        let verified = Cache::new(TOKENS_CACHED_MAX);
        Ok(Self { keys: RwLock::new(Arc::new(keys)), validation, verified })
    }

    /// Returns the registry's current keys, and replaces the cached ones if their generation
    /// changed. Accesses memory only.
    fn keys(&self, registry: &Registry) -> Result<Arc<Keys>, Failure> {
        let generation = registry.token_keys_generation();
        let keys = Arc::clone(&self.keys.read());
        if keys.generation == generation {
            return Ok(keys);
        }
        let pems = registry.token_keys().map_err(|e| Failure::internal(&e))?;
        let keys = Arc::new(Keys::new(&pems, generation).map_err(|e| Failure::internal(&e))?);
        *self.keys.write() = Arc::clone(&keys);
        Ok(keys)
    }

    /// Issues a token for a user whose credentials have just been verified.
    pub fn issue(
        &self,
        registry: &Registry,
        config: SecurityConfig,
        bearer: Bearer,
    ) -> Result<String, Failure> {
        let ttl_s = i64::try_from(config.token_ttl_s).unwrap_or(i64::MAX);
        let claims = Claims {
            iss: ISSUER.into(),
            aud: AUDIENCE.into(),
            nbf: bearer.nbf_s,
            exp: bearer.nbf_s.saturating_add(ttl_s),
            sub: bearer.name,
            uid: bearer.id,
            run_as: bearer.context.is_some(),
            rbac_roles: bearer.roles,
            rbac_mode: config.mode.name().into(),
            hash_auth_context: bearer.context,
            since: bearer.since_s,
        };
        let keys = self.keys(registry)?;
        jsonwebtoken::encode(&Header::new(Algorithm::ES256), &claims, &keys.encoding)
            .map_err(|e| Failure::internal(&e))
    }

    /// Returns the claims of a token if its signature is valid and it is neither expired nor
    /// revoked. Records its time of issue in the registry, so that later revocations cover it even
    /// if the clock is put back. Accesses memory only. The caller must then call
    /// [`current_grants`], which checks whether the user has changed since.
    pub fn verify(
        &self,
        registry: &Registry,
        token: &str,
        now_s: i64,
    ) -> Result<Arc<Claims>, Failure> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(invalid());
        }
        let keys = self.keys(registry)?;
        let claims = match self.verified.get(token) {
            Some((generation, claims)) if generation == keys.generation => claims,
            _ => {
                let read = jsonwebtoken::decode::<Claims>(token, &keys.decoding, &self.validation);
                let claims = Arc::new(read.map_err(|_| invalid())?.claims);
                self.verified.insert(token.to_owned(), (keys.generation, Arc::clone(&claims)));
                claims
            }
        };
        if now_s >= claims.exp {
            return Err(expired());
        }
        if !registry.token_seen(claims.nbf) {
            return Err(invalid());
        }
        if registry.token_revoked(claims.uid, &claims.rbac_roles, claims.run_as, claims.nbf) {
            return Err(invalid());
        }
        Ok(claims)
    }
}

/// Returns the permissions of a token's roles. Fails if the user or the security configuration has
/// changed since the token was issued.
pub fn current_grants(
    claims: &Claims,
    clearance: Option<&Clearance>,
) -> Result<Arc<Grants>, Failure> {
    let clearance =
        clearance.filter(|clearance| clearance.account.name == claims.sub).ok_or_else(invalid)?;
    let (account, config) = (&clearance.account, clearance.config);
    let fits =
        if claims.run_as { account.allow_run_as } else { account.roles == claims.rbac_roles };
    if !fits {
        return Err(invalid());
    }
    let ttl_s = claims.exp.saturating_sub(claims.nbf);
    if u64::try_from(ttl_s) != Ok(config.token_ttl_s) || claims.rbac_mode != config.mode.name() {
        return Err(expired());
    }
    Ok(Arc::clone(&clearance.grants))
}

/// Returns the time of the login behind a renewable token; fails if that is too long ago.
pub fn renewable_since(claims: &Claims, now_s: i64) -> Result<i64, Failure> {
    let since_s = claims.since.unwrap_or(claims.nbf);
    if now_s.saturating_sub(since_s) > SESSION_SECONDS_MAX {
        return Err(expired());
    }
    Ok(since_s)
}

/// Returns the failure for a token that is malformed, forged or revoked.
pub fn invalid() -> Failure {
    Failure::unauthorized("Invalid token")
}

fn expired() -> Failure {
    Failure::unauthorized("Token expired")
}
