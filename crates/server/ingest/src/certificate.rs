//! The TLS certificate of ports. If its files are replaced while the ports are open, the next
//! connection gets the new certificate.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use env::regular;
use parking_lot::RwLock;
use rustls::crypto::ring::default_provider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// Modification time and size of both files.
type Stamp = [Option<(SystemTime, u64)>; 2];

/// A certificate chain (leaf first) and its key, both PEM. If the files become invalid or do not
/// match each other, the certificate read before stays in use.
#[derive(Debug)]
pub struct CertificateFiles {
    chain: PathBuf,
    key: PathBuf,
    held: RwLock<(Stamp, Arc<CertifiedKey>)>,
}

impl CertificateFiles {
    /// Reads both files.
    ///
    /// # Errors
    /// Returns an error if the files are not a certificate and a key, or do not match.
    pub fn open(chain: PathBuf, key: PathBuf) -> Result<Self, String> {
        let stamp = [&*chain, &*key].map(stamp);
        let held = RwLock::new((stamp, read(&chain, &key)?));
        Ok(Self { chain, key, held })
    }

    /// Returns the certificate to present now; reads the files again if they have changed.
    pub fn current(&self) -> Arc<CertifiedKey> {
        let now = [&*self.chain, &*self.key].map(stamp);
        {
            let held = self.held.read();
            if held.0 == now {
                return Arc::clone(&held.1);
            }
        }
        let mut held = self.held.write();
        // Another connection may have read the files first.
        if held.0 != now {
            held.0 = now;
            match read(&self.chain, &self.key) {
                Ok(new) => {
                    held.1 = new;
                    tracing::info!("{}: the certificate was reloaded", self.chain.display());
                }
                Err(e) => tracing::error!("{e}; the certificate from before is shown"),
            }
        }
        Arc::clone(&held.1)
    }
}

impl ResolvesServerCert for CertificateFiles {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let meta = fs::metadata(path).ok()?;
    Some((meta.modified().ok()?, meta.len()))
}

fn read(chain: &Path, key: &Path) -> Result<Arc<CertifiedKey>, String> {
    let bad = |path: &Path, e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let file = |path: &Path| regular::read(path).map_err(|e| bad(path, &e));
    let certificates = CertificateDer::pem_slice_iter(&file(chain)?.bytes)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| bad(chain, &e))?;
    if certificates.is_empty() {
        return Err(bad(chain, &"no certificate in it; write PEM, the server's own first"));
    }
    let secret_file = file(key)?;
    if secret_file.is_readable_by_all() {
        tracing::warn!("{}: every user may read this key; run chmod o-r on it", key.display());
    }
    let secret = PrivateKeyDer::from_pem_slice(&secret_file.bytes).map_err(|e| bad(key, &e))?;
    let made = CertifiedKey::from_der(certificates, secret, &default_provider());
    made.map(Arc::new).map_err(|e| bad(chain, &e))
}
