//! Users: list, create, change, delete.

use registry::{ControlError, RegistryError, SecurityChange, SecurityImage, User};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    RESERVED_ID_MAX, Sort, USER_ID, deletable, ids_or_all, listed, one, refusal, single, some_ids,
};
use rest::access::caller::Caller;
use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, List, to_value};
use rest::http::listing::Listing;
use rest::http::operation::{
    COMMON, Handler, Kind, LISTED, Operation, PAGING, Shape, Verb, action, query,
};

const SORT: Sort = Sort { kind: "user:id", missing: Code::UserMissing };

pub const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/security/users",
        id: "security.users",
        about: "Users with the numbers of their roles.",
        access: action("security:read", "user:id"),
        parameters: &[&[some_ids("user_ids")], COMMON, PAGING, LISTED],
        body: None,
        shape: Shape::List("UserItem"),
        handler: Handler::Blocking(list),
    },
    Operation {
        verb: Verb::Post,
        path: "/security/users",
        id: "security.user_create",
        about: "Create a user without roles.",
        access: action("security:create_user", "*:*"),
        parameters: &[COMMON],
        body: Some("NewUser"),
        shape: Shape::List("UserItem"),
        handler: Handler::Blocking(create),
    },
    Operation {
        verb: Verb::Delete,
        path: "/security/users",
        id: "security.users_delete",
        about: "Delete users; their tokens are refused from then on.",
        access: action("security:delete", "user:id"),
        parameters: &[&[ids_or_all("user_ids")], COMMON],
        body: None,
        shape: Shape::List("UserItem"),
        handler: Handler::Blocking(delete),
    },
    Operation {
        verb: Verb::Put,
        path: "/security/users/{user_id}",
        id: "security.user_update",
        about: "Set a user's password; its tokens are refused from then on.",
        access: action("security:update", "user:id"),
        parameters: &[&[USER_ID], COMMON],
        body: Some("UserChange"),
        shape: Shape::List("UserItem"),
        handler: Handler::Blocking(update),
    },
    Operation {
        verb: Verb::Put,
        path: "/security/users/{user_id}/run_as",
        id: "security.user_run_as",
        about: "Whether a user may log in with an authorization context.",
        access: action("security:edit_run_as", "*:*"),
        parameters: &[&[USER_ID, query("allow_run_as", Kind::Flag, "Allow it.")], COMMON],
        body: None,
        shape: Shape::List("UserItem"),
        handler: Handler::Blocking(set_run_as),
    },
];

/// A user.
#[derive(Serialize, ToSchema)]
pub struct UserItem {
    id: u32,
    username: String,
    allow_run_as: bool,
    /// Numbers of its roles in their order.
    roles: Vec<u32>,
}

impl From<User> for UserItem {
    fn from(user: User) -> Self {
        let roles = user.role_ids();
        Self { id: user.id, username: user.name, allow_run_as: user.allow_run_as, roles }
    }
}

/// A user to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    /// 4 to 64 characters.
    #[schema(min_length = 4, max_length = 64)]
    username: String,
    /// 8 to 64 characters with a lower-case and an upper-case letter, a digit and a symbol.
    #[schema(min_length = 8, max_length = 64)]
    password: String,
}

/// Changes of a user.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserChange {
    /// 8 to 64 characters with a lower-case and an upper-case letter, a digit and a symbol.
    #[schema(min_length = 8, max_length = 64)]
    password: Option<String>,
}

pub(super) fn items(image: &SecurityImage) -> Result<Vec<(u32, Value)>, Failure> {
    let item = |user: &control::UserRow| {
        let item = UserItem {
            id: user.id,
            username: user.name.clone(),
            allow_run_as: user.allow_run_as,
            roles: user.roles.iter().map(|role| role.id).collect(),
        };
        Ok((user.id, to_value(&item)?))
    };
    image.users.iter().map(item).collect()
}

fn list(call: &Call) -> Result<Answer, Failure> {
    let listing = Listing {
        fields: &["id", "username", "allow_run_as", "roles"],
        always: &["id"],
        messages: [
            "All specified users were returned",
            "Some users were not returned",
            "No users were returned",
        ],
    };
    let items = items(&call.registry().security(call.reader())?)?;
    Ok(Answer::List(listed(call, &SORT, "user_ids", items, &listing)?))
}

fn create(call: &Call) -> Result<Answer, Failure> {
    let new: NewUser = call.json()?;
    let messages = ["User was successfully created", "", "User could not be created"];
    let made = match call.registry().create_user(
        &call.context,
        &new.username,
        &new.password,
        false,
        &[],
    ) {
        Ok(user) => single(Some(to_value(&UserItem::from(user))?), None, messages),
        Err(RegistryError::Store(ControlError::Exists { .. })) => {
            single(None, Some((Code::UserExists, new.username.into())), messages)
        }
        Err(error) => return Err(password_failure(error, &new.password)),
    };
    Ok(Answer::List(made))
}

/// Converts a refused password into a failure; invalid lengths have a code of their own.
fn password_failure(error: RegistryError, password: &str) -> Failure {
    use registry::limits::{PASSWORD_CHARS_MAX, PASSWORD_CHARS_MIN};
    let chars = password.chars().count();
    match error {
        RegistryError::Password(_)
            if !(PASSWORD_CHARS_MIN..=PASSWORD_CHARS_MAX).contains(&chars) =>
        {
            Failure::code(Code::PasswordLength)
        }
        RegistryError::Password(_) => Failure::code(Code::PasswordInvalid),
        other => other.into(),
    }
}

fn update(call: &Call) -> Result<Answer, Failure> {
    let id = one(call, "user_id");
    let change: UserChange = call.json()?;
    let messages = ["User was successfully updated", "", "User could not be updated"];
    let Some(password) = change.password else { return Err(Failure::code(Code::NothingToChange)) };
    let own = matches!(&call.caller, Caller::User { id: own, .. } if *own == id);
    let local = matches!(&call.caller, Caller::Local { .. });
    if id <= RESERVED_ID_MAX && !own && !local {
        return Err(Failure::code(Code::OnlyOwnPassword));
    }
    match call.registry().set_password_of(&call.context, id, &password) {
        Ok(()) => changed(call, id, messages),
        Err(error @ RegistryError::Password(_)) => Err(password_failure(error, &password)),
        Err(error) => {
            let code = refusal(error, SORT.missing, Code::Internal)?;
            Ok(Answer::List(single(None, Some((code, id.into())), messages)))
        }
    }
}

fn changed(call: &Call, id: u32, messages: [&'static str; 3]) -> Result<Answer, Failure> {
    let user = call.registry().user_by_id(call.reader(), id)?;
    let item = user.map(|user| to_value(&UserItem::from(user))).transpose()?;
    Ok(Answer::List(single(item, None, messages)))
}

fn set_run_as(call: &Call) -> Result<Answer, Failure> {
    let (user, allow) = (one(call, "user_id"), call.parameters.flag("allow_run_as"));
    let messages = if allow {
        [
            "Parameter allow_run_as has been enabled for the user",
            "",
            "The parameter allow_run_as could not be enabled for the user",
        ]
    } else {
        [
            "Parameter allow_run_as has been disabled for the user",
            "",
            "The parameter allow_run_as could not be disabled for the user",
        ]
    };
    let failed = |code| Ok(Answer::List(single(None, Some((code, user.into())), messages)));
    if user <= RESERVED_ID_MAX {
        return failed(Code::UserReserved);
    }
    match call.registry().change_security(&call.context, SecurityChange::SetRunAs { user, allow }) {
        Ok(_) => changed(call, user, messages),
        Err(error) => failed(refusal(error, SORT.missing, Code::Internal)?),
    }
}

fn delete(call: &Call) -> Result<Answer, Failure> {
    let items = items(&call.registry().security(call.reader())?)?;
    let known: Vec<u32> = items.iter().map(|(id, _)| *id).collect();
    let (mut wanted, mut failed) = deletable(call, &SORT, "user_ids", &known, Code::UserReserved);
    if let Caller::User { id, .. } = &call.caller
        && wanted.contains(id)
    {
        wanted.retain(|other| other != id);
        if call.parameters.agents("user_ids").is_some() {
            failed.push((Code::OwnAccount, *id));
        }
    }
    let mut gone = Vec::new();
    for id in wanted {
        match call.registry().change_security(&call.context, SecurityChange::DeleteUser(id)) {
            Ok(_) => gone.extend(items.iter().find(|(k, _)| *k == id).map(|(_, i)| i.clone())),
            Err(error) => failed.push((refusal(error, SORT.missing, Code::Internal)?, id)),
        }
    }
    let total = gone.len() as u64;
    Ok(Answer::List(
        List::new(
            gone,
            total,
            [
                "Users were successfully deleted",
                "Some users were not deleted",
                "No users were deleted",
            ],
        )
        .with_failed(failed),
    ))
}
