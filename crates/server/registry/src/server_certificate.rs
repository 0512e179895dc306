//! The certificate that this server presents to clients. It is issued at start, and issued again at
//! the first connection after two thirds of its life, or within a minute after the host got another
//! name or address. Existing connections are not affected.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::crypto::ring::default_provider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::ca::san;
use crate::limits::{CLOCK_SKEW_SECONDS, SERVER_CERTIFICATE_SECONDS};
use crate::{Registry, RegistryError};

/// Delay before a certificate that could not be issued is retried, seconds.
const RETRY_SECONDS: i64 = 60;
/// Interval at which the names of the host are read, seconds.
const NAMES_EVERY_SECONDS: i64 = 60;

/// A server's certificate with its key, which the TLS library requests at each handshake.
pub struct ServerCertificate {
    registry: Registry,
    names: Vec<String>,
    held: RwLock<IssuedCertificate>,
}

struct IssuedCertificate {
    key: Arc<CertifiedKey>,
    /// Time of issue; if the clock was set back before it, a new certificate is issued.
    issued_at_s: i64,
    renew_at_s: i64,
    names: Vec<String>,
    /// Time at which the names of the host were read.
    read_at_s: i64,
}

impl Registry {
    /// Returns the names of a server certificate: `names`, and those of this host as it is now. A
    /// name of the host that no certificate can have is left out.
    pub(crate) fn certificate_names(&self, names: &[String]) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        let own = (self.inner.options.host_names)().into_iter().filter(|name| san(name).is_ok());
        for name in names.iter().cloned().chain(own) {
            if !all.contains(&name) {
                all.push(name);
            }
        }
        all
    }
}

impl ServerCertificate {
    pub(crate) fn new(registry: Registry, names: &[String]) -> Result<Self, RegistryError> {
        let now_s = registry.now().wall_s;
        let held = RwLock::new(issue(&registry, registry.certificate_names(names), now_s)?);
        Ok(Self { registry, names: names.to_vec(), held })
    }

    /// Returns the certificate to present now.
    pub fn current(&self) -> Arc<CertifiedKey> {
        let now_s = self.registry.now().wall_s;
        {
            let held = self.held.read();
            if held.is_good(now_s) {
                return Arc::clone(&held.key);
            }
        }
        let mut held = self.held.write();
        // Another connection may have issued one first.
        if held.is_good(now_s) {
            return Arc::clone(&held.key);
        }
        let names = self.registry.certificate_names(&self.names);
        if held.is_valid(now_s) && held.names == names {
            held.read_at_s = now_s;
            return Arc::clone(&held.key);
        }
        match issue(&self.registry, names, now_s) {
            Ok(new) => {
                tracing::info!(names = ?new.names, "the server's certificate was renewed");
                *held = new;
            }
            Err(error) => {
                tracing::error!(%error, "the server's certificate was not renewed");
                (held.issued_at_s, held.renew_at_s) = (now_s, now_s + RETRY_SECONDS);
                held.read_at_s = now_s;
            }
        }
        Arc::clone(&held.key)
    }
}

impl IssuedCertificate {
    fn is_good(&self, now_s: i64) -> bool {
        let read = self.read_at_s..self.read_at_s + NAMES_EVERY_SECONDS;
        self.is_valid(now_s) && read.contains(&now_s)
    }

    fn is_valid(&self, now_s: i64) -> bool {
        (self.issued_at_s - CLOCK_SKEW_SECONDS..self.renew_at_s).contains(&now_s)
    }
}

fn issue(
    registry: &Registry,
    names: Vec<String>,
    now_s: i64,
) -> Result<IssuedCertificate, RegistryError> {
    let bad = |e: &dyn fmt::Display| RegistryError::Certificate(e.to_string());
    let pair = registry.issue_server_certificate(&names)?;
    let chain = CertificateDer::pem_slice_iter(pair.cert_chain_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| bad(&e))?;
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).map_err(|e| bad(&e))?;
    let key = CertifiedKey::from_der(chain, key, &default_provider()).map_err(|e| bad(&e))?;
    let renew_at_s = now_s + SERVER_CERTIFICATE_SECONDS / 3 * 2;
    let (key, issued_at_s, read_at_s) = (Arc::new(key), now_s, now_s);
    Ok(IssuedCertificate { key, issued_at_s, renew_at_s, names, read_at_s })
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

impl fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCertificate").field("names", &self.names).finish_non_exhaustive()
    }
}
