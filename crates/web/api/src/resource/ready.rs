//! Readiness: one word for anyone, the cause and the remedy for callers with a valid token.

use std::fmt::Write as _;

use axum::http::StatusCode;
use model::timestamp;

use super::clock::held_detail;
use rest::access::authentication;
use rest::access::caller::Caller;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::Answer;

const TEXT: &str = "text/plain; charset=utf-8";

/// The reason why the server does not accept data, or does not follow its wall clock.
struct UnreadyReason {
    word: &'static str,
    cause: String,
    /// Time of a failure that lasts, microseconds since the epoch.
    since_us: Option<u64>,
}

/// Answers `/readyz`.
pub(super) fn ready(call: &Call) -> Result<Answer, Failure> {
    if !call.api.is_ready() {
        return Err(Failure::busy("the server is starting or stopping", 1));
    }
    let unready = unready(call);
    if let Some(first) = unready.first() {
        return Ok(answer(StatusCode::SERVICE_UNAVAILABLE, text(call, first.word, &unready)));
    }
    call.state().applied()?;
    call.registry().summary(call.reader())?;
    let clock = call.api.options.server_clock.as_ref();
    if let Some(hold) = clock.and_then(|own| own.clock.hold()) {
        let hours = hold.remaining.as_secs().div_ceil(3600);
        let cause = format!(
            "{} Otherwise it is followed after {hours} h of uptime.",
            held_detail(call, hold)
        );
        let held = UnreadyReason { word: "clock_held", cause, since_us: Some(hold.since_us) };
        return Ok(answer(StatusCode::OK, text(call, held.word, &[held])));
    }
    Ok(answer(StatusCode::OK, "ok\n".to_owned()))
}

fn answer(status: StatusCode, text: String) -> Answer {
    Answer::Raw { status, content_type: TEXT, body: text.into_bytes() }
}

/// Returns what is wrong, the gravest first.
fn unready(call: &Call) -> Vec<UnreadyReason> {
    let mut found = Vec::new();
    if let Some(refusal) = call.commit().refusal() {
        let (word, since_us) = (refusal.word, refusal.since_us);
        found.push(UnreadyReason { word, cause: refusal.cause.to_string(), since_us });
    }
    if let Some(failure) = call.registry().failure() {
        let cause = format!(
            "a flush of registry.db failed: {}: check the disk, then start the server again",
            failure.cause
        );
        found.push(UnreadyReason { word: "registry_failed", cause, since_us: Some(failure.at_us) });
    }
    let Some(stats) = call.api.options.series.as_ref().map(series::Store::stats) else {
        return found;
    };
    if let Some(failure) = stats.log_failure {
        let next = if failure.gave_up {
            "it was opened again three times within an hour: check the disk, then start the server again"
        } else {
            "it is opened again soon: check the disk"
        };
        let cause = format!("the log of the series store failed: {}: {next}", failure.cause);
        let since_us = Some(failure.since_us);
        found.push(UnreadyReason { word: "series_log_failed", cause, since_us });
    }
    if let Some(cause) = stats.trouble {
        found.push(UnreadyReason { word: "series_seal_failed", cause, since_us: None });
    }
    found
}

/// Returns the first word, and all causes if the caller is known.
fn text(call: &Call, word: &str, unready: &[UnreadyReason]) -> String {
    let mut text = format!("{word}\n");
    if !is_known(call) {
        return text;
    }
    for UnreadyReason { word, cause, since_us } in unready {
        let since = since_us.map(|us| format!(" since {}", timestamp::micros(us)));
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "{word}{}: {cause}", since.unwrap_or_default());
    }
    text
}

/// Returns true for a caller on the unix socket or with a valid token.
fn is_known(call: &Call) -> bool {
    if matches!(call.caller, Caller::Local { .. }) {
        return true;
    }
    let (api, header) = (&call.api, call.authorization.as_deref());
    authentication::claims(&api.tokens, &api.registry, header, api.now_s())
        .and_then(|claims| authentication::recognise(&api.registry, call.reader(), claims))
        .is_ok()
}
