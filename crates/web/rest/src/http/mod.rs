//! The HTTP layer: connections, the pipeline, parameters, answers and streams.

pub mod api;
pub mod call;
pub mod envelope;
pub mod listing;
pub mod log_ring;
pub mod metrics;
pub mod operation;
pub mod parameters;
pub mod pipeline;
pub mod prometheus;
pub mod q;
pub mod request_log;
pub mod shape;
pub mod stream;
