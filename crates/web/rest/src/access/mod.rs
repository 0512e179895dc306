//! Callers: identification, tokens, and quotas on shared resources.

pub mod authentication;
pub mod caller;
pub mod permits;
pub mod quota;
pub mod rates;
pub mod token;
