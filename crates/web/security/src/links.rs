//! Links: roles of a user, policies and rules of a role, each with its position.

use registry::{LinkKind, SecurityChange};

use super::{
    POSITION, RESERVED_ID_MAX, ROLE_ID, USER_ID, ids, ids_or_all, one, refusal, roles, users,
};
use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, List};
use rest::http::operation::{
    COMMON, Handler, Kind, Operation, Parameter, Shape, Verb, action, required,
};

const fn numbers(name: &'static str) -> Parameter {
    required(
        name,
        Kind::Numbers,
        "Numbers, comma-separated, in the order in which they are linked.",
    )
}

pub const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Post,
        path: "/security/users/{user_id}/roles",
        id: "security.user_roles_add",
        about: "Link roles to a user, at a position in their order.",
        access: action("security:update", "user:id"),
        parameters: &[&[USER_ID, ids_or_all("role_ids"), POSITION], COMMON],
        body: None,
        shape: Shape::List("UserItem"),
        handler: Handler::Blocking(|call| change(call, &USER_ROLE, true)),
    },
    Operation {
        verb: Verb::Delete,
        path: "/security/users/{user_id}/roles",
        id: "security.user_roles_remove",
        about: "Unlink roles from a user.",
        access: action("security:delete", "user:id"),
        parameters: &[&[USER_ID, ids_or_all("role_ids")], COMMON],
        body: None,
        shape: Shape::List("UserItem"),
        handler: Handler::Blocking(|call| change(call, &USER_ROLE, false)),
    },
    Operation {
        verb: Verb::Post,
        path: "/security/roles/{role_id}/policies",
        id: "security.role_policies_add",
        about: "Link policies to a role, at a position in their order; a later policy overrides.",
        access: action("security:update", "role:id"),
        parameters: &[&[ROLE_ID, numbers("policy_ids"), POSITION], COMMON],
        body: None,
        shape: Shape::List("RoleItem"),
        handler: Handler::Blocking(|call| change(call, &ROLE_POLICY, true)),
    },
    Operation {
        verb: Verb::Delete,
        path: "/security/roles/{role_id}/policies",
        id: "security.role_policies_remove",
        about: "Unlink policies from a role.",
        access: action("security:delete", "role:id"),
        parameters: &[&[ROLE_ID, ids_or_all("policy_ids")], COMMON],
        body: None,
        shape: Shape::List("RoleItem"),
        handler: Handler::Blocking(|call| change(call, &ROLE_POLICY, false)),
    },
    Operation {
        verb: Verb::Post,
        path: "/security/roles/{role_id}/rules",
        id: "security.role_rules_add",
        about: "Link rules to a role.",
        access: action("security:update", "role:id"),
        parameters: &[&[ROLE_ID, numbers("rule_ids")], COMMON],
        body: None,
        shape: Shape::List("RoleItem"),
        handler: Handler::Blocking(|call| change(call, &ROLE_RULE, true)),
    },
    Operation {
        verb: Verb::Delete,
        path: "/security/roles/{role_id}/rules",
        id: "security.role_rules_remove",
        about: "Unlink rules from a role.",
        access: action("security:delete", "role:id"),
        parameters: &[&[ROLE_ID, ids_or_all("rule_ids")], COMMON],
        body: None,
        shape: Shape::List("RoleItem"),
        handler: Handler::Blocking(|call| change(call, &ROLE_RULE, false)),
    },
];

/// A kind of link.
struct Links {
    kind: LinkKind,
    owner: &'static str,
    owner_missing: Code,
    member: &'static str,
    /// The member's resource type in policies.
    resource: &'static str,
    member_missing: Code,
    /// The code for a link that already exists.
    linked: Code,
    /// The code for a link that does not exist.
    unlinked: Code,
    /// Plural and singular of the member, and the noun of the owner, for messages.
    words: [&'static str; 3],
}

const USER_ROLE: Links = Links {
    kind: LinkKind::UserRole,
    owner: "user_id",
    owner_missing: Code::UserMissing,
    member: "role_ids",
    resource: "role:id",
    member_missing: Code::RoleMissing,
    linked: Code::RoleLinked,
    unlinked: Code::RoleNotLinked,
    words: ["roles", "role", "user"],
};

const ROLE_POLICY: Links = Links {
    kind: LinkKind::RolePolicy,
    owner: "role_id",
    owner_missing: Code::RoleMissing,
    member: "policy_ids",
    resource: "policy:id",
    member_missing: Code::PolicyMissing,
    linked: Code::PolicyLinked,
    unlinked: Code::PolicyNotLinked,
    words: ["policies", "policy", "role"],
};

const ROLE_RULE: Links = Links {
    kind: LinkKind::RoleRule,
    owner: "role_id",
    owner_missing: Code::RoleMissing,
    member: "rule_ids",
    resource: "rule:id",
    member_missing: Code::SecurityRuleMissing,
    linked: Code::RuleLinked,
    unlinked: Code::RuleNotLinked,
    words: ["security rules", "security rule", "role"],
};

fn messages(links: &Links, owner: u32, link: bool) -> [String; 3] {
    let [many, one, whose] = links.words;
    if link {
        [
            format!("All {many} were linked to {whose} {owner}"),
            format!("Some {many} were not linked to {whose} {owner}"),
            format!("No link created to {whose} {owner}"),
        ]
    } else {
        [
            format!("All {many} were unlinked from {whose} {owner}"),
            format!("Some {many} were not unlinked from {whose} {owner}"),
            format!("No {one} unlinked from {whose} {owner}"),
        ]
    }
}

fn change(call: &Call, links: &Links, link: bool) -> Result<Answer, Failure> {
    let owner = one(call, links.owner);
    let image = call.registry().security(call.reader())?;
    let (there, all, linked): (bool, Vec<u32>, Vec<u32>) = match links.kind {
        LinkKind::UserRole => {
            let user = image.users.iter().find(|user| user.id == owner);
            let own = user.map(|user| user.roles.iter().map(|role| role.id).collect());
            let all = image.roles.iter().map(|role| role.id).collect();
            (user.is_some(), all, own.unwrap_or_default())
        }
        LinkKind::RolePolicy | LinkKind::RoleRule => {
            let policy = links.kind == LinkKind::RolePolicy;
            let role = image.roles.iter().find(|role| role.id == owner);
            let own = role.map(|role| if policy { &role.policies } else { &role.rules });
            let all = if policy {
                image.policies.iter().map(|row| row.policy.id).collect()
            } else {
                image.rules.iter().map(|row| row.id).collect()
            };
            (role.is_some(), all, own.cloned().unwrap_or_default())
        }
    };
    let named = ids(call, links.member);
    let wanted = permitted(call, links, named, || if link { all.clone() } else { linked })?;
    let mut failed = Vec::new();
    let mut done = 0_u64;
    if owner <= RESERVED_ID_MAX {
        failed.extend(before_reserved(links, &wanted, &all));
        if failed.len() < wanted.len() || wanted.is_empty() {
            failed.push((Code::Reserved, owner));
        }
    } else if !there && !link {
        return Err(Failure::code(links.owner_missing));
    } else if !there {
        failed.push((links.owner_missing, owner));
    }
    let members = if failed.is_empty() { wanted } else { Vec::new() };
    for member in members {
        let code = if !may(call, links, member) {
            Some(Code::Denied)
        } else if !all.contains(&member) {
            Some(links.member_missing)
        } else {
            let position = call.parameters.position("position").map(|at| at.saturating_add(done));
            carry_out(call, links, (owner, member), position, link)?
        };
        match code {
            Some(code) => failed.push((code, member)),
            None => done += 1,
        }
    }
    let item = match (done, links.kind) {
        (0, _) => None,
        (_, LinkKind::UserRole) => users::items(&call.registry().security(call.reader())?)?
            .into_iter()
            .find(|(id, _)| *id == owner)
            .map(|(_, item)| item),
        _ => roles::item(call, owner)?,
    };
    Ok(Answer::List(
        List::new(item.into_iter().collect(), done, ["", "", ""])
            .with_messages(messages(links, owner, link))
            .with_failed(failed),
    ))
}

fn may(call: &Call, links: &Links, member: u32) -> bool {
    call.may(call.action, links.resource, &member.to_string())
}

/// Returns the named members; fails if the caller may access none of them. If none are named, returns
/// those of all members that the caller may access.
fn permitted(
    call: &Call,
    links: &Links,
    named: Option<Vec<u32>>,
    all: impl FnOnce() -> Vec<u32>,
) -> Result<Vec<u32>, Failure> {
    let Some(named) = named else {
        return Ok(all().into_iter().filter(|member| may(call, links, *member)).collect());
    };
    if named.iter().any(|member| may(call, links, *member)) {
        return Ok(named);
    }
    let names: Vec<String> = named.iter().map(u32::to_string).collect();
    Err(Failure::denied_on(links.resource, &names))
}

/// Returns the failures that the 4.x API reports for a reserved owner before that of the owner: rules
/// that do not exist.
fn before_reserved(links: &Links, wanted: &[u32], all: &[u32]) -> Vec<(Code, u32)> {
    let missing = wanted.iter().filter(|member| !all.contains(member));
    let missing = missing.filter(|_| links.kind == LinkKind::RoleRule);
    missing.map(|member| (links.member_missing, *member)).collect()
}

/// Creates or removes one link; returns the code if that is refused.
fn carry_out(
    call: &Call,
    links: &Links,
    (owner, member): (u32, u32),
    position: Option<u64>,
    link: bool,
) -> Result<Option<Code>, Failure> {
    let kind = links.kind;
    let change = if link {
        SecurityChange::Link { kind, owner, member, position }
    } else {
        SecurityChange::Unlink { kind, owner, member }
    };
    match call.registry().change_security(&call.context, change) {
        Ok(_) => Ok(None),
        Err(error) => {
            let missing = if link { links.member_missing } else { links.unlinked };
            refusal(error, missing, links.linked).map(Some)
        }
    }
}
