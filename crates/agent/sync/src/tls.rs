//! TLS for the agent. It trusts only the server's CA. At enrolment, when the CA is not known yet,
//! it trusts only the CA whose fingerprint is in the token.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ring::digest;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::SyncError;

/// Returns the SHA-256 of a certificate in DER, lower-case hex.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    hex::encode(digest::digest(&digest::SHA256, certificate))
}

/// Returns the [`fingerprint`] of the first certificate in PEM.
pub(crate) fn pem_fingerprint(pem: &[u8]) -> Option<String> {
    CertificateDer::from_pem_slice(pem).ok().map(|c| fingerprint(&c))
}

/// Returns the first certificate in `pem`, as DER bytes.
pub(crate) fn certificate(pem: &[u8]) -> Option<Vec<u8>> {
    CertificateDer::from_pem_slice(pem).ok().map(|c| c.to_vec())
}

/// Returns the end of the first certificate in `pem`, microseconds since the epoch.
pub(crate) fn ends_us(pem: &[u8]) -> Option<u64> {
    let der = certificate(pem)?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).ok()?;
    let ends_s = u64::try_from(parsed.validity().not_after.timestamp()).ok()?;
    ends_s.checked_mul(1_000_000)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Returns a client configuration that trusts only the CA in `ca_pem` and presents the certificate
/// in `cert_pem`.
pub(crate) fn enrolled(
    ca_pem: &[u8],
    cert_pem: &[u8],
    key_pem: &[u8],
) -> Result<ClientConfig, SyncError> {
    let pem =
        |e: rustls::pki_types::pem::Error| SyncError::Tls(rustls::Error::General(e.to_string()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem) {
        roots.add(certificate.map_err(pem)?)?;
    }
    let chain =
        CertificateDer::pem_slice_iter(cert_pem).collect::<Result<Vec<_>, _>>().map_err(pem)?;
    let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(pem)?;
    Ok(ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)?)
}

/// Returns a client configuration without certificate that trusts only the CA with this
/// fingerprint, which the server must send in its chain, and a flag that is set if a server did not
/// send it.
pub(crate) fn pinned(ca_fingerprint: &str) -> Result<(ClientConfig, Arc<AtomicBool>), SyncError> {
    let stranger = Arc::new(AtomicBool::new(false));
    let verifier = PinnedCa {
        fingerprint: ca_fingerprint.to_owned(),
        provider: provider(),
        stranger: Arc::clone(&stranger),
    };
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok((config, stranger))
}

/// A verifier that trusts a single root: the certificate in the server's chain whose fingerprint is
/// in the enrolment token.
#[derive(Debug)]
struct PinnedCa {
    fingerprint: String,
    provider: Arc<CryptoProvider>,
    stranger: Arc<AtomicBool>,
}

impl ServerCertVerifier for PinnedCa {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(ca) = intermediates.iter().find(|c| fingerprint(c) == self.fingerprint) else {
            self.stranger.store(true, Ordering::SeqCst);
            return Err(CertificateError::UnknownIssuer.into());
        };
        let mut roots = RootCertStore::empty();
        roots.add(ca.clone().into_owned())?;
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider))
            .build()
            .map_err(|e| rustls::Error::General(e.to_string()))?
            .verify_server_cert(end_entity, intermediates, server_name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
