//! Logging in and out, and one's own account.

use std::sync::Arc;

use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use registry::{LoginError, RevocationTarget, User};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::call::{Call, Caller, Source};
use crate::envelope::{Answer, List, to_value};
use crate::error::Failure;
use crate::operation::{
    Access, Answering, COMMON, Handler, Kind, Operation, Parameter, Shape, Verb, query,
};

const RAW: &[Parameter] =
    &[query("raw", Kind::Flag, "Answer the bare token as text instead of the envelope.")];

pub(super) const OPERATIONS: &[Operation] = &[
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
        about: "Deprecated: as POST.",
        access: Access::Login,
        parameters: &[RAW],
        body: None,
        shape: Shape::Plain("TokenData"),
        handler: Handler::Waiting(login),
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
        verb: Verb::Get,
        path: "/security/users/me",
        id: "security.me",
        about: "The logged in user.",
        access: Access::User,
        parameters: &[COMMON],
        body: None,
        shape: Shape::List("UserItem"),
        handler: Handler::Blocking(me),
    },
    Operation {
        verb: Verb::Put,
        path: "/security/users/me/password",
        id: "security.own_password",
        about: "Change one's own password; logs out everywhere.",
        access: Access::User,
        parameters: &[COMMON],
        body: Some("PasswordChange"),
        shape: Shape::Message,
        handler: Handler::Waiting(own_password),
    },
];

/// What a login gives.
#[derive(Serialize, ToSchema)]
pub(crate) struct TokenData {
    /// For `Authorization: Bearer`.
    token: String,
}

/// A user.
#[derive(Serialize, ToSchema)]
pub(crate) struct UserItem {
    id: u32,
    username: String,
    allow_run_as: bool,
    roles: Vec<RoleItem>,
}

/// A role.
#[derive(Serialize, ToSchema)]
pub(crate) struct RoleItem {
    id: u32,
    name: String,
}

impl From<User> for UserItem {
    fn from(user: User) -> Self {
        Self {
            id: user.id,
            username: user.name,
            allow_run_as: user.allow_run_as,
            roles: user.roles.into_iter().map(|r| RoleItem { id: r.id, name: r.name }).collect(),
        }
    }
}

/// Old and new password.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PasswordChange {
    /// The one that is valid now.
    current_password: String,
    /// The one to be valid from now on.
    password: String,
}

fn login(call: Arc<Call>) -> Answering {
    Box::pin(async move {
        let (name, password) = basic(call.authorization.as_deref())?;
        let source = call.source.and_then(Source::ip);
        let user = check(&call, &name, &password, source).await?;
        let token = call.api.tokens.issue(&call.api.registry, &user, call.now_s())?;
        if call.parameters.flag("raw") {
            let body = token.into_bytes();
            return Ok(Answer::Raw { status: StatusCode::OK, content_type: "text/plain", body });
        }
        Answer::data(&TokenData { token })
    })
}

async fn check(
    call: &Call,
    name: &str,
    password: &str,
    source: Option<std::net::IpAddr>,
) -> Result<User, Failure> {
    match call.registry().login(name, password, source).await {
        Ok(user) => Ok(user),
        Err(LoginError::Invalid) => Err(Failure::unauthorized("Invalid credentials")),
        Err(LoginError::Blocked { retry_after_s }) => {
            let mut failure = Failure::code(6000);
            failure.retry_after_s = Some(retry_after_s);
            Err(failure)
        }
        Err(LoginError::Busy { retry_after_s }) => {
            Err(Failure::busy("too many logins at once", retry_after_s))
        }
        Err(LoginError::Registry(error)) => Err(error.into()),
        Err(other) => Err(Failure::internal(&other)),
    }
}

/// Name and password of HTTP Basic.
fn basic(header: Option<&str>) -> Result<(String, String), Failure> {
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

fn logout(call: &Call) -> Result<Answer, Failure> {
    let Caller::User { id, name, .. } = &call.caller else {
        return Err(no_account());
    };
    call.registry().revoke_tokens(RevocationTarget::User(*id))?;
    Ok(Answer::Message(format!("User {name} was successfully logged out")))
}

fn me(call: &Call) -> Result<Answer, Failure> {
    let Caller::User { name, .. } = &call.caller else {
        return Err(no_account());
    };
    let messages = ["Information about current user was returned", "", ""];
    let Some(user) = call.registry().user(name)? else {
        return Err(Failure::unauthorized("Invalid token"));
    };
    Ok(Answer::List(List::new(vec![to_value(&UserItem::from(user))?], 1, messages)))
}

fn own_password(call: Arc<Call>) -> Answering {
    Box::pin(async move {
        let Caller::User { name, .. } = call.caller.clone() else {
            return Err(no_account());
        };
        let change: PasswordChange = call.json()?;
        let source = call.source.and_then(Source::ip);
        let checked = check(&call, &name, &change.current_password, source).await;
        checked.map_err(|failure| match failure.status {
            StatusCode::UNAUTHORIZED => {
                Failure::plain(StatusCode::FORBIDDEN, "the current password is wrong")
            }
            _ => failure,
        })?;
        let work = move || -> Result<(), Failure> {
            Ok(call.registry().set_password(&name, &change.password)?)
        };
        tokio::task::spawn_blocking(work).await.map_err(|e| Failure::internal(&e))??;
        Ok(Answer::Message("Password was changed; log in again".into()))
    })
}

fn no_account() -> Failure {
    Failure::bad("a caller of the unix socket has no account of its own")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_credentials_may_hold_colons_and_any_text() {
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
