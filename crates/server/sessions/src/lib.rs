//! The agents' side of the server: HTTPS and unix socket, admission, verification, answer.
