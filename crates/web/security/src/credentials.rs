//! Verification of names and passwords, for logins and password changes.

use registry::User;

use rest::error::Failure;
use rest::http::call::Call;

/// Verifies a name and a password; returns the user with the `nbf` for a new token.
pub(super) async fn check(
    call: &Call,
    name: &str,
    password: &str,
    source: Option<std::net::IpAddr>,
) -> Result<(User, i64), Failure> {
    call.registry()
        .login_for_token(call.reader(), name, password, source)
        .await
        .map_err(Failure::from)
}
