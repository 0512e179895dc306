//! The client's address behind a proxy: `X-Forwarded-For`, trusted only if the peer is one of the
//! configured proxies.
//!
//! Each proxy appends the address of its own peer, so the list is read from the end: the first address
//! that is not a trusted proxy is the client's, whatever the client itself wrote at the front. A
//! request through a proxy never counts as a caller on this machine, even if the header is missing:
//! some proxies omit it when the client asks for that (`Connection: X-Forwarded-For`).

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderName};
use listener::Source;

use crate::error::Failure;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Returns the origin of a request.
pub(super) fn source(
    trusted: &[IpAddr],
    peer: Option<Source>,
    headers: &HeaderMap,
) -> Result<Option<Source>, Failure> {
    let Some(Source::Tcp(proxy)) = peer else { return Ok(peer) };
    if !trusts(trusted, proxy.ip()) {
        return Ok(peer);
    }
    let mut named = Source::Proxied(proxy.ip());
    for value in headers.get_all(FORWARDED_FOR).iter().rev() {
        let text = value.to_str().map_err(|_| unreadable())?;
        for hop in text.rsplit(',') {
            let ip = address(hop.trim()).ok_or_else(unreadable)?;
            named = Source::Proxied(ip);
            if !trusts(trusted, ip) {
                return Ok(Some(named));
            }
        }
    }
    Ok(Some(named))
}

/// Parses an address; some proxies append the port.
fn address(text: &str) -> Option<IpAddr> {
    let with_port = |text: &str| text.parse().map(|address: SocketAddr| address.ip());
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    bare.unwrap_or(text).parse().or_else(|_| with_port(text)).ok()
}

fn trusts(trusted: &[IpAddr], ip: IpAddr) -> bool {
    trusted.iter().any(|own| own.to_canonical() == ip.to_canonical())
}

/// Returns the failure for an invalid header. The client is unknown and must not be taken for the
/// proxy.
fn unreadable() -> Failure {
    Failure::bad("x-forwarded-for: not a list of IP addresses")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the address that the header lines give for a peer.
    fn of(peer: &str, lines: &[&str]) -> Option<String> {
        let trusted = ["127.0.0.1".parse().unwrap(), "2001:db8::7".parse().unwrap()];
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FORWARDED_FOR, line.parse().unwrap());
        }
        let peer = Source::Tcp(peer.parse().unwrap());
        match source(&trusted, Some(peer), &headers).ok()?? {
            Source::Proxied(ip) => Some(format!("proxied {ip}")),
            other => other.ip().map(|ip| ip.to_string()),
        }
    }

    #[test]
    fn client_is_the_last_address_not_of_a_trusted_proxy() {
        let client = Some("proxied 203.0.113.9".to_owned());
        for lines in [
            &["203.0.113.9"][..],
            &["127.0.0.1, 203.0.113.9"],
            &["10.0.0.1,198.51.100.7 , 203.0.113.9"],
            &["198.51.100.7", "203.0.113.9"],
            &["203.0.113.9, 2001:db8::7"],
            &["1.1.1.1, 203.0.113.9, 2001:db8::7", "127.0.0.1"],
            &["nonsense, 203.0.113.9"],
            &["198.51.100.7, 203.0.113.9:4711"],
            &["203.0.113.9:80, [2001:db8::7]:443"],
            &["203.0.113.9:80, [2001:db8::7]"],
        ] {
            assert_eq!(of("127.0.0.1:9", lines), client, "{lines:?}");
            assert_eq!(of("[2001:db8::7]:9", lines), client, "{lines:?}");
            assert_eq!(of("[::ffff:127.0.0.1]:9", lines), client, "{lines:?}");
        }
        assert_eq!(of("127.0.0.1:9", &[]), Some("proxied 127.0.0.1".into()));
        assert_eq!(of("127.0.0.1:9", &["127.0.0.1"]), Some("proxied 127.0.0.1".into()));
        for bad in ["", "unknown", "203.0.113.9, ", "203.0.113.9:", "_x", "203.0.113.9, a"] {
            assert_eq!(of("127.0.0.1:9", &[bad]), None, "{bad}");
        }
    }

    #[test]
    fn untrusted_peers_cannot_set_the_source() {
        for peer in ["203.0.113.9", "127.0.0.2"] {
            for lines in [&["127.0.0.1"][..], &["nonsense"], &["198.51.100.7, 127.0.0.1"]] {
                assert_eq!(of(&format!("{peer}:9"), lines), Some(peer.into()));
            }
        }
        let (none, local) = (HeaderMap::new(), Some(Source::Unix { uid: 7 }));
        assert_eq!(source(&[], local, &none), Ok(local));
        assert_eq!(source(&[], None, &none), Ok(None));
    }
}
