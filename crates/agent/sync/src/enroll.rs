//! Enrolment: the exchange of a token for an identity. The key pair is generated here, and the
//! private key never leaves the machine. The token has the CA's fingerprint, so that the first
//! connection is verified as well.

use std::sync::atomic::Ordering;

use link::{EnrollAnswer, EnrollRequest, RenewAnswer, RenewRequest};
use rcgen::{CertificateParams, KeyPair};

use crate::client::{self, Client};
use crate::identity::{Identity, IdentityFolder};
use crate::{SyncError, tls};

/// The arguments of an enrolment.
#[derive(Debug, Clone)]
pub struct EnrollOptions {
    /// URL of the server's agent port, e.g. `https://10.0.0.1:1517`.
    pub server_url: String,
    /// The token, `hf1.<secret>.<fingerprint of the CA>`.
    pub token: String,
    /// Name to enrol under; unique on the server.
    pub name: String,
    /// Requested groups. The groups of the token may differ.
    pub groups: Vec<String>,
    /// Folder in which the identity is stored.
    pub folder: IdentityFolder,
}

/// Enrols the agent and stores the identity in its folder. After an error the same call completes
/// the enrolment: the server does not register the agent a second time.
///
/// # Errors
/// Returns an error if the token is malformed, the server does not answer, cannot be verified
/// against the token or refuses, or a file cannot be written.
pub async fn enroll(options: &EnrollOptions) -> Result<Identity, SyncError> {
    let server_url = options.server_url.trim_end_matches('/').to_owned();
    if !server_url.starts_with("https://") {
        return Err(SyncError::Token(format!("{server_url} is not an https:// address")));
    }
    let ca_fingerprint = ca_fingerprint(&options.token)?;
    let key = options.folder.enrolment_key()?;
    let request = EnrollRequest {
        token: options.token.trim().to_owned(),
        name: options.name.clone(),
        groups: options.groups.clone(),
        ip: None,
        csr: request(&key)?,
    };
    let (config, stranger) = tls::pinned(&ca_fingerprint)?;
    let http = client::http(config)?;
    let answered = client::call(&http, &format!("{server_url}/enroll"), None, &request).await;
    if answered.is_err() && stranger.load(Ordering::SeqCst) {
        return Err(SyncError::Token(format!("{server_url} is not the server that it is from")));
    }
    let answer: EnrollAnswer = answered?;
    if tls::pem_fingerprint(answer.ca.as_bytes()).as_ref() != Some(&ca_fingerprint) {
        return Err(client::protocol(&server_url, "the CA in the answer is not the token's"));
    }
    let identity = Identity {
        id: answer
            .agent
            .parse()
            .map_err(|_| client::protocol(&server_url, "agent id is no number"))?,
        name: options.name.clone(),
        server_url,
        cluster_name: answer.cluster_name,
    };
    options.folder.store(&identity, &key.serialize_pem(), &answer.certificate, &answer.ca)?;
    Ok(identity)
}

/// Requests a certificate for a new key over a connection with the present one. Stores the new pair
/// as pending until the server has answered a request made with it.
///
/// # Errors
/// See [`enroll`].
pub(crate) async fn renew(client: &Client, folder: &IdentityFolder) -> Result<(), SyncError> {
    let key = KeyPair::generate()?;
    let answer: RenewAnswer = client.call("/renew", &RenewRequest { csr: request(&key)? }).await?;
    folder.store_next(&key.serialize_pem(), &answer.certificate)
}

/// Creates a new pair for an enrolled agent that has lost its key or certificate, in a process that
/// runs both server and agent. `sign` takes the request (PEM) and returns the certificate and the
/// CA (PEM).
///
/// # Errors
/// Returns the error of `sign`, or an error if the pair cannot be written.
pub fn certify_again<E: From<SyncError>>(
    folder: &IdentityFolder,
    sign: impl FnOnce(&str) -> Result<(String, String), E>,
) -> Result<(), E> {
    let key = KeyPair::generate().map_err(SyncError::from)?;
    let (certificate, ca) = sign(&request(&key)?)?;
    folder.store_ca(&ca)?;
    Ok(folder.store_pair(&key.serialize_pem(), &certificate)?)
}

/// Builds the certificate request. The server ignores its subject and sets its own.
fn request(key: &KeyPair) -> Result<String, SyncError> {
    Ok(CertificateParams::default().serialize_request(key)?.pem()?)
}

/// Returns the CA's fingerprint in a token.
fn ca_fingerprint(token: &str) -> Result<String, SyncError> {
    let bad =
        |what: &str| SyncError::Token(format!("{what}; it looks like hf1.SECRET.FINGERPRINT"));
    let mut parts = token.trim().split('.');
    let (Some("hf1"), Some(secret), Some(fingerprint), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(bad("not a token of this product"));
    };
    if secret.is_empty() || fingerprint.len() != 64 || hex::decode(fingerprint).is_err() {
        return Err(bad("cut short or mistyped"));
    }
    Ok(fingerprint.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_enrolment_token_is_rejected_locally() {
        let good = format!("hf1.c2VjcmV0.{}", "ab".repeat(32));
        assert_eq!(ca_fingerprint(&good).unwrap(), "ab".repeat(32));
        for bad in ["", "hf1", "hf2.x.y", "hf1.secret.abcd", &good[..good.len() - 1]] {
            let error = ca_fingerprint(bad).unwrap_err().to_string();
            assert!(error.contains("token"), "{bad}: {error}");
        }
    }

    #[test]
    fn certificate_request_is_pem() {
        let pem = request(&KeyPair::generate().unwrap()).unwrap();
        assert!(pem.starts_with("-----BEGIN CERTIFICATE REQUEST-----"), "{pem}");
    }
}
