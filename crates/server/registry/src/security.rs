//! Changes of users, roles, policies and rules, and the tokens that each change revokes.

use control::Reader;
use control::{
    ControlError, LinkKind, Policy, RevocationTarget, SecurityChange, SecurityImage, SecurityWrite,
    WriteContext,
};
use serde_json::Value;
use std::fs;
use std::path::Path;

use crate::types::User;
use crate::{LoginError, Registry, RegistryError, context};
use control::limits::ADMIN_USER;

/// Maximum attempts of a login with a context to read the rules while they are being changed.
const RUN_AS_TRIES: usize = 5;

impl Registry {
    /// Returns users, roles, policies and rules from one snapshot.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn security(&self, reader: &Reader) -> Result<SecurityImage, RegistryError> {
        Ok(self.inner.store.security(reader)?)
    }

    /// Changes users, roles, policies, rules or links; durable when it returns, and the affected
    /// tokens are revoked. Returns the id of the created object, else 0.
    ///
    /// # Errors
    /// `Store(NotFound)`, `Store(Exists)`.
    pub fn change_security(
        &self,
        context: &WriteContext,
        change: SecurityChange,
    ) -> Result<u32, RegistryError> {
        let targets = self.touched(context.reader(), &change)?;
        let first_password = self.outdated_password_file(context.reader(), &change)?;
        let revoked = targets.iter().map(|target| self.revocation(*target)).collect();
        let write = SecurityWrite { change, revoked };
        let id = self.inner.store.change_security(context, &write)?;
        self.inner.access.changed();
        self.refuse(context, &write.revoked)?;
        if let Some(file) = first_password
            && let Err(error) = fs::remove_file(file)
        {
            tracing::warn!(%error, "{}: remove it: the password is no longer valid", file.display());
        }
        Ok(id)
    }

    /// Returns the file with the first administrator's password if a change makes that password
    /// invalid.
    fn outdated_password_file(
        &self,
        reader: &Reader,
        change: &SecurityChange,
    ) -> Result<Option<&Path>, RegistryError> {
        let file = self.inner.options.first_password_file.as_deref().filter(|file| file.exists());
        let (SecurityChange::SetPassword { user, .. } | SecurityChange::DeleteUser(user)) = change
        else {
            return Ok(None);
        };
        let Some(file) = file else { return Ok(None) };
        let admin = self.inner.store.user(reader, ADMIN_USER)?;
        Ok(admin.is_some_and(|admin| admin.id == *user).then_some(file))
    }

    /// Replaces the password of a user by id; the user's tokens are refused from now on.
    ///
    /// # Errors
    /// `Password`, `Store(NotFound)`.
    pub fn set_password_of(
        &self,
        context: &WriteContext,
        user: u32,
        password: &str,
    ) -> Result<(), RegistryError> {
        let hash = self.hash_of_new(password)?;
        self.change_security(context, SecurityChange::SetPassword { user, hash }).map(drop)
    }

    /// Returns a user by id.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn user_by_id(&self, reader: &Reader, id: u32) -> Result<Option<User>, RegistryError> {
        Ok(self.inner.store.user_by_id(reader, id)?.map(crate::users::public))
    }

    /// Returns the owners of the tokens that a change ends
    /// (`docs/reference/wire.md`, "API: tokens").
    fn touched(
        &self,
        reader: &Reader,
        change: &SecurityChange,
    ) -> Result<Vec<RevocationTarget>, RegistryError> {
        Ok(match change {
            SecurityChange::SetPassword { user, .. }
            | SecurityChange::SetRunAs { user, .. }
            | SecurityChange::DeleteUser(user)
            | SecurityChange::Link { kind: LinkKind::UserRole, owner: user, .. }
            | SecurityChange::Unlink { kind: LinkKind::UserRole, owner: user, .. } => {
                vec![RevocationTarget::User(*user)]
            }
            SecurityChange::RenameRole { id: role, .. }
            | SecurityChange::DeleteRole(role)
            | SecurityChange::Link { kind: LinkKind::RolePolicy, owner: role, .. }
            | SecurityChange::Unlink { kind: LinkKind::RolePolicy, owner: role, .. } => {
                vec![RevocationTarget::Role(*role)]
            }
            SecurityChange::ReplacePolicy(Policy { id, .. }) | SecurityChange::DeletePolicy(id) => {
                let image = self.inner.store.security(reader)?;
                let row = image.policies.into_iter().find(|row| row.policy.id == *id);
                let roles = row.map(|row| row.roles).unwrap_or_default();
                roles.into_iter().map(RevocationTarget::Role).collect()
            }
            SecurityChange::ReplaceRule { .. }
            | SecurityChange::DeleteRule(_)
            | SecurityChange::Link { kind: LinkKind::RoleRule, .. }
            | SecurityChange::Unlink { kind: LinkKind::RoleRule, .. } => {
                vec![RevocationTarget::RunAs]
            }
            SecurityChange::CreateRole { .. }
            | SecurityChange::CreatePolicy(_)
            | SecurityChange::CreateRule { .. } => Vec::new(),
        })
    }

    /// Returns the roles that the rules give to a login with this authorization context, and the
    /// `nbf` of its token; `login_nbf_s` comes from [`Registry::login_for_token`]. The time is
    /// taken before the rules are read, so that a later change of the rules revokes the token.
    ///
    /// # Errors
    /// `Invalid` when the user was changed since it logged in; `Busy` when the rules change faster
    /// than they can be read.
    pub fn run_as(
        &self,
        reader: &Reader,
        user: u32,
        login_nbf_s: i64,
        authorization: &Value,
    ) -> Result<(Vec<u32>, i64), LoginError> {
        let mut roles = Vec::new();
        for _ in 0..RUN_AS_TRIES {
            let nbf_s = self.token_nbf_s(user, &roles, true).max(login_nbf_s);
            roles = self.roles_of_context(reader, authorization)?;
            if self.token_revoked(user, &[], false, login_nbf_s) {
                return Err(LoginError::Invalid);
            }
            if !self.token_revoked(user, &roles, true, nbf_s) {
                return Ok((roles, nbf_s));
            }
        }
        Err(LoginError::Busy { retry_after_s: 1 })
    }

    /// Logs stored rules that would be refused today.
    pub(crate) fn name_rules_beyond_limits(&self) -> Result<(), RegistryError> {
        for rule in self.inner.store.security(&Reader::server())?.rules {
            let body = serde_json::from_str(&rule.body).map_err(|e| e.to_string());
            if let Err(cause) = body.and_then(|body| context::check_rule(&body)) {
                let (id, name) = (rule.id, rule.name);
                tracing::warn!(id, name, cause, "a security rule cannot be evaluated: rewrite it");
            }
        }
        Ok(())
    }

    /// Returns the ids of the roles that the rules give to a login with this authorization context;
    /// a rule that cannot be evaluated gives none.
    ///
    /// # Errors
    /// Returns an error if the store fails; a stored rule that is no JSON is an error too.
    pub fn roles_of_context(
        &self,
        reader: &Reader,
        authorization: &Value,
    ) -> Result<Vec<u32>, RegistryError> {
        let mut roles = Vec::new();
        for rule in self.inner.store.security(reader)?.rules {
            let body: Value = serde_json::from_str(&rule.body)
                .map_err(|e| ControlError::Corrupt(format!("rule {}: {e}", rule.id)))?;
            match context::matches(&body, authorization) {
                Some(true) => roles.extend(rule.roles),
                Some(false) => {}
                None => tracing::warn!(
                    rule = rule.id,
                    "the rule cannot be evaluated for a login, so it grants no role"
                ),
            }
        }
        roles.sort_unstable();
        roles.dedup();
        Ok(roles)
    }
}
