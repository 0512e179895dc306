//! Users, roles, policies and rules with their links, and the changes of them. Each change is one
//! transaction together with the revocations of the tokens that it affects.

use std::collections::BTreeMap;

use super::{Policy, Revocation, UserRow};

/// A role with what it is linked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleRow {
    pub id: u32,
    pub name: String,
    /// Policies in their order; a later one overrides an earlier one.
    pub policies: Vec<u32>,
    /// Rules in their order.
    pub rules: Vec<u32>,
    /// Users that have it, by id.
    pub users: Vec<u32>,
}

/// A policy with the roles that have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRow {
    pub policy: Policy,
    /// Roles by id.
    pub roles: Vec<u32>,
}

/// A rule: the roles given to a login with a matching authorization context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleRow {
    pub id: u32,
    pub name: String,
    /// Its content, JSON.
    pub body: String,
    /// Roles by id.
    pub roles: Vec<u32>,
}

/// Users, roles, policies and rules from one snapshot, each by id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SecurityImage {
    pub users: Vec<UserRow>,
    pub roles: Vec<RoleRow>,
    pub policies: Vec<PolicyRow>,
    pub rules: Vec<RuleRow>,
}

/// Kind of a link between two objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinkKind {
    UserRole,
    RolePolicy,
    /// A rule gives a role.
    RoleRule,
}

/// A change of users, roles, policies, rules or links. The caller must protect objects with ids up
/// to [`super::limits::RESERVED_ID_MAX`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecurityChange {
    /// Replace a user's password hash.
    SetPassword {
        user: u32,
        /// Argon2id hash in PHC form.
        hash: String,
    },
    /// Allow or forbid a user to log in with an authorization context.
    SetRunAs {
        user: u32,
        allow: bool,
    },
    /// Delete a user and its links.
    DeleteUser(u32),
    CreateRole {
        name: String,
    },
    RenameRole {
        id: u32,
        /// Its new name.
        name: String,
    },
    /// Delete a role and its links.
    DeleteRole(u32),
    /// Create a policy; the store assigns its id.
    CreatePolicy(Policy),
    ReplacePolicy(Policy),
    /// Delete a policy and its links.
    DeletePolicy(u32),
    CreateRule {
        name: String,
        /// Its content, JSON.
        body: String,
    },
    ReplaceRule {
        id: u32,
        name: String,
        /// Its content, JSON.
        body: String,
    },
    /// Delete a rule and its links.
    DeleteRule(u32),
    /// Link `member` to `owner` at a position from 0; the links from that position on move back by
    /// one. Without a position, or with one beyond the end, the link is appended.
    Link {
        kind: LinkKind,
        /// User or role.
        owner: u32,
        /// Role, policy or rule.
        member: u32,
        position: Option<u64>,
    },
    /// Remove a link.
    Unlink {
        kind: LinkKind,
        /// User or role.
        owner: u32,
        /// Role, policy or rule.
        member: u32,
    },
}

/// A change, and the tokens that it revokes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityWrite {
    pub change: SecurityChange,
    /// Revocations to store in the same transaction.
    pub revoked: Vec<Revocation>,
}

/// The rows that an authorisation decision needs, for a user and a set of roles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRows {
    pub user: UserRow,
    /// Policies by role in the order of the roles, then by each role's own order.
    pub policies: Vec<Policy>,
    pub settings: BTreeMap<String, String>,
}
