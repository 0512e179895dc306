//! TLS 1.2 and 1.3 on *ring*: a server certificate and client certificates of this server's authority. A
//! client certificate is optional in the handshake, because an agent that enrols has none yet.

use std::sync::Arc;

use registry::Registry;
use rustls::server::{ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::error::SessionsError;
use crate::verifier::AgentVerifier;

/// TLS sessions cached so that an agent's next connection is cheap.
const RESUMABLE_MAX: usize = 4096;

pub(crate) fn server_config(
    registry: &Registry,
    names: &[String],
) -> Result<Arc<ServerConfig>, SessionsError> {
    let tls = |e: &dyn std::fmt::Display| SessionsError::Tls(e.to_string());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let own = Arc::new(registry.server_certificate(names)?);
    let mut roots = RootCertStore::empty();
    for authority in certificates(&registry.ca_pem())? {
        roots.add(authority).map_err(|e| tls(&e))?;
    }
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .map_err(|e| tls(&e))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|e| tls(&e))?
        .with_client_cert_verifier(Arc::new(AgentVerifier::new(verifier, registry.clone())))
        .with_cert_resolver(own);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.session_storage = ServerSessionMemoryCache::new(RESUMABLE_MAX);
    Ok(Arc::new(config))
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, SessionsError> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|e| SessionsError::Tls(format!("certificate: {e}")))
}
