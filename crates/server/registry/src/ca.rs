//! The server's certificate authority (EC P-256): made at first start, its key in `ca.key` (mode
//! 0600), its certificate in `ca.pem`. It signs this server's certificates and those of agents,
//! and nothing else.

use std::net::IpAddr;
use std::path::Path;

use env::random::Random;
use model::AgentId;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use ring::digest::{SHA256, digest};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use state::registry::NewCertificate;
use time::OffsetDateTime;

use crate::limits::{
    AGENT_CERTIFICATE_SECONDS, CA_SECONDS, CLOCK_SKEW_SECONDS, CSR_BYTES_MAX,
    SERVER_CERTIFICATE_SECONDS,
};
use crate::types::IssuedKeyPair;
use crate::{RegistryError, files};

/// Key of the authority.
const KEY_FILE: &str = "ca.key";
/// Certificate of the authority.
const CERT_FILE: &str = "ca.pem";
/// Bytes of a certificate's serial number.
const SERIAL_BYTES: usize = 16;

/// The authority with its key.
pub(crate) struct Authority {
    pub(crate) pem: String,
    pub(crate) fingerprint: String,
    issuer: Issuer<'static, KeyPair>,
}

fn bad(error: impl std::fmt::Display) -> RegistryError {
    RegistryError::Certificate(error.to_string())
}

/// SHA-256 of DER bytes.
pub(crate) fn fingerprint(der: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, der).as_ref());
    out
}

impl Authority {
    /// Load it from `folder`, or make it there. `relied_on`: agents trust the one that should be
    /// there, so a missing one is an error and not a first start.
    pub(crate) fn open(
        folder: &Path,
        cluster: &str,
        relied_on: bool,
        random: &dyn Random,
        now_s: i64,
    ) -> Result<Self, RegistryError> {
        let (key_path, cert_path) = (folder.join(KEY_FILE), folder.join(CERT_FILE));
        match (files::read_private(&key_path)?, files::read(&cert_path)?) {
            (Some(key), Some(pem)) => Self::load(&key, pem).map_err(|(file, cause)| {
                let path = if file == KEY_FILE { &key_path } else { &cert_path };
                files::failed(path, &cause)
            }),
            (None, Some(_)) => Err(RegistryError::CaLost { path: key_path }),
            (_, None) if relied_on => Err(RegistryError::CaLost { path: cert_path }),
            // A key without a certificate is a first start that did not come to its end.
            (_, None) => {
                let (key, pem) = make(cluster, random, now_s)?;
                files::write_private(&key_path, &key)?;
                files::write(&cert_path, &pem, files::PUBLIC_MODE)?;
                tracing::info!(path = %cert_path.display(), "made a certificate authority");
                Self::load(&key, pem).map_err(|(_, cause)| bad(cause))
            }
        }
    }

    /// Where it is none: which of the two files is at fault, and why.
    fn load(key: &str, pem: String) -> Result<Self, (&'static str, String)> {
        fn fault<E: std::fmt::Display>(file: &'static str) -> impl Fn(E) -> (&'static str, String) {
            move |e| (file, format!("{e}: restore {KEY_FILE} and {CERT_FILE} from one backup"))
        }
        let key = KeyPair::from_pem(key).map_err(fault(KEY_FILE))?;
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(fault(CERT_FILE))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).map_err(fault(CERT_FILE))?;
        if parsed.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
            return Err(fault(CERT_FILE)(format!("does not belong to {KEY_FILE}")));
        }
        let issuer = Issuer::from_ca_cert_der(&der, key).map_err(fault(CERT_FILE))?;
        Ok(Self { fingerprint: hex::encode(fingerprint(&der)), pem, issuer })
    }

    /// A certificate for an agent's signing request. Of the request only the key counts: name,
    /// use and time are the authority's.
    pub(crate) fn agent_certificate(
        &self,
        agent: AgentId,
        csr: &CertificateSigningRequestParams,
        random: &dyn Random,
        now_s: i64,
    ) -> Result<NewCertificate, RegistryError> {
        let not_before_s = now_s - CLOCK_SKEW_SECONDS;
        let not_after_s = now_s + AGENT_CERTIFICATE_SECONDS;
        let mut params = params(&agent.to_string(), not_before_s, not_after_s, random)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let certificate = params.signed_by(&csr.public_key, &self.issuer).map_err(bad)?;
        Ok(NewCertificate {
            fingerprint: fingerprint(certificate.der()),
            not_before_s,
            not_after_s,
            pem: certificate.pem(),
        })
    }

    /// A certificate and key for this server under all of `names`.
    pub(crate) fn server_certificate(
        &self,
        names: &[String],
        random: &dyn Random,
        now_s: i64,
    ) -> Result<IssuedKeyPair, RegistryError> {
        let (from, to) = (now_s - CLOCK_SKEW_SECONDS, now_s + SERVER_CERTIFICATE_SECONDS);
        let common_name = names.first().map_or("localhost", String::as_str);
        let mut params = params(common_name, from, to, random)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.subject_alt_names = names.iter().map(|n| san(n)).collect::<Result<_, _>>()?;
        let key = KeyPair::generate().map_err(bad)?;
        let leaf = params.signed_by(&key, &self.issuer).map_err(bad)?;
        Ok(IssuedKeyPair {
            cert_chain_pem: format!("{}{}", leaf.pem(), self.pem),
            key_pem: key.serialize_pem(),
        })
    }
}

/// Read a signing request and verify that it is signed with the key that it names.
pub(crate) fn read_csr(pem: &str) -> Result<CertificateSigningRequestParams, String> {
    if pem.len() > CSR_BYTES_MAX {
        return Err(format!("larger than {CSR_BYTES_MAX} bytes"));
    }
    CertificateSigningRequestParams::from_pem(pem).map_err(|e| e.to_string())
}

fn make(cluster: &str, random: &dyn Random, now_s: i64) -> Result<(String, String), RegistryError> {
    // The suffix tells the authorities of two first starts apart.
    let suffix = hex::encode(random.next_u64()?.to_be_bytes());
    let name = format!("Holdfast CA {cluster} {suffix}");
    let mut params = params(&name, now_s - CLOCK_SKEW_SECONDS, now_s + CA_SECONDS, random)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.use_authority_key_identifier_extension = false;
    let key = KeyPair::generate().map_err(bad)?;
    let pem = params.self_signed(&key).map_err(bad)?.pem();
    Ok((key.serialize_pem(), pem))
}

fn params(
    common_name: &str,
    not_before_s: i64,
    not_after_s: i64,
    random: &dyn Random,
) -> Result<CertificateParams, RegistryError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = OffsetDateTime::from_unix_timestamp(not_before_s).map_err(bad)?;
    params.not_after = OffsetDateTime::from_unix_timestamp(not_after_s).map_err(bad)?;
    params.use_authority_key_identifier_extension = true;
    let mut serial = [0; SERIAL_BYTES];
    random.fill(&mut serial)?;
    // A serial number is positive and keeps its length: RFC 5280, 4.1.2.2.
    if let Some(first) = serial.first_mut() {
        *first = *first & 0x7f | 0x40;
    }
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(params)
}

fn san(name: &str) -> Result<SanType, RegistryError> {
    if let Ok(ip) = name.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(ip));
    }
    let valid =
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_*".contains(&b));
    let dns = name.try_into().ok().filter(|_| valid);
    dns.map(SanType::DnsName)
        .ok_or_else(|| bad(format!("{name:?} is neither a DNS name nor an IP address")))
}
