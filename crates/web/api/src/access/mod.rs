//! Who sends a request, how they prove it, and their shares of what requests have in common.

pub(crate) mod authentication;
pub(crate) mod caller;
pub(crate) mod rates;
pub(crate) mod room;
pub(crate) mod token;
pub(crate) mod turns;
