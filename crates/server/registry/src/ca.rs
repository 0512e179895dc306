//! The server's certificate authority (EC P-256). It is created at first start, with its key in
//! `ca.key` (mode 0600) and its certificate in `ca.pem`. It signs only this server's certificates
//! and those of agents.

use std::net::IpAddr;
use std::path::Path;

use control::NewCertificate;
use env::random::Random;
use model::AgentId;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType,
    SerialNumber,
};
use ring::digest::{SHA256, digest};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use time::OffsetDateTime;

use crate::fleet::Now;
use crate::limits::{
    AGENT_CERTIFICATE_SECONDS, CA_BACKDATE_SECONDS, CA_SECONDS, CLOCK_SKEW_SECONDS, CSR_BYTES_MAX,
    SERVER_CERTIFICATE_BACKDATE_SECONDS, SERVER_CERTIFICATE_SECONDS,
};
use crate::types::IssuedKeyPair;
use crate::{RegistryError, files};

/// Key of the authority.
pub(crate) const KEY_FILE: &str = "ca.key";
/// Certificate of the authority.
pub(crate) const CERT_FILE: &str = "ca.pem";
/// Bytes of a certificate's serial number.
const SERIAL_BYTES: usize = 16;

/// The authority with its key.
pub(crate) struct Authority {
    pub(crate) pem: String,
    pub(crate) fingerprint: String,
    issuer: Issuer<'static, KeyPair>,
    validity: Validity,
}

/// The validity of a certificate, seconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// First second.
    pub begins_s: i64,
    /// Last second.
    pub ends_s: i64,
}

/// Reissues the authority's certificate with the same key and name and a new validity, for an
/// authority that was created at a wrong time. Enrolled agents continue to work, because they trust
/// the key. The old certificate must be replaced where it was installed by hand, and earlier
/// enrolment tokens become invalid. Returns the new validity. No server may be running on the
/// folder.
///
/// # Errors
/// Returns an error if there is no authority in `folder`, or a file cannot be read or written.
pub fn reissue_authority(
    folder: &Path,
    random: &dyn Random,
    now_s: i64,
) -> Result<Validity, RegistryError> {
    let (key_path, cert_path) = (folder.join(KEY_FILE), folder.join(CERT_FILE));
    let Some(key) = files::read_private(&key_path)? else {
        return Err(RegistryError::CaLost { path: key_path });
    };
    let Some(pem) = files::read(&cert_path)? else {
        return Err(RegistryError::CaLost { path: cert_path });
    };
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(bad)?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).map_err(bad)?;
    let name = parsed.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    let name = name.ok_or_else(|| files::failed(&cert_path, "has no name"))?;
    let key = KeyPair::from_pem(&key).map_err(bad)?;
    let pem = authority_pem(name, &key, random, now_s)?;
    files::write(&cert_path, &pem, files::PUBLIC_MODE)?;
    Ok(Validity::of_authority(now_s))
}

impl Validity {
    fn of_authority(now_s: i64) -> Self {
        Self { begins_s: now_s - CA_BACKDATE_SECONDS, ends_s: now_s + CA_SECONDS }
    }
}

fn bad(error: impl std::fmt::Display) -> RegistryError {
    RegistryError::Certificate(error.to_string())
}

/// Returns the SHA-256 of DER bytes.
pub(crate) fn fingerprint(der: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, der).as_ref());
    out
}

impl Authority {
    /// Loads the authority from `folder`, or creates it there. If `relied_on` is true, agents trust
    /// an existing authority, so a missing one is an error and not a first start.
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
            // A key without a certificate is left from an incomplete first start.
            (_, None) => {
                let (key, pem) = make(cluster, random, now_s)?;
                files::write_private(&key_path, &key)?;
                files::write(&cert_path, &pem, files::PUBLIC_MODE)?;
                tracing::info!(path = %cert_path.display(), "created a certificate authority");
                Self::load(&key, pem).map_err(|(_, cause)| bad(cause))
            }
        }
    }

    /// Loads the authority; the error names the invalid file and the cause.
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
        let validity = parsed.validity();
        let validity = Validity {
            begins_s: validity.not_before.timestamp(),
            ends_s: validity.not_after.timestamp(),
        };
        let issuer = Issuer::from_ca_cert_der(&der, key).map_err(fault(CERT_FILE))?;
        Ok(Self { fingerprint: hex::encode(fingerprint(&der)), pem, issuer, validity })
    }

    /// Issues a certificate for an agent's signing request. Only the key of the request is used.
    /// The authority sets name, usage and validity.
    pub(crate) fn agent_certificate(
        &self,
        agent: AgentId,
        csr: &CertificateSigningRequestParams,
        random: &dyn Random,
        now_s: i64,
    ) -> Result<NewCertificate, RegistryError> {
        let not_before_s = self.begin_s(now_s);
        let not_after_s = now_s + AGENT_CERTIFICATE_SECONDS;
        let mut params = params(&agent.to_string(), not_before_s, not_after_s, random)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let certificate = params.signed_by(&csr.public_key, &self.issuer).map_err(bad)?;
        Ok(NewCertificate {
            fingerprint: fingerprint(certificate.der()),
            key_digest: fingerprint(&csr.public_key.subject_public_key_info()),
            not_before_s,
            not_after_s,
            pem: certificate.pem(),
        })
    }

    pub(crate) fn problem(&self, now_s: i64) -> Option<String> {
        let Validity { begins_s, ends_s } = self.validity;
        if (begins_s..=ends_s).contains(&now_s) {
            return None;
        }
        let shown = |s: i64| model::timestamp::micros(u64::try_from(s).unwrap_or(0) * 1_000_000);
        Some(format!(
            "the certificate authority is valid from {} to {}, which is not now: it was made while \
             the clock was wrong, or the clock is wrong now; agents go on, browsers refuse the \
             page's certificate. Set the clock right, or stop the server and run `holdfast \
             authority reissue`",
            shown(begins_s),
            shown(ends_s)
        ))
    }

    /// Returns the start of a certificate issued now. It is that of the authority, so that a client
    /// whose clock is behind does not reject the certificate. An authority that was created at a
    /// wrong time may begin later.
    fn begin_s(&self, now_s: i64) -> i64 {
        self.validity.begins_s.min(now_s - CLOCK_SKEW_SECONDS)
    }

    /// Issues a certificate and key for this server under all of `names`, valid at both times of
    /// `now`: agents and browsers check it against their own clocks, and either of ours may be
    /// wrong.
    pub(crate) fn server_certificate(
        &self,
        names: &[String],
        random: &dyn Random,
        now: Now,
    ) -> Result<IssuedKeyPair, RegistryError> {
        let (earlier_s, later_s) = (now.s.min(now.wall_s), now.s.max(now.wall_s));
        let from = self.begin_s(earlier_s).max(earlier_s - SERVER_CERTIFICATE_BACKDATE_SECONDS);
        let to = later_s + SERVER_CERTIFICATE_SECONDS;
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

/// Returns the start of a certificate (DER), seconds since the epoch, or `None` if it is invalid or
/// starts before 1970.
pub fn certificate_begin_s(der: &[u8]) -> Option<u64> {
    let (_, parsed) = x509_parser::parse_x509_certificate(der).ok()?;
    u64::try_from(parsed.validity().not_before.timestamp()).ok()
}

/// Reads a signing request and verifies that it is signed with the key that it names.
pub(crate) fn read_csr(pem: &str) -> Result<CertificateSigningRequestParams, String> {
    if pem.len() > CSR_BYTES_MAX {
        return Err(format!("larger than {CSR_BYTES_MAX} bytes"));
    }
    CertificateSigningRequestParams::from_pem(pem).map_err(|e| e.to_string())
}

fn make(cluster: &str, random: &dyn Random, now_s: i64) -> Result<(String, String), RegistryError> {
    // The suffix distinguishes the authorities of two first starts.
    let suffix = hex::encode(random.next_u64()?.to_be_bytes());
    let name = format!("Holdfast CA {cluster} {suffix}");
    let key = KeyPair::generate().map_err(bad)?;
    let pem = authority_pem(&name, &key, random, now_s)?;
    Ok((key.serialize_pem(), pem))
}

/// Returns the certificate of an authority with this name and key.
fn authority_pem(
    name: &str,
    key: &KeyPair,
    random: &dyn Random,
    now_s: i64,
) -> Result<String, RegistryError> {
    let Validity { begins_s, ends_s } = Validity::of_authority(now_s);
    let mut params = params(name, begins_s, ends_s, random)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.use_authority_key_identifier_extension = false;
    Ok(params.self_signed(key).map_err(bad)?.pem())
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
    random.fill_bytes(&mut serial)?;
    // A serial number is positive and keeps its length: RFC 5280, 4.1.2.2.
    if let Some(first) = serial.first_mut() {
        *first = *first & 0x7f | 0x40;
    }
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(params)
}

pub(crate) fn san(name: &str) -> Result<SanType, RegistryError> {
    if let Ok(ip) = name.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(ip));
    }
    let valid =
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_*".contains(&b));
    let dns = name.try_into().ok().filter(|_| valid);
    dns.map(SanType::DnsName)
        .ok_or_else(|| bad(format!("{name:?} is neither a DNS name nor an IP address")))
}
