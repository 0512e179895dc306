//! Callers: identification, tokens, and quotas on shared resources.

pub(crate) mod authentication;
pub(crate) mod caller;
pub(crate) mod rates;
pub(crate) mod room;
pub(crate) mod token;
pub(crate) mod turns;
