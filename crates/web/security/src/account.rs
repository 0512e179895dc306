//! The caller's own account.

use std::sync::Arc;

use axum::http::StatusCode;
use listener::Source;
use registry::{Policy, RegistryError, SecurityChange};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::policies::PolicyBody;
use super::{credentials, no_account, policies, rules};
use rest::access::caller::Caller;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, List, to_value};
use rest::http::operation::{
    Access, COMMON, COMMON_PRETTY, Handler, Operation, OperationFuture, Shape, Verb,
};

pub const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/security/users/me",
        id: "security.me",
        about: "The logged in user with roles, policies and rules.",
        access: Access::User,
        parameters: &[COMMON],
        body: None,
        shape: Shape::List("MeItem"),
        handler: Handler::Blocking(me),
    },
    Operation {
        verb: Verb::Get,
        path: "/security/users/me/policies",
        id: "security.me_policies",
        about: "Permissions of the logged in user: effects by action and resource.",
        access: Access::User,
        parameters: &[COMMON_PRETTY],
        body: None,
        shape: Shape::Plain("MyGrants"),
        handler: Handler::Blocking(my_policies),
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

/// The logged in user.
#[derive(Serialize, ToSchema)]
pub struct MeItem {
    id: u32,
    username: String,
    allow_run_as: bool,
    /// The token's roles in their order.
    roles: Vec<MyRole>,
}

/// A role with its policies.
#[derive(Serialize, ToSchema)]
pub struct MyRole {
    id: u32,
    name: String,
    policies: Vec<MyPolicy>,
    rules: Vec<MyRule>,
}

/// A policy.
#[derive(Serialize, ToSchema)]
pub struct MyPolicy {
    id: u32,
    name: String,
    policy: PolicyBody,
}

/// A rule.
#[derive(Serialize, ToSchema)]
pub struct MyRule {
    id: u32,
    name: String,
    #[schema(value_type = Object)]
    rule: Value,
}

/// Effects by action and resource, and `rbac_mode`.
#[derive(Serialize, ToSchema)]
#[schema(value_type = Object)]
pub struct MyGrants(Map<String, Value>);

/// Old and new password.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PasswordChange {
    /// The present password.
    current_password: String,
    /// The new password.
    password: String,
}

fn me(call: &Call) -> Result<Answer, Failure> {
    let Caller::User { id, claims, .. } = &call.caller else {
        return Err(no_account());
    };
    let image = call.registry().security(call.reader())?;
    let Some(user) = image.users.into_iter().find(|user| user.id == *id) else {
        return Err(Failure::unauthorized("Invalid token"));
    };
    let policy = |id: &u32| {
        let row = image.policies.iter().find(|row| row.policy.id == *id)?;
        let policy = policies::body(&row.policy);
        Some(MyPolicy { id: *id, name: row.policy.name.clone(), policy })
    };
    let rule = |id: &u32| {
        let row = image.rules.iter().find(|row| row.id == *id)?;
        Some(MyRule { id: *id, name: row.name.clone(), rule: rules::body(&row.body) })
    };
    let role = |id: &u32| {
        let role = image.roles.iter().find(|role| role.id == *id)?;
        Some(MyRole {
            id: *id,
            name: role.name.clone(),
            policies: role.policies.iter().filter_map(policy).collect(),
            rules: role.rules.iter().filter_map(rule).collect(),
        })
    };
    let item = MeItem {
        id: user.id,
        username: user.name,
        allow_run_as: user.allow_run_as,
        roles: claims.rbac_roles.iter().filter_map(role).collect(),
    };
    let messages = ["Current user information was returned", "", ""];
    Ok(Answer::List(List::new(vec![to_value(&item)?], 1, messages)))
}

fn my_policies(call: &Call) -> Result<Answer, Failure> {
    let Caller::User { grants, .. } = &call.caller else {
        return Err(no_account());
    };
    let mut data = flattened(grants.policies());
    data.insert("rbac_mode".into(), json!(grants.mode().name()));
    let message = "Current user processed policies information was returned";
    Ok(Answer::Told(to_value(&MyGrants(data))?, message))
}

/// Returns the effects by action and resource: a later policy overrides an earlier one, and one with a
/// wildcard overrides all earlier ones of its type.
fn flattened(policies: &[Policy]) -> Map<String, Value> {
    let mut actions: Map<String, Value> = Map::new();
    for policy in policies {
        let effect = if policy.allow { "allow" } else { "deny" };
        for action in &policy.actions {
            let entry = actions.entry(action.clone()).or_insert_with(|| json!({}));
            let Some(resources) = entry.as_object_mut() else { continue };
            for resource in &policy.resources {
                override_with(resources, resource, effect);
            }
        }
    }
    actions
}

fn override_with(resources: &mut Map<String, Value>, resource: &str, effect: &str) {
    if let Some(kind) = resource.strip_suffix('*').filter(|_| !resource.contains('&')) {
        let groups_too = kind == "agent:id:";
        let overridden =
            |own: &str| own.starts_with(kind) || (groups_too && own.starts_with("agent:group:"));
        resources.retain(|own, _| !overridden(own));
    }
    resources.insert(resource.to_owned(), json!(effect));
}

fn own_password(call: Arc<Call>) -> OperationFuture {
    Box::pin(async move {
        let Caller::User { id, name, .. } = call.caller.clone() else {
            return Err(no_account());
        };
        let change: PasswordChange = call.json()?;
        let source = call.source.and_then(Source::ip);
        let checked = credentials::check(&call, &name, &change.current_password, source).await;
        checked.map_err(|failure| match failure.status {
            StatusCode::UNAUTHORIZED => {
                Failure::plain(StatusCode::FORBIDDEN, "the current password is wrong")
            }
            _ => failure,
        })?;
        let set = move |call: &Call| {
            let hash = call.registry().hash_of_new(&change.password)?;
            let set = call
                .registry()
                .change_security(&call.context, SecurityChange::SetPassword { user: id, hash });
            // The revocation of older tokens is written once more after the password, so the password may
            // already be changed when this fails.
            if set.as_ref().is_err_and(RegistryError::is_transient) {
                call.effect.set_begun();
            }
            set
        };
        call.blocking(set).await??;
        Ok(Answer::Message("Password was changed; log in again".into()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_policy_overrides_and_a_wildcard_clears_earlier_ones() {
        let policy = |allow, resources: &[&str]| Policy {
            id: 1,
            name: "p".into(),
            actions: vec!["agent:read".into()],
            resources: resources.iter().map(|r| (*r).to_owned()).collect(),
            allow,
        };
        let flat = flattened(&[
            policy(true, &["agent:id:001", "agent:group:web", "group:id:web"]),
            policy(false, &["agent:id:*"]),
            policy(true, &["agent:id:002"]),
        ]);
        assert_eq!(
            flat["agent:read"],
            json!({"group:id:web": "allow", "agent:id:*": "deny", "agent:id:002": "allow"})
        );
    }
}
