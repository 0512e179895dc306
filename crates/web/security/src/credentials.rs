//! Verification of names and passwords, for logins and password changes.

use registry::{LoginError, User};

use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;

/// Verifies a name and a password; returns the user with the `nbf` for a new token.
pub(super) async fn check(
    call: &Call,
    name: &str,
    password: &str,
    source: Option<std::net::IpAddr>,
) -> Result<(User, i64), Failure> {
    call.registry().login_for_token(call.reader(), name, password, source).await.map_err(refused)
}

pub(super) fn refused(error: LoginError) -> Failure {
    match error {
        LoginError::Invalid => Failure::unauthorized("Invalid credentials"),
        LoginError::Blocked { retry_after_s } => {
            let mut failure = Failure::code(Code::LoginBlocked);
            failure.retry_after_s = Some(retry_after_s);
            failure
        }
        LoginError::Busy { retry_after_s } => {
            Failure::busy("too many logins at once", retry_after_s)
        }
        LoginError::Registry(error) => error.into(),
        other => Failure::internal(&other),
    }
}
