//! Enrolment, renewal, identity and liveness.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use control::Reader;
use control::limits::{ENROLMENT_TOKEN_TTL_SECONDS_MAX, NAME_CHARS_MAX, NAME_CHARS_MIN};
use control::{
    ControlError, EnrolmentTokenRow, NewAgent, NewCertificate, NewEnrolmentToken, StatusCode,
    WriteContext,
};
use model::{AgentId, AgentRecord, Incarnation, Overlay};

use crate::fleet::Now;
use crate::limits::{AGENT_NUMBER_MAX, EPHEMERAL_SECONDS, TOKEN_SECRET_BYTES};
use crate::types::{AgentEnrolment, AgentInfo, CertificateOwner, IssuedIdentity, TokenTerms};
use crate::{EnrollError, IdentityError, Registry, RegistryError, ca};

/// First part of an enrolment token: its version.
const TOKEN_VERSION: &str = "hf1";
/// Registered address of an agent that may connect from any address.
const ANY_IP: &str = "any";

impl Registry {
    /// Creates an enrolment token: `hf1.<base64url secret>.<ca fingerprint hex>`. Only its digest is
    /// stored; durable when it returns.
    ///
    /// # Errors
    /// `Store(NotFound)` for a group, `Store(Refused)` or `Refused` for a number out of range.
    pub fn create_enrolment_token(
        &self,
        context: &WriteContext,
        terms: &TokenTerms,
    ) -> Result<String, RegistryError> {
        if !(1..=ENROLMENT_TOKEN_TTL_SECONDS_MAX).contains(&terms.ttl_s) {
            return Err(RegistryError::Refused(format!(
                "enrolment token: its life must be 1 to {ENROLMENT_TOKEN_TTL_SECONDS_MAX} seconds"
            )));
        }
        if terms.ephemeral_s.is_some_and(|silence_s| !EPHEMERAL_SECONDS.contains(&silence_s)) {
            let (min, max) = (EPHEMERAL_SECONDS.start(), EPHEMERAL_SECONDS.end());
            return Err(RegistryError::Refused(format!(
                "enrolment token: ephemeral agents are removed after {min} to {max} seconds of silence"
            )));
        }
        let mut secret = [0; TOKEN_SECRET_BYTES];
        self.inner.random.fill_bytes(&mut secret)?;
        let now_s = self.now().s;
        self.inner.store.add_enrolment_token(
            context,
            &NewEnrolmentToken {
                digest: ca::fingerprint(&secret),
                groups: terms.groups.clone(),
                uses: terms.uses,
                expires_at_s: now_s.saturating_add_unsigned(terms.ttl_s),
                ephemeral_s: terms.ephemeral_s,
                now_s,
            },
        )?;
        let secret = URL_SAFE_NO_PAD.encode(secret);
        Ok(format!("{TOKEN_VERSION}.{secret}.{}", self.ca_fingerprint()))
    }

    /// Returns the valid enrolment tokens, by their digests.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn enrolment_tokens(
        &self,
        reader: &Reader,
    ) -> Result<Vec<EnrolmentTokenRow>, RegistryError> {
        Ok(self.inner.store.enrolment_tokens(reader, self.now().s)?)
    }

    /// Forgets an enrolment token by its digest; returns true if it existed.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn revoke_enrolment_token(
        &self,
        context: &WriteContext,
        digest: &[u8; 32],
    ) -> Result<bool, RegistryError> {
        Ok(self.inner.store.revoke_enrolment_token(context, digest)?)
    }

    /// Registers an agent with a token and issues its certificate; durable when it returns.
    ///
    /// An agent that enrolled and has not connected since gets a further certificate, and no use of
    /// the token is counted, if name and key are the same and the token is valid or the one that it
    /// enrolled with: its program may have failed to store the first certificate.
    ///
    /// # Errors
    /// [`EnrollError`]; then nothing was changed and the token was not used.
    pub fn enroll(
        &self,
        token: &str,
        csr_pem: &str,
        request: &AgentEnrolment,
    ) -> Result<IssuedIdentity, EnrollError> {
        let digest = self.token_digest(token)?;
        let now = self.now();
        let agent = self.new_agent(None, request, None, now.s)?;
        // The signing request is parsed only if the token is valid.
        let mut refused = None;
        let mut sign = |id: AgentId| match self.sign(id, csr_pem, now) {
            Ok(certificate) => Ok(certificate),
            Err(e) => {
                let text = e.to_string();
                refused = Some(e);
                Err(text)
            }
        };
        let _order = self.inner.decisions.lock();
        if let Some(again) = self.enroll_again(&digest, csr_pem, &agent.name, now)? {
            return Ok(again);
        }
        let enrolled = self.inner.store.enroll(&digest, &agent, &mut sign);
        let enrolled = match (enrolled, refused) {
            (Err(ControlError::Certificate(_)), Some(e)) => return Err(e),
            (enrolled, _) => enrolled?,
        };
        let (id, incarnation) = (enrolled.row.record.id, enrolled.row.record.incarnation);
        self.inner.fleet.write().insert(enrolled.row, now);
        let mut certificates = self.inner.certificates.write();
        certificates.issued(id, incarnation, &enrolled.certificate, now.s);
        Ok(self.enrolled(id, incarnation, enrolled.certificate))
    }

    /// Issues a further certificate to an agent that enrolled with the key of this request and has
    /// not connected since; `None` if there is no such agent. The caller holds `decisions`.
    fn enroll_again(
        &self,
        token: &[u8; 32],
        csr_pem: &str,
        name: &str,
        now: Now,
    ) -> Result<Option<IssuedIdentity>, EnrollError> {
        let Some(earlier) = self.inner.store.unused_enrolment(token, name, now.s)? else {
            return Ok(None);
        };
        let agent = earlier.agent;
        let known = self.inner.fleet.read().get(agent).map(|record| record.incarnation);
        let Some(incarnation) = known else { return Ok(None) };
        // The signature of the request proves that its sender has the private key.
        let certificate = self.sign(agent, csr_pem, now)?;
        // A first use is known here before the store knows it.
        let unused = self.inner.certificates.read().none_used(agent);
        if !unused || certificate.key_digest != earlier.key_digest {
            return Ok(None);
        }
        self.inner.store.add_certificate(agent, &certificate)?;
        let mut certificates = self.inner.certificates.write();
        certificates.supersede_unused(agent, now.s);
        certificates.issued(agent, incarnation, &certificate, now.s);
        drop(certificates);
        self.inner.fleet.write().enrolled_again(agent, now);
        Ok(Some(IssuedIdentity { again: true, ..self.enrolled(agent, incarnation, certificate) }))
    }

    /// Issues a further certificate; the present one stays valid until the new one is used.
    ///
    /// # Errors
    /// `NoSuchAgent`, `Request`, `Revoked`. A renewal that is in progress during a revocation
    /// fails.
    pub fn renew(&self, agent: AgentId, csr_pem: &str) -> Result<IssuedIdentity, EnrollError> {
        self.renew_over(agent, csr_pem, None)
    }

    /// Does the same as [`Registry::renew`] for a caller that presents a certificate (the leaf's
    /// DER bytes). The certificate is checked again with `decisions` locked, so that the renewal
    /// fails if it was superseded or revoked in the meantime.
    ///
    /// # Errors
    /// As [`Registry::renew`], and `Presented` if that certificate is no longer valid.
    pub fn renew_presented(
        &self,
        agent: AgentId,
        csr_pem: &str,
        certificate_der: &[u8],
    ) -> Result<IssuedIdentity, EnrollError> {
        self.renew_over(agent, csr_pem, Some(ca::fingerprint(certificate_der)))
    }

    fn renew_over(
        &self,
        agent: AgentId,
        csr_pem: &str,
        presented: Option<[u8; 32]>,
    ) -> Result<IssuedIdentity, EnrollError> {
        let now = self.now();
        let now_s = now.s;
        let certificate = self.sign(agent, csr_pem, now)?;
        let _order = self.inner.decisions.lock();
        let known = self.inner.fleet.read().get(agent).map(|record| record.incarnation);
        let incarnation = known.ok_or(EnrollError::NoSuchAgent(agent))?;
        if self.inner.certificates.read().all_revoked(agent) {
            return Err(EnrollError::Revoked(agent));
        }
        if let Some(presented) = presented {
            self.inner.certificates.read().check(&presented, now_s)?;
        }
        self.inner.store.add_certificate(agent, &certificate)?;
        self.inner.certificates.write().issued(agent, incarnation, &certificate, now_s);
        Ok(self.enrolled(agent, incarnation, certificate))
    }

    fn sign(&self, id: AgentId, csr: &str, now: Now) -> Result<NewCertificate, EnrollError> {
        // Use the later of the two times: a certificate issued by a held guarded time could expire
        // when the hold ends.
        let now_s = now.s.max(now.wall_s);
        let csr = ca::read_csr(csr).map_err(EnrollError::Request)?;
        Ok(self.inner.authority.agent_certificate(id, &csr, &*self.inner.random, now_s)?)
    }

    fn enrolled(
        &self,
        id: AgentId,
        incarnation: Incarnation,
        new: NewCertificate,
    ) -> IssuedIdentity {
        IssuedIdentity {
            agent: id,
            incarnation,
            again: false,
            certificate_pem: new.pem,
            ca_pem: self.ca_pem(),
            cluster_name: self.inner.options.cluster_name.clone(),
        }
    }

    fn token_digest(&self, token: &str) -> Result<[u8; 32], EnrollError> {
        let mut parts = token.trim().split('.');
        let (Some(TOKEN_VERSION), Some(secret), Some(fingerprint), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(EnrollError::Token("not of the form hf1.SECRET.FINGERPRINT"));
        };
        if !fingerprint.eq_ignore_ascii_case(&self.inner.authority.fingerprint) {
            return Err(EnrollError::Token("made by another server"));
        }
        let secret = URL_SAFE_NO_PAD.decode(secret).ok().filter(|s| s.len() == TOKEN_SECRET_BYTES);
        let secret = secret.ok_or(EnrollError::Token("not of the form hf1.SECRET.FINGERPRINT"))?;
        Ok(ca::fingerprint(&secret))
    }

    fn draw_incarnation(&self) -> Result<Incarnation, RegistryError> {
        Ok(Incarnation(self.inner.random.next_u64()?))
    }

    /// Registers agents without token and certificate, for an import or an operator: all of them or
    /// none. A name or a number that is in use is refused. Returns their numbers.
    ///
    /// # Errors
    /// See [`Registry::enroll`].
    pub fn add_agents(
        &self,
        context: &WriteContext,
        agents: &[(Option<AgentId>, AgentEnrolment)],
    ) -> Result<Vec<AgentId>, EnrollError> {
        let now = self.now();
        let new = |(id, request): &(Option<AgentId>, AgentEnrolment)| {
            self.new_agent(*id, request, None, now.s)
        };
        let agents = agents.iter().map(new).collect::<Result<Vec<_>, EnrollError>>()?;
        let _order = self.inner.decisions.lock();
        self.insert_agents(context, &agents, now)
    }

    pub(crate) fn new_agent(
        &self,
        id: Option<AgentId>,
        request: &AgentEnrolment,
        client_key: Option<String>,
        now_s: i64,
    ) -> Result<NewAgent, EnrollError> {
        if let Some(id) = id.filter(|id| id.0 > AGENT_NUMBER_MAX) {
            let text = format!("agent number {id}: give one of at most {AGENT_NUMBER_MAX}");
            return Err(RegistryError::Refused(text).into());
        }
        Ok(NewAgent {
            id,
            name: self.agent_name(request)?,
            register_ip: agent_ip(&request.ip)?,
            groups: request.groups.clone(),
            incarnation: self.draw_incarnation()?,
            client_key,
            ephemeral_s: None,
            now_s,
        })
    }

    /// Returns the name that is asked for, if an agent may have it. Number and name of agent 000
    /// are the server's.
    fn agent_name(&self, request: &AgentEnrolment) -> Result<String, EnrollError> {
        let (name, id) = (agent_name(&request.name)?, AgentId::SERVER);
        let of_server = self.agent(id).is_some_and(|own| own.name.eq_ignore_ascii_case(&name));
        if name == id.to_string() || (of_server && !request.on_server) {
            return Err(EnrollError::DuplicateName { name, id });
        }
        Ok(name)
    }

    /// Returns true if an address is one of the server's own host.
    #[must_use]
    pub fn is_own_address(&self, address: IpAddr) -> bool {
        let text = address.to_string();
        address.is_loopback() || (self.inner.options.host_names)().contains(&text)
    }

    /// Inserts agents. The caller holds `decisions`.
    pub(crate) fn insert_agents(
        &self,
        context: &WriteContext,
        agents: &[NewAgent],
        now: Now,
    ) -> Result<Vec<AgentId>, EnrollError> {
        let rows = self.inner.store.add_agents(context, agents)?;
        let ids = rows.iter().map(|row| row.record.id).collect();
        let mut fleet = self.inner.fleet.write();
        for row in rows {
            fleet.insert(row, now);
        }
        Ok(ids)
    }

    /// Returns the owner of a certificate (the leaf's DER bytes). Memory only; the first use of a
    /// renewed certificate is written with the next flush.
    ///
    /// # Errors
    /// [`IdentityError`], the reason why it is refused.
    pub fn identify(&self, peer_cert_der: &[u8]) -> Result<CertificateOwner, IdentityError> {
        let fingerprint = ca::fingerprint(peer_cert_der);
        let now_s = self.now().s;
        let (identity, first) = self.inner.certificates.read().check(&fingerprint, now_s)?;
        if first {
            return self.inner.certificates.write().first_use(&fingerprint, now_s);
        }
        Ok(identity)
    }

    /// Marks the agent as pending: its program started. `false` when there is no such agent. Memory
    /// only.
    pub fn startup(&self, id: AgentId, info: &AgentInfo) -> bool {
        self.inner.fleet.write().startup(id, info, self.now())
    }

    /// Marks the agent as active: it is alive. `false` when there is no such agent. Memory only.
    pub fn keepalive(&self, id: AgentId, info: &AgentInfo) -> bool {
        self.inner.fleet.write().keepalive(id, info, self.now())
    }

    /// Marks the agent as disconnected: its program stopped. `false` when there is no such agent.
    /// Memory only.
    pub fn goodbye(&self, id: AgentId) -> bool {
        self.inner.fleet.write().goodbye(id, StatusCode::Shutdown, self.now())
    }

    /// Returns the server's data about the agent, for a session's record; `None` when there is no
    /// such agent. Memory only.
    pub fn overlay(&self, id: AgentId) -> Option<Overlay> {
        self.inner.fleet.read().overlay(id, &self.inner.options.cluster_name)
    }

    /// Returns the agent as it is now, 000 included. Memory only.
    pub fn agent(&self, id: AgentId) -> Option<AgentRecord> {
        if id == AgentId::SERVER {
            return Some(self.inner.server.clone());
        }
        self.inner.fleet.read().get(id).cloned()
    }
}

fn agent_name(name: &str) -> Result<String, EnrollError> {
    let fine = (NAME_CHARS_MIN..=NAME_CHARS_MAX).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    fine.then(|| name.to_owned()).ok_or_else(|| {
        EnrollError::Name(format!(
            "{name:?}: use {NAME_CHARS_MIN} to {NAME_CHARS_MAX} of A-Z a-z 0-9 . _ -"
        ))
    })
}

fn agent_ip(ip: &str) -> Result<String, EnrollError> {
    if ip.is_empty() || ip == ANY_IP {
        return Ok(ANY_IP.into());
    }
    // A network is accepted as written: `192.0.2.0/24`.
    let (address, bits) = ip.split_once('/').unwrap_or((ip, "0"));
    let fine = address.parse::<IpAddr>().is_ok_and(|address| {
        bits.parse::<u8>().is_ok_and(|bits| bits <= if address.is_ipv4() { 32 } else { 128 })
    });
    fine.then(|| ip.to_owned()).ok_or_else(|| EnrollError::Ip(ip.to_owned()))
}
