//! TLS of the listener: one certificate, TLS 1.2 and 1.3, HTTP/1.1 and HTTP/2.

use std::io;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::ResolvesServerCert;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::ServeError;

/// Answer to a request in plain HTTP.
const PLAIN_HTTP: &str = "HTTP/1.1 400 Bad Request\r\n\
    Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n\
    this port speaks HTTPS: use an address that begins with https://\n";

/// A certificate chain and its key as PEM.
#[derive(Clone)]
pub struct TlsPem {
    pub cert_chain_pem: String,
    /// PKCS#8, SEC 1 or PKCS#1.
    pub key_pem: String,
}

pub(super) fn acceptor(pem: &TlsPem) -> Result<TlsAcceptor, ServeError> {
    let refused = |cause: &dyn std::fmt::Display| ServeError::Tls(cause.to_string());
    let chain = CertificateDer::pem_slice_iter(pem.cert_chain_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| refused(&e))?;
    let key = PrivateKeyDer::from_pem_slice(pem.key_pem.as_bytes()).map_err(|e| refused(&e))?;
    let provider = rustls::crypto::ring::default_provider();
    let key = CertifiedKey::from_der(chain, key, &provider).map_err(|e| refused(&e))?;
    resolved(Arc::new(SingleCertAndKey::from(key)))
}

pub(super) fn resolved(own: Arc<dyn ResolvesServerCert>) -> Result<TlsAcceptor, ServeError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| ServeError::Tls(e.to_string()))?
        .with_no_client_auth()
        .with_cert_resolver(own);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Performs the handshake. A request in plain HTTP is redirected to HTTPS.
pub(super) async fn handshake(
    acceptor: &TlsAcceptor,
    mut stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    let mut first = [0];
    // A handshake begins with the byte 22, a request with the first letter of its method.
    let read = stream.peek(&mut first).await?;
    if read == 0 || !first.iter().all(u8::is_ascii_uppercase) {
        return acceptor.accept(stream).await;
    }
    // If the request were left unread, closing the connection could discard the answer.
    let mut head = [0; 4096];
    let read = stream.read(&mut head).await?;
    let answer = head.get(..read).and_then(redirect).unwrap_or_else(|| PLAIN_HTTP.to_owned());
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    Err(io::Error::other("a request in plain HTTP"))
}

/// Returns the redirection of a GET to HTTPS. One with a token gets none: it must not seem to work
/// while its token travels in plain text.
fn redirect(head: &[u8]) -> Option<String> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let is_get = request.parse(head).ok()?.is_complete() && request.method == Some("GET");
    let path = request.path.filter(|path| is_get && path.starts_with('/'))?;
    let named = |name| request.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name));
    let host = named("host").filter(|_| named("authorization").is_none())?.value;
    let host = std::str::from_utf8(host).ok().filter(|host| !host.is_empty())?;
    Some(format!(
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: https://{host}{path}\r\n\
         Cache-Control: no-store\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    ))
}
