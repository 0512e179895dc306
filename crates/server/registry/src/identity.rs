//! The certificates in memory, by fingerprint, so that a request is identified without a query.

use std::collections::{BTreeSet, HashMap};

use control::{CertificateRow, NewCertificate};
use model::{AgentId, Incarnation};

use crate::IdentityError;
use crate::limits::AGENT_CERTIFICATE_SECONDS;
use crate::types::CertificateOwner;

type Fingerprint = [u8; 32];

/// All stored certificates of all agents.
#[derive(Default)]
pub(crate) struct Certificates {
    rows: HashMap<Fingerprint, CertificateRow>,
    by_agent: HashMap<AgentId, Vec<Fingerprint>>,
    /// Agents whose certificates have changes that are not in the database yet.
    changed: BTreeSet<AgentId>,
}

impl Certificates {
    pub(crate) fn load(rows: Vec<CertificateRow>) -> Self {
        let mut all = Self::default();
        for row in rows {
            all.insert(row);
        }
        all
    }

    fn insert(&mut self, row: CertificateRow) {
        self.by_agent.entry(row.agent).or_default().push(row.fingerprint);
        self.rows.insert(row.fingerprint, row);
    }

    /// Records an issued certificate: an earlier one that was never used is superseded if another
    /// one is in use.
    pub(crate) fn issued(
        &mut self,
        agent: AgentId,
        incarnation: Incarnation,
        new: &NewCertificate,
        now_s: i64,
    ) {
        self.forget_unused(agent);
        let in_use = self.of(agent).any(|row| {
            row.used_at_s.is_some() && row.superseded_at_s.is_none() && row.revoked_at_s.is_none()
        });
        if in_use {
            self.supersede_unused(agent, now_s);
        }
        self.insert(CertificateRow {
            fingerprint: new.fingerprint,
            agent,
            incarnation,
            not_before_s: new.not_before_s,
            not_after_s: new.not_after_s,
            used_at_s: None,
            superseded_at_s: None,
            revoked_at_s: None,
        });
    }

    /// Forgets the agent's certificates that were superseded without ever being used, once the
    /// database has recorded that. The database forgets them with the next renewal.
    fn forget_unused(&mut self, agent: AgentId) {
        if self.changed.contains(&agent) {
            return;
        }
        let (rows, Some(list)) = (&mut self.rows, self.by_agent.get_mut(&agent)) else { return };
        list.retain(|fingerprint| {
            let spent = rows
                .get(fingerprint)
                .is_none_or(|row| row.used_at_s.is_none() && row.superseded_at_s.is_some());
            if spent {
                rows.remove(fingerprint);
            }
            !spent
        });
    }

    fn of(&self, agent: AgentId) -> impl Iterator<Item = &CertificateRow> {
        self.by_agent.get(&agent).into_iter().flatten().filter_map(|f| self.rows.get(f))
    }

    fn each(&mut self, agent: AgentId, mut change: impl FnMut(&mut CertificateRow)) {
        for fingerprint in self.by_agent.get(&agent).into_iter().flatten() {
            if let Some(row) = self.rows.get_mut(fingerprint) {
                change(row);
            }
        }
    }

    /// Supersedes the agent's certificates that were never used.
    pub(crate) fn supersede_unused(&mut self, agent: AgentId, now_s: i64) {
        self.supersede(agent, now_s, |row| row.used_at_s.is_none());
        self.changed.insert(agent);
    }

    fn supersede(&mut self, agent: AgentId, now_s: i64, of: impl Fn(&CertificateRow) -> bool) {
        self.each(agent, |row| {
            if of(row) {
                row.superseded_at_s.get_or_insert(now_s);
            }
        });
    }

    /// Returns the owner of a certificate, and true if this is its first use.
    pub(crate) fn check(
        &self,
        fingerprint: &Fingerprint,
        now_s: i64,
    ) -> Result<(CertificateOwner, bool), IdentityError> {
        let row = self.rows.get(fingerprint).ok_or(IdentityError::Unknown)?;
        if row.revoked_at_s.is_some() {
            return Err(IdentityError::Revoked);
        }
        if row.superseded_at_s.is_some() {
            return Err(IdentityError::Superseded);
        }
        if now_s > row.not_after_s {
            return Err(IdentityError::Expired);
        }
        // The start of validity is not checked: this server issued the certificate, so a time
        // before it only means that the clock is wrong now or was wrong then.
        let identity = CertificateOwner {
            agent: row.agent,
            incarnation: row.incarnation,
            renew_at_s: row.not_after_s - AGENT_CERTIFICATE_SECONDS / 3,
        };
        Ok((identity, row.used_at_s.is_none()))
    }

    /// Records a first use, which supersedes every other certificate of the agent. Checks the
    /// certificate again: if two are used for the first time concurrently, the second is refused.
    pub(crate) fn first_use(
        &mut self,
        fingerprint: &Fingerprint,
        now_s: i64,
    ) -> Result<CertificateOwner, IdentityError> {
        let (identity, first) = self.check(fingerprint, now_s)?;
        if first {
            self.supersede(identity.agent, now_s, |row| row.fingerprint != *fingerprint);
            if let Some(row) = self.rows.get_mut(fingerprint) {
                row.used_at_s = Some(now_s);
            }
            self.changed.insert(identity.agent);
        }
        Ok(identity)
    }

    pub(crate) fn revoke(&mut self, agent: AgentId, now_s: i64) {
        self.each(agent, |row| {
            row.revoked_at_s.get_or_insert(now_s);
        });
    }

    /// Returns true if no certificate of the agent was used or revoked.
    pub(crate) fn none_used(&self, agent: AgentId) -> bool {
        self.of(agent).all(|row| row.used_at_s.is_none() && row.revoked_at_s.is_none())
    }

    /// Returns true if every certificate of the agent was revoked; false if it has none.
    pub(crate) fn all_revoked(&self, agent: AgentId) -> bool {
        let mut rows = self.of(agent).peekable();
        rows.peek().is_some() && rows.all(|row| row.revoked_at_s.is_some())
    }

    /// Returns true if there are changes to write.
    pub(crate) fn unsettled(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Takes the changes to write.
    pub(crate) fn take_changed(&mut self) -> Vec<CertificateRow> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().flat_map(|agent| self.of(agent).cloned().collect::<Vec<_>>()).collect()
    }

    pub(crate) fn put_back(&mut self, rows: &[CertificateRow]) {
        self.changed.extend(rows.iter().map(|row| row.agent));
    }

    /// Forgets expired certificates that would be refused in any case. The last certificate of a
    /// registered agent is kept, so that a wrong clock does not lock the agent out permanently.
    pub(crate) fn forget_expired(&mut self, now_s: i64) {
        self.rows.retain(|_, row| {
            let refused = row.superseded_at_s.is_some() || row.revoked_at_s.is_some();
            row.not_after_s >= now_s || !refused
        });
        let rows = &self.rows;
        self.by_agent.retain(|_, list| {
            list.retain(|f| rows.contains_key(f));
            !list.is_empty()
        });
    }
}
