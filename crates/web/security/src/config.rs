//! The security configuration: lifetime of tokens and the RBAC mode.

use registry::RbacMode;
use registry::limits::TOKEN_TTL_SECONDS_MAX;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::Answer;
use rest::http::operation::{COMMON, Handler, Operation, Shape, Verb, action};

/// Shortest lifetime of a token, seconds.
const TOKEN_TTL_SECONDS_MIN: u64 = 30;

pub const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/security/config",
        id: "security.config",
        about: "Lifetime of tokens, and the mode.",
        access: action("security:read_config", "*:*"),
        parameters: &[COMMON],
        body: None,
        shape: Shape::Plain("ConfigData"),
        handler: Handler::Blocking(get),
    },
    Operation {
        verb: Verb::Put,
        path: "/security/config",
        id: "security.config_update",
        about: "Change the lifetime of tokens or the mode; every earlier token is refused.",
        access: action("security:update_config", "*:*"),
        parameters: &[COMMON],
        body: Some("ConfigChange"),
        shape: Shape::Message,
        handler: Handler::Blocking(set_config),
    },
    Operation {
        verb: Verb::Delete,
        path: "/security/config",
        id: "security.config_delete",
        about: "Restore the defaults; every earlier token is refused.",
        access: action("security:update_config", "*:*"),
        parameters: &[COMMON],
        body: None,
        shape: Shape::Message,
        handler: Handler::Blocking(delete),
    },
];

/// Lifetime of tokens, and the mode.
#[derive(Serialize, ToSchema)]
pub struct ConfigData {
    /// Seconds.
    auth_token_exp_timeout: u64,
    /// `white`: nothing is permitted unless allowed; `black`: everything unless denied.
    rbac_mode: &'static str,
}

/// Changes of the security configuration.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigChange {
    /// Seconds, at least 30.
    #[schema(minimum = 30, maximum = 31_536_000)]
    auth_token_exp_timeout: Option<u64>,
    /// `white` or `black`.
    rbac_mode: Option<String>,
}

const CHANGED: &str = "Configuration was successfully updated";

fn get(call: &Call) -> Result<Answer, Failure> {
    let config = call.registry().security_config(call.reader())?;
    Answer::data(&ConfigData {
        auth_token_exp_timeout: config.token_ttl_s,
        rbac_mode: config.mode.name(),
    })
}

fn set_config(call: &Call) -> Result<Answer, Failure> {
    let change: ConfigChange = call.json()?;
    let token_ttl_s = change.auth_token_exp_timeout.unwrap_or(TOKEN_TTL_SECONDS_MIN);
    if token_ttl_s < TOKEN_TTL_SECONDS_MIN {
        return Err(Failure::bad(format!(
            "{token_ttl_s} is less than the minimum of {TOKEN_TTL_SECONDS_MIN} - \
             'auth_token_exp_timeout'"
        )));
    }
    if token_ttl_s > TOKEN_TTL_SECONDS_MAX {
        return Err(Failure::bad(format!(
            "{token_ttl_s} is greater than the maximum of {TOKEN_TTL_SECONDS_MAX} - \
             'auth_token_exp_timeout'"
        )));
    }
    let mode = match change.rbac_mode.as_deref() {
        None => None,
        Some(word) => Some(RbacMode::from_name(word).ok_or_else(|| {
            Failure::bad(format!("'{word:.20}' is not one of ['white', 'black'] - 'rbac_mode'"))
        })?),
    };
    call.registry().change_security_config(&call.context, change.auth_token_exp_timeout, mode)?;
    Ok(Answer::Message(CHANGED.into()))
}

fn delete(call: &Call) -> Result<Answer, Failure> {
    call.registry().set_security_config(&call.context, None)?;
    Ok(Answer::Message(CHANGED.into()))
}
