//! Reading of request bodies, bounded in size, in time, and in memory together with all others.

use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, EXPECT};
use axum::http::request::Parts;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use listener::{Owner, Source};

use super::header;
use crate::access::caller::Caller;
use crate::access::quota::Quota;
use crate::error::Failure;
use crate::http::api::Api;
use crate::http::call;
use crate::http::operation::Access;
use crate::limits::{
    BODY_BYTES_MAX, LOCAL_BODY_BYTES_MAX, LOGIN_BODY_BYTES_MAX, REFUSED_BYTES_MAX, REFUSED_TIME_MAX,
};

/// Reason why a body was refused.
enum Refused {
    TooLarge,
    NoRoom,
    Broken(String),
}

/// Reads the body, up to the limits of size and time. A login needs no token, so its body has a low
/// limit and a quota of its own; the body of a program on this machine may cover the whole fleet.
pub(super) async fn read(
    api: &Api,
    access: Access,
    caller: &Caller,
    parts: &Parts,
    body: Body,
) -> Result<call::Body, Failure> {
    let (bytes_max, quota) = match (access, caller) {
        (_, Caller::Local { .. }) => (LOCAL_BODY_BYTES_MAX, &api.local_bodies),
        (Access::Login, _) => (LOGIN_BODY_BYTES_MAX, &api.login_bodies),
        _ => (BODY_BYTES_MAX, &api.bodies),
    };
    let owner = caller.owner_at(parts.extensions.get::<Source>().copied());
    take(api, owner, bytes_max, quota, parts, body).await
}

/// Reads a body of at most `bytes_max` within a quota.
pub(super) async fn take(
    api: &Api,
    owner: Owner,
    bytes_max: usize,
    quota: &Quota,
    parts: &Parts,
    mut body: Body,
) -> Result<call::Body, Failure> {
    let length = header(parts, &CONTENT_LENGTH).and_then(|text| text.parse::<u64>().ok());
    let too_large = length.is_some_and(|length| length > bytes_max as u64);
    if let Some(expect) = header(parts, &EXPECT)
        && (too_large || !expect.eq_ignore_ascii_case("100-continue"))
    {
        return Err(Failure::plain(StatusCode::EXPECTATION_FAILED, "the expectation is not met"));
    }
    let taken = if too_large {
        Ok(Err(Refused::TooLarge))
    } else {
        let time = Duration::from_millis(api.options.request_timeout_ms);
        tokio::time::timeout(time, gather(&mut body, bytes_max, quota, owner)).await
    };
    let failure = match taken {
        Ok(Ok(body)) => return Ok(body),
        Ok(Err(Refused::TooLarge)) => Failure::plain(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is larger than {bytes_max} bytes"),
        ),
        Ok(Err(Refused::NoRoom)) => Failure::busy("too many large requests at once", 1),
        Ok(Err(Refused::Broken(cause))) => return Err(Failure::bad(format!("body: {cause}"))),
        Err(_) => {
            let late = "the body came too slowly";
            return Err(Failure::plain(StatusCode::REQUEST_TIMEOUT, late));
        }
    };
    throw_away(&mut body).await;
    Err(failure)
}

/// Reads the body piece by piece; each piece is charged to the quota before it is stored.
async fn gather(
    body: &mut Body,
    bytes_max: usize,
    quota: &Quota,
    owner: Owner,
) -> Result<call::Body, Refused> {
    let (mut bytes, mut share) = (BytesMut::new(), quota.reserve(owner, 0).ok_or(Refused::NoRoom)?);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Refused::Broken(e.to_string()))?;
        let Ok(piece) = frame.into_data() else { continue };
        if bytes.len() + piece.len() > bytes_max {
            return Err(Refused::TooLarge);
        }
        if !share.grow(piece.len()) {
            return Err(Refused::NoRoom);
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(call::Body { bytes: bytes.freeze(), share: Some(share) })
}

/// Discards the rest of a refused body, bounded in size and time. Without this the sender, still
/// sending, would lose the answer: HTTP/2 resets the stream, HTTP/1 the connection.
async fn throw_away(body: &mut Body) {
    let all = async {
        let mut taken = 0;
        while let Some(Ok(frame)) = body.frame().await {
            taken += frame.data_ref().map_or(0, Bytes::len);
            if taken > REFUSED_BYTES_MAX {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(REFUSED_TIME_MAX, all).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bodies_share_a_quota_and_release_it() {
        let quota = Quota::new(100, 100);
        let owner = || Caller::Anyone.owner();
        let named = |refused: Refused| match refused {
            Refused::TooLarge => "too large",
            Refused::NoRoom => "no room",
            Refused::Broken(_) => "broken",
        };
        let take = async |size: usize| {
            gather(&mut Body::from(vec![b' '; size]), 80, &quota, owner()).await.map_err(named)
        };
        let first = take(60).await.unwrap();
        assert_eq!(first.len(), 60);
        assert_eq!(take(60).await.unwrap_err(), "no room");
        assert_eq!(take(40).await.unwrap().len(), 40);
        assert_eq!(take(81).await.unwrap_err(), "too large");
        drop(first);
        assert_eq!(take(80).await.unwrap().len(), 80);
    }
}
