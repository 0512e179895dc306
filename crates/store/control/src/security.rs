//! Users, roles, policies and rules with their links: what there is, and what changes it. Every
//! change is one transaction together with the revocations of the tokens it touches.

use std::collections::BTreeMap;

use super::{ControlResult, Policy, Revocation, UserRow, WriteContext};
use sqlite::Reader;

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

/// A rule: which authorization context gets which roles.
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

/// A change of users, roles, policies, rules or links. Things with ids up to
/// [`super::limits::RESERVED_ID_MAX`] are the caller's to protect.
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
    /// Create a policy; its id is drawn.
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
    /// Link `member` to `owner` at a place, from 0; those from there on move one on. Without a
    /// place, or beyond the last one, at the end.
    Link {
        kind: LinkKind,
        /// User or role.
        owner: u32,
        /// Role, policy or rule.
        member: u32,
        position: Option<u64>,
    },
    /// Take a link away.
    Unlink {
        kind: LinkKind,
        /// User or role.
        owner: u32,
        /// Role, policy or rule.
        member: u32,
    },
}

/// A change and whose tokens it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityWrite {
    pub change: SecurityChange,
    /// Written in the same transaction.
    pub revoked: Vec<Revocation>,
}

/// Rows that authorisation needs of a user and a set of roles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRows {
    pub user: UserRow,
    /// Policies in the order of the roles, then of each role's own.
    pub policies: Vec<Policy>,
    pub settings: BTreeMap<String, String>,
}

/// The registry store's part about users, roles, policies and rules. All calls block.
pub trait SecurityStore: Send + Sync {
    /// A user by id.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    fn user_by_id(&self, reader: &Reader, id: u32) -> ControlResult<Option<UserRow>>;

    /// A user, the policies of a set of roles and some settings, by one statement.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    fn access(
        &self,
        reader: &Reader,
        user: u32,
        roles: &[u32],
        settings: &[&str],
    ) -> ControlResult<Option<AccessRows>>;

    /// Users, roles, policies and rules from one snapshot.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    fn security(&self, reader: &Reader) -> ControlResult<SecurityImage>;

    /// Changes users, roles, policies, rules or links in one durable transaction with the
    /// revocations; the id of what was created, else 0.
    ///
    /// # Errors
    /// `NotFound`; `Exists` (`role`, `policy`, `policy body`, `rule`, `rule body`, `link`).
    fn change_security(&self, context: &WriteContext, write: &SecurityWrite) -> ControlResult<u32>;
}
