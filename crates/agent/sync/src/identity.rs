//! The agent's identity, as files in its folder: `key.pem` (0600), `cert.pem`, `ca.pem` and
//! `agent.json`. Each file is replaced by rename, key and certificate together, so that a crash
//! leaves the old or the new state. A renewed pair is kept in `key.next.pem` and `cert.next.pem`
//! until the server has answered a request made with it.
//!
//! An enrolment begins with its key in `key.enrol.pem` and ends with the removal of that file. In
//! between, the server may know the agent although the certificate is not stored here: the next
//! attempt uses the same key, and the server issues the certificate again.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use env::files::{Access, Files, RealFiles};
use model::AgentId;
use rcgen::KeyPair;
use serde::{Deserialize, Serialize};

use crate::{SyncError, tls};

/// Key of a renewed pair that has not been used successfully yet.
const NEXT_KEY: &str = "key.next.pem";
const NEXT_CERT: &str = "cert.next.pem";
/// Key of an enrolment that is not complete.
const ENROL_KEY: &str = "key.enrol.pem";
const IDENTITY: &str = "agent.json";

/// The content of `agent.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The agent's number.
    pub id: AgentId,
    /// Name under which the agent enrolled.
    pub name: String,
    /// URL of the server, e.g. `https://10.0.0.1:1517`.
    pub server_url: String,
    /// The server's cluster name; sessions carry it.
    pub cluster_name: String,
}

/// The folder that holds an identity.
#[derive(Clone)]
pub struct IdentityFolder {
    path: PathBuf,
    files: Arc<dyn Files>,
}

impl fmt::Debug for IdentityFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IdentityFolder").field(&self.path).finish()
    }
}

impl IdentityFolder {
    /// Refers to a folder, whether it exists or not.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self::on(Arc::new(RealFiles), folder)
    }

    /// Refers to a folder of another file system.
    pub fn on(files: Arc<dyn Files>, folder: impl Into<PathBuf>) -> Self {
        Self { path: folder.into(), files }
    }

    /// Reads the identity; `None` if the agent is not enrolled, or its enrolment is not complete and
    /// is to be repeated.
    ///
    /// # Errors
    /// See [`IdentityFolder::load`].
    pub fn enrolled(&self) -> Result<Option<Identity>, SyncError> {
        if self.exists(ENROL_KEY) { Ok(None) } else { self.load() }
    }

    /// Reads the identity; `None` if the agent is not enrolled yet.
    ///
    /// # Errors
    /// Returns an error if `agent.json` exists but is unreadable or malformed.
    pub fn load(&self) -> Result<Option<Identity>, SyncError> {
        let Some(text) = self.read_if_there(IDENTITY)? else { return Ok(None) };
        serde_json::from_slice(&text).map(Some).map_err(|e| {
            SyncError::file(&self.path.join(IDENTITY), io::Error::other(e.to_string()))
        })
    }

    /// Changes the server's URL; writes nothing if it is unchanged.
    ///
    /// # Errors
    /// Returns an error if the agent is not enrolled or `agent.json` cannot be replaced.
    pub fn set_server_url(&self, server_url: &str) -> Result<(), SyncError> {
        let missing = || SyncError::Identity(format!("{} holds none", self.path.display()));
        let identity = self.load()?.ok_or_else(missing)?;
        if identity.server_url == server_url {
            return Ok(());
        }
        self.store_identity(&Identity { server_url: server_url.to_owned(), ..identity })
    }

    fn store_identity(&self, identity: &Identity) -> Result<(), SyncError> {
        let json = serde_json::to_vec_pretty(identity)
            .map_err(|e| SyncError::file(&self.path, io::Error::other(e.to_string())))?;
        self.replace(IDENTITY, &json, 0o640)
    }

    /// Returns the key to enrol with: that of an enrolment that was not completed, or else a new
    /// one, which is persisted before any server sees it.
    pub(crate) fn enrolment_key(&self) -> Result<KeyPair, SyncError> {
        if let Some(pem) = self.read_if_there(ENROL_KEY)?
            && let Ok(key) = KeyPair::from_pem(&String::from_utf8_lossy(&pem))
        {
            return Ok(key);
        }
        let key = KeyPair::generate()?;
        self.files.create_dir(&self.path).map_err(|e| SyncError::file(&self.path, e))?;
        self.replace(ENROL_KEY, key.serialize_pem().as_bytes(), 0o600)?;
        Ok(key)
    }

    /// Writes a new identity and completes the enrolment. `agent.json` comes last, because an agent
    /// starts if it is present.
    pub(crate) fn store(
        &self,
        identity: &Identity,
        key_pem: &str,
        certificate_pem: &str,
        ca_pem: &str,
    ) -> Result<(), SyncError> {
        self.files.create_dir(&self.path).map_err(|e| SyncError::file(&self.path, e))?;
        // A pending pair of an earlier identity must not replace this one.
        self.drop_next()?;
        self.store_ca(ca_pem)?;
        self.store_pair(key_pem, certificate_pem)?;
        self.store_identity(identity)?;
        self.remove(ENROL_KEY)
    }

    pub(crate) fn store_ca(&self, ca_pem: &str) -> Result<(), SyncError> {
        self.replace("ca.pem", ca_pem.as_bytes(), 0o644)
    }

    /// Replaces key and certificate together. Both are written under temporary names before the
    /// first is renamed, so that a crash at any point leaves the old pair, the new pair, or a state
    /// that [`IdentityFolder::complete_replacement`] completes to the new pair.
    pub(crate) fn store_pair(&self, key_pem: &str, cert_pem: &str) -> Result<(), SyncError> {
        self.complete_replacement()?;
        self.write_fresh("key.pem", key_pem.as_bytes(), 0o600)?;
        self.write_fresh("cert.pem", cert_pem.as_bytes(), 0o644)?;
        self.persist()?;
        self.rename_fresh("key.pem")?;
        // Synced before the certificate is renamed, so that a new key implies a complete
        // certificate.
        self.persist()?;
        self.rename_fresh("cert.pem")?;
        self.persist()?;
        // Any pending pair is this one or an older one.
        self.drop_next()
    }

    /// Stores a renewed pair next to the present one.
    pub(crate) fn store_next(&self, key_pem: &str, cert_pem: &str) -> Result<(), SyncError> {
        // The certificate comes last: its presence implies that the key is complete.
        self.replace(NEXT_KEY, key_pem.as_bytes(), 0o600)?;
        self.replace(NEXT_CERT, cert_pem.as_bytes(), 0o644)
    }

    /// Returns true if a renewed pair is pending.
    pub(crate) fn has_next(&self) -> bool {
        self.exists(NEXT_CERT)
    }

    /// Replaces the present pair by the renewed one.
    pub(crate) fn take_next(&self) -> Result<(), SyncError> {
        let [key, cert] = [NEXT_KEY, NEXT_CERT].map(|name| self.text(name));
        self.store_pair(&key?, &cert?)
    }

    /// Deletes the renewed pair.
    pub(crate) fn drop_next(&self) -> Result<(), SyncError> {
        self.remove(NEXT_CERT)?;
        self.remove(NEXT_KEY)
    }

    fn text(&self, name: &str) -> Result<String, SyncError> {
        String::from_utf8(self.read(name)?)
            .map_err(|e| SyncError::file(&self.path.join(name), io::Error::other(e)))
    }

    /// Returns the TLS configuration with the pending renewed pair.
    pub(crate) fn next_tls(&self) -> Result<rustls::ClientConfig, SyncError> {
        tls::enrolled(&self.read("ca.pem")?, &self.read(NEXT_CERT)?, &self.read(NEXT_KEY)?)
    }

    /// Completes or discards a replacement that a crash interrupted.
    pub(crate) fn complete_replacement(&self) -> Result<(), SyncError> {
        let (key, cert) = (fresh("key.pem"), fresh("cert.pem"));
        if self.exists(&key) {
            self.remove(&cert)?;
            return self.remove(&key);
        }
        if self.exists(&cert) {
            self.rename_fresh("cert.pem")?;
            self.persist()?;
        }
        Ok(())
    }

    /// Returns the agent's certificate as DER bytes; `None` if the key, the certificate or the CA
    /// cannot be used.
    pub fn certificate(&self) -> Option<Vec<u8>> {
        self.tls().ok()?;
        tls::certificate(&self.read("cert.pem").ok()?)
    }

    /// Returns the TLS configuration with the folder's pair and CA.
    pub(crate) fn tls(&self) -> Result<rustls::ClientConfig, SyncError> {
        self.complete_replacement()?;
        // The enrolment that wrote `agent.json` may have ended before it removed its key.
        if self.exists(IDENTITY) {
            self.remove(ENROL_KEY)?;
        }
        let read = |name: &str| {
            self.read(name).map_err(|e| SyncError::Identity(format!("{e} (agent.json is there)")))
        };
        tls::enrolled(&read("ca.pem")?, &read("cert.pem")?, &read("key.pem")?).map_err(|e| {
            let files = self.path.display();
            SyncError::Identity(format!("{files}: key.pem, cert.pem or ca.pem is damaged: {e}"))
        })
    }

    pub(crate) fn read(&self, name: &str) -> Result<Vec<u8>, SyncError> {
        let path = self.path.join(name);
        self.try_read(&path).map_err(|e| SyncError::file(&path, e))
    }

    fn read_if_there(&self, name: &str) -> Result<Option<Vec<u8>>, SyncError> {
        let path = self.path.join(name);
        match self.try_read(&path) {
            Ok(content) => Ok(Some(content)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(SyncError::file(&path, e)),
        }
    }

    fn try_read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.files.open(path, Access::READ)?;
        let mut content = vec![0; usize::try_from(file.size()?).map_err(io::Error::other)?];
        let length = file.read_at(&mut content, 0)?;
        content.truncate(length);
        Ok(content)
    }

    fn exists(&self, name: &str) -> bool {
        self.files.open(&self.path.join(name), Access::READ).is_ok()
    }

    fn remove(&self, name: &str) -> Result<(), SyncError> {
        let path = self.path.join(name);
        match self.files.remove(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(SyncError::file(&path, e)),
            _ => Ok(()),
        }
    }

    fn replace(&self, name: &str, content: &[u8], mode: u32) -> Result<(), SyncError> {
        self.write_fresh(name, content, mode)?;
        self.rename_fresh(name)?;
        self.persist()
    }

    fn write_fresh(&self, name: &str, content: &[u8], mode: u32) -> Result<(), SyncError> {
        let path = self.path.join(fresh(name));
        let write = || -> io::Result<()> {
            let file = self.files.open(&path, Access { mode, ..Access::CREATE })?;
            file.set_size(0)?;
            file.write_all_at(content, 0)?;
            file.persist()
        };
        write().map_err(|e| SyncError::file(&path, e))
    }

    fn rename_fresh(&self, name: &str) -> Result<(), SyncError> {
        let path = self.path.join(name);
        let renamed = self.files.rename(&self.path.join(fresh(name)), &path);
        renamed.map_err(|e| SyncError::file(&path, e))
    }

    /// Syncs the folder, so that its entries survive a power cut.
    fn persist(&self) -> Result<(), SyncError> {
        self.files.persist_dir(&self.path).map_err(|e| SyncError::file(&self.path, e))
    }

    /// Returns the folder's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns the temporary name under which a file is written before it is renamed.
fn fresh(name: &str) -> String {
    format!("{name}.new")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn stored_identity_is_loaded_and_key_file_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let it = IdentityFolder::new(folder.path().join("new"));
        assert_eq!(it.load().unwrap(), None);
        let identity = Identity {
            id: AgentId(3),
            name: "web-1".into(),
            server_url: "https://localhost:1517".into(),
            cluster_name: "holdfast".into(),
        };
        it.store(&identity, "key", "cert", "ca").unwrap();
        assert_eq!(it.load().unwrap(), Some(identity));
        let mode = fs::metadata(it.path().join("key.pem")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn interrupted_key_replacement_leaves_matching_pair() {
        let folder = tempfile::tempdir().unwrap();
        let it = IdentityFolder::new(folder.path());
        let content = |name: &str| String::from_utf8(it.read(name).unwrap()).unwrap();
        it.store_pair("key 1", "cert 1").unwrap();
        // A crash before the first rename, with a truncated certificate.
        fs::write(folder.path().join("key.pem.new"), "key 2").unwrap();
        fs::write(folder.path().join("cert.pem.new"), "ce").unwrap();
        it.complete_replacement().unwrap();
        assert_eq!((content("key.pem"), content("cert.pem")), ("key 1".into(), "cert 1".into()));
        assert!(
            !folder.path().join("cert.pem.new").exists()
                && !folder.path().join("key.pem.new").exists()
        );
        // A crash between the two renames.
        fs::write(folder.path().join("cert.pem.new"), "cert 2").unwrap();
        fs::write(folder.path().join("key.pem"), "key 2").unwrap();
        it.complete_replacement().unwrap();
        assert_eq!((content("key.pem"), content("cert.pem")), ("key 2".into(), "cert 2".into()));
    }

    #[test]
    fn damaged_identity_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("agent.json"), b"{").unwrap();
        let error = IdentityFolder::new(folder.path()).load().unwrap_err().to_string();
        assert!(error.contains("agent.json"), "{error}");
    }
}
