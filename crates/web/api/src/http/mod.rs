//! The HTTP layer: connections, the pipeline, parameters, answers and streams.

pub(crate) mod api;
pub(crate) mod call;
pub(crate) mod envelope;
pub(crate) mod listing;
pub(crate) mod log_ring;
pub(crate) mod metrics;
pub(crate) mod operation;
pub(crate) mod parameters;
pub(crate) mod pipeline;
pub(crate) mod q;
pub(crate) mod request_log;
pub(crate) mod shape;
pub(crate) mod stream;
