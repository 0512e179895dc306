//! Logging in and out.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::http::StatusCode;
use blake2::digest::consts::U16;
use blake2::{Blake2b, Digest as _};
use listener::Source;
use registry::{RevocationTarget, User};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::credentials::check;
use super::no_account;
use rest::access::authentication::basic;
use rest::access::caller::Caller;
use rest::access::token::{self, Bearer};
use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::Answer;
use rest::http::operation::{
    Access, Handler, Kind, Operation, OperationFuture, Parameter, Shape, Verb, action, query,
};

const RAW: &[Parameter] =
    &[query("raw", Kind::Flag, "Answer the bare token as text instead of the envelope.")];

pub const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Post,
        path: "/security/user/authenticate",
        id: "security.login",
        about: "Log in with HTTP Basic: a token for all other operations.",
        access: Access::Login,
        parameters: &[RAW],
        body: None,
        shape: Shape::Plain("TokenData"),
        handler: Handler::Waiting(login),
    },
    Operation {
        verb: Verb::Get,
        path: "/security/user/authenticate",
        id: "security.login_get",
        about: "Deprecated; the same as POST.",
        access: Access::Login,
        parameters: &[RAW],
        body: None,
        shape: Shape::Plain("TokenData"),
        handler: Handler::Waiting(login),
    },
    Operation {
        verb: Verb::Post,
        path: "/security/user/authenticate/run_as",
        id: "security.login_run_as",
        about: "Log in with HTTP Basic and an authorization context, which decides the roles.",
        access: Access::Login,
        parameters: &[RAW],
        body: Some("AuthorizationContext"),
        shape: Shape::Plain("TokenData"),
        handler: Handler::Waiting(run_as),
    },
    Operation {
        verb: Verb::Delete,
        path: "/security/user/authenticate",
        id: "security.logout",
        about: "Log out: every token of this user is refused from now on.",
        access: Access::User,
        parameters: &[],
        body: None,
        shape: Shape::Message,
        handler: Handler::Blocking(logout),
    },
    Operation {
        verb: Verb::Post,
        path: "/security/user/renew",
        id: "security.renew",
        about: "A new token for a valid one, for up to 12 hours after the login.",
        access: Access::User,
        parameters: &[RAW],
        body: None,
        shape: Shape::Plain("TokenData"),
        handler: Handler::Blocking(renew),
    },
    Operation {
        verb: Verb::Put,
        path: "/security/user/revoke",
        id: "security.revoke",
        about: "Replace the keys that sign tokens: every token is refused from now on.",
        access: action("security:revoke", "*:*"),
        parameters: &[],
        body: None,
        shape: Shape::Message,
        handler: Handler::Blocking(revoke),
    },
];

/// Result of a login.
#[derive(Serialize, ToSchema)]
pub struct TokenData {
    /// For `Authorization: Bearer`.
    token: String,
}

/// The object that security rules are compared with.
#[derive(Deserialize, ToSchema)]
#[schema(value_type = Object)]
pub struct AuthorizationContext(Map<String, Value>);

fn login(call: Arc<Call>) -> OperationFuture {
    Box::pin(async move {
        let (user, nbf_s) = logged_in(&call).await?;
        let roles = user.role_ids();
        issue_token(
            &call,
            Bearer { id: user.id, name: user.name, roles, context: None, nbf_s, since_s: None },
        )
        .await
    })
}

fn run_as(call: Arc<Call>) -> OperationFuture {
    Box::pin(async move {
        let (user, nbf_s) = logged_in(&call).await?;
        if !user.allow_run_as {
            return Err(Failure::code(Code::RunAsForbidden));
        }
        let context = Value::Object(call.json::<AuthorizationContext>()?.0);
        let digest = hex(&Blake2b::<U16>::digest(context.to_string().as_bytes()));
        let (id, name) = (user.id, user.name);
        let drawn = call
            .blocking(move |call| call.registry().run_as(call.reader(), id, nbf_s, &context))
            .await?;
        let (roles, nbf_s) = drawn?;
        issue_token(&call, Bearer { id, name, roles, context: Some(digest), nbf_s, since_s: None })
            .await
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns a new token in the requested format.
async fn issue_token(call: &Arc<Call>, bearer: Bearer) -> Result<Answer, Failure> {
    let config = call.blocking(|call| call.registry().security_config(call.reader())).await??;
    let token = call.api.tokens.issue(&call.api.registry, config, bearer)?;
    formed(call, token)
}

fn formed(call: &Call, token: String) -> Result<Answer, Failure> {
    if call.parameters.flag("raw") {
        let body = token.into_bytes();
        return Ok(Answer::Raw { status: StatusCode::OK, content_type: "text/plain", body });
    }
    Answer::data(&TokenData { token })
}

/// Verifies the caller's name and password; returns the user with the `nbf` for a new token.
async fn logged_in(call: &Call) -> Result<(User, i64), Failure> {
    let (name, password) = basic(call.authorization.as_deref())?;
    check(call, &name, &password, call.source.and_then(Source::ip)).await
}

fn logout(call: &Call) -> Result<Answer, Failure> {
    let Caller::User { id, name, .. } = &call.caller else {
        return Err(no_account());
    };
    call.registry().revoke_tokens(&call.context, RevocationTarget::User(*id))?;
    // Logging out affects the caller's own tokens only.
    call.effect.set_unchanged();
    Ok(Answer::Message(format!("User {name} was successfully logged out")))
}

fn renew(call: &Call) -> Result<Answer, Failure> {
    let Caller::User { id, name, claims, .. } = &call.caller else {
        return Err(no_account());
    };
    let since_s = Some(token::renewable_since(claims, call.now_s())?);
    let keys = call.api.registry.token_keys_generation();
    // Drawn before the old token is verified again: a revocation before that is seen by the check, and
    // a later one also covers this time of issue.
    let nbf_s = call.registry().renewed_nbf_s(claims.nbf);
    call.caller_now()?;
    let config = call.registry().security_config(call.reader())?;
    let bearer = Bearer {
        id: *id,
        name: name.clone(),
        roles: claims.rbac_roles.clone(),
        context: claims.hash_auth_context.clone(),
        nbf_s,
        since_s,
    };
    let token = call.api.tokens.issue(&call.api.registry, config, bearer)?;
    if call.api.registry.token_keys_generation() != keys {
        return Err(token::invalid());
    }
    formed(call, token)
}

fn revoke(call: &Call) -> Result<Answer, Failure> {
    call.registry().replace_token_keys(&call.context)?;
    Ok(Answer::Message("Tokens were successfully revoked".into()))
}
