//! Callers: identification, tokens, and quotas on shared resources.

pub(crate) mod authentication;
pub(crate) mod caller;
pub(crate) mod permits;
pub(crate) mod quota;
pub(crate) mod rates;
pub(crate) mod token;
