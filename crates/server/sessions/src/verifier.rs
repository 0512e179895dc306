//! Verifies the certificates that agents present, using the guarded time.
//!
//! The start of a certificate's validity is not checked: only this server's authority issues them,
//! so a start in the future means that the certificate was issued while the clock was ahead.
//! Revocation and expiry are checked again for each request, by the registry.

use std::sync::Arc;
use std::time::Duration;

use registry::Registry;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// Wraps another verifier and replaces the time at which a certificate is verified.
pub(crate) struct AgentVerifier {
    inner: Arc<dyn ClientCertVerifier>,
    registry: Registry,
}

impl AgentVerifier {
    pub(crate) fn new(inner: Arc<dyn ClientCertVerifier>, registry: Registry) -> Self {
        Self { inner, registry }
    }

    /// Returns the guarded time, or the beginning of the certificate if that is later.
    fn time_for(&self, certificate: &CertificateDer<'_>) -> UnixTime {
        let now_s = self.registry.guarded_us() / 1_000_000;
        let begins_s = registry::certificate_begin_s(certificate).unwrap_or(0);
        UnixTime::since_unix_epoch(Duration::from_secs(now_s.max(begins_s)))
    }
}

impl ClientCertVerifier for AgentVerifier {
    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let now = self.time_for(end_entity);
        self.inner.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

impl std::fmt::Debug for AgentVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentVerifier").finish_non_exhaustive()
    }
}
