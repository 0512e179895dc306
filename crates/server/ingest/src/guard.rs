//! Access to a port that is not on a loopback address: TLS, and a token.
//!
//! HTTP carries the token as `Authorization: Bearer TOKEN`, or as the password of `Basic`. The
//! first line of a line-based connection is `auth TOKEN` (RESP: `+auth TOKEN`), within
//! [`AUTH_TIME_MAX`].

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, BytesMut};
use env::sources::{Attempts, LogLimit};
use parking_lot::Mutex;
use rustls::server::ResolvesServerCert;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio_rustls::TlsAcceptor;

/// Longest time from the beginning of a connection to the end of its first line.
pub const AUTH_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest token, in bytes.
pub const TOKEN_BYTES_MAX: usize = 256;
/// Failures of one address until it is refused.
const FAILURES_MAX: u32 = 50;
/// Time for which it is refused, from the first failure on.
const BLOCK_TIME: Duration = Duration::from_mins(5);
/// Addresses whose failures are remembered.
const SOURCES_MAX: usize = 4_096;
/// Longest first line, in bytes.
const LINE_BYTES_MAX: usize = TOKEN_BYTES_MAX + 16;

/// Most connections of one port at a time, by default.
pub const CONNECTIONS_MAX: usize = 1024;

/// The credentials that a caller must present, and the number of callers. The default admits every
/// caller: for loopback addresses.
#[derive(Clone)]
pub struct Guard {
    /// Connections at once on a line-based port.
    pub connections_max: usize,
    /// Accepts TLS on line-based connections; `None` for plain text.
    pub tls: Option<TlsAcceptor>,
    /// The required token.
    pub token: Option<Token>,
}

impl Default for Guard {
    fn default() -> Self {
        Self { connections_max: CONNECTIONS_MAX, tls: None, token: None }
    }
}

/// Returns the TLS acceptor for line-based connections. The certificate is looked up at each
/// handshake.
///
/// # Errors
/// Returns an error if the TLS library cannot be set up.
pub fn tls(certificate: Arc<dyn ResolvesServerCert>) -> Result<TlsAcceptor, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The address of a request's sender; the server attaches it to the requests of its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderAddress(pub IpAddr);

/// A secret that callers present. An address that fails to do so too often is refused for a while,
/// whatever it presents. Clones share the count.
#[derive(Clone)]
pub struct Token {
    text: Arc<str>,
    failures: Arc<Failures>,
}

/// The failures of all callers.
struct Failures {
    start: Instant,
    attempts: Mutex<Attempts>,
    lines: Mutex<LogLimit>,
}

impl Token {
    /// Creates a token from a text, without the spaces around it. Returns `None` if the text is
    /// empty, longer than [`TOKEN_BYTES_MAX`] or contains anything but visible ASCII.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let fits = !text.is_empty() && text.len() <= TOKEN_BYTES_MAX;
        (fits && text.bytes().all(|c| c.is_ascii_graphic())).then(|| Self {
            text: text.into(),
            failures: Arc::new(Failures {
                start: Instant::now(),
                attempts: Mutex::new(Attempts::new(FAILURES_MAX, BLOCK_TIME, SOURCES_MAX)),
                lines: Mutex::default(),
            }),
        })
    }

    /// Returns true if a text is the token. Compares in constant time for texts of the same length.
    pub fn is(&self, text: &[u8]) -> bool {
        let own = self.text.as_bytes();
        let differs = own.iter().zip(text).fold(0, |all, (a, b)| all | (a ^ b));
        own.len() == text.len() && std::hint::black_box(differs) == 0
    }

    /// Returns the time for which an address is still refused.
    pub(crate) fn blocked(&self, source: IpAddr) -> Option<Duration> {
        self.failures.attempts.lock().blocked(source, self.failures.start.elapsed())
    }

    /// Counts a failure of an address, and logs it as far as the limit of lines allows.
    pub(crate) fn count_failure(&self, protocol: &str, source: IpAddr) {
        let now = self.failures.start.elapsed();
        let blocks = self.failures.attempts.lock().failed(source, now);
        if let Some(suppressed) = self.failures.lines.lock().line(Some(source), now) {
            tracing::warn!(%source, not_logged_before = suppressed,
                "{protocol}: the token is missing or wrong");
        }
        if blocks {
            let for_s = BLOCK_TIME.as_secs();
            tracing::warn!(%source, for_s, "series: too many wrong tokens: the address is refused");
        }
    }

    /// Returns true if the value of an `Authorization` header contains the token.
    pub(crate) fn shown_by(&self, authorization: &str) -> bool {
        let Some((scheme, shown)) = authorization.split_once(' ') else { return false };
        let shown = shown.trim();
        if scheme.eq_ignore_ascii_case("bearer") || scheme.eq_ignore_ascii_case("token") {
            return self.is(shown.as_bytes());
        }
        let pair = STANDARD.decode(shown).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"));
        let pair = pair.unwrap_or_default();
        let colon = pair.iter().position(|c| *c == b':');
        colon.and_then(|at| pair.get(at + 1..)).is_some_and(|password| self.is(password))
    }

    /// Reads the first line of a connection. Returns the reply to a connection that is refused.
    pub(crate) async fn authenticate<S: AsyncRead + Unpin>(
        &self,
        protocol: &str,
        peer: IpAddr,
        stream: &mut S,
        buffer: &mut BytesMut,
    ) -> Result<(), String> {
        if let Some(left) = self.blocked(peer) {
            let left_s = left.as_secs() + 1;
            return Err(format!("-ERR too many wrong tokens: try again in {left_s} s\r\n"));
        }
        if self.begins(stream, buffer).await {
            return Ok(());
        }
        self.count_failure(protocol, peer);
        Err("-ERR begin the connection with the line: auth TOKEN\r\n".to_owned())
    }

    /// Reads the first line of a connection. Returns true if it presents the token. Bytes received
    /// after the line stay in `buffer`.
    async fn begins<S: AsyncRead + Unpin>(&self, stream: &mut S, buffer: &mut BytesMut) -> bool {
        let line = tokio::time::timeout(AUTH_TIME_MAX, first_line(stream, buffer)).await;
        let Ok(Some(end)) = line else { return false };
        let line = buffer.get(..end).unwrap_or_default().trim_ascii();
        let line = line.strip_prefix(b"+").unwrap_or(line);
        let shown =
            line.split_at_checked(5).filter(|(word, _)| word.eq_ignore_ascii_case(b"auth "));
        let shown = shown.is_some_and(|(_, token)| self.is(token.trim_ascii()));
        buffer.advance(end);
        shown
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Reads until `buffer` contains a line. Returns the offset of the next line, or `None` if the line
/// is too long or the stream ends.
async fn first_line<S: AsyncRead + Unpin>(stream: &mut S, buffer: &mut BytesMut) -> Option<usize> {
    loop {
        if let Some(end) = buffer.iter().position(|c| *c == b'\n') {
            return Some(end + 1);
        }
        if buffer.len() > LINE_BYTES_MAX {
            return None;
        }
        buffer.reserve(LINE_BYTES_MAX);
        match stream.read_buf(buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_accepted_as_bearer_or_basic_password() {
        let token = Token::new(" secret\n").unwrap();
        assert!(token.shown_by("Bearer secret"));
        assert!(token.shown_by("basic YW55Ym9keTpzZWNyZXQ="));
        for wrong in
            ["", "Bearer", "Bearer secre", "Bearer secrett", "Basic c2VjcmV0", "Digest secret"]
        {
            assert!(!token.shown_by(wrong), "{wrong}");
        }
        for no_token in ["", "  ", "two words", "täglich", &"x".repeat(TOKEN_BYTES_MAX + 1)] {
            assert!(Token::new(no_token).is_none(), "{no_token}");
        }
    }

    #[tokio::test]
    async fn auth_line_is_consumed_and_the_rest_stays_buffered() {
        let token = Token::new("secret").unwrap();
        for (sent, taken) in
            [("auth secret\nput", true), ("+AUTH secret\r\nput", true), ("put\nput", false)]
        {
            let mut buffer = BytesMut::new();
            let mut stream = sent.as_bytes();
            assert_eq!(token.begins(&mut stream, &mut buffer).await, taken, "{sent}");
            assert_eq!(&*buffer, b"put");
        }
        let mut endless = tokio::io::repeat(b'x');
        assert!(!token.begins(&mut endless, &mut BytesMut::new()).await);
    }

    #[tokio::test]
    async fn address_that_fails_too_often_is_refused_whatever_it_sends() {
        let token = Token::new("secret").unwrap();
        let [guesser, other] = ["192.0.2.7", "192.0.2.8"].map(|ip| ip.parse().unwrap());
        let send = async |line: &str, from| {
            let mut buffer = BytesMut::new();
            token.authenticate("resp", from, &mut line.as_bytes(), &mut buffer).await
        };
        for n in 0..FAILURES_MAX {
            let refused = send(&format!("auth guess-{n}\n"), guesser).await.unwrap_err();
            assert!(refused.contains("auth TOKEN"), "{refused}");
        }
        let refused = send("auth secret\n", guesser).await.unwrap_err();
        assert!(refused.contains("too many wrong tokens"), "{refused}");
        assert_eq!(send("auth secret\n", other).await, Ok(()));
    }
}
