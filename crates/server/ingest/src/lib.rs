//! Metric protocols and the query port of the series store.
//!
//! The crate `readers` turns bytes into rows. [`serve_tcp`] and [`serve_udp`] serve the protocols on
//! sockets. [`router`] serves writes and queries over HTTP.
//!
//! # Invariants
//! - A refused row does not affect the rows around it and does not close the connection. The reply
//!   repeats its text where the protocol has replies.
//! - An HTTP write and a `sync` on a TCP port are answered after the data is persisted as
//!   configured for the store's log. A connection is closed after everything received on it is
//!   persisted.
//! - No input causes a panic or exceeds the limits below.
//!
//! # Limits
//! Each limit is a constant of its module: connections, bodies, replies.

mod certificate;
mod guard;
mod http;
mod net;

pub use certificate::CertificateFiles;
pub use guard::{
    AUTH_TIME_MAX, CONNECTIONS_MAX, Guard, SenderAddress, TOKEN_BYTES_MAX, Token, tls,
};
pub use http::{
    HttpOptions, NAMES_MAX, QUERIES_MAX, QUERY_BYTES_MAX, UNREAD_TIME_MAX, WRITE_BYTES_MAX,
    WRITES_BYTES_MAX, router, stats_json,
};
pub use net::{
    ANSWER_TIME_MAX, PIPELINE_BATCHES_MAX, Protocol, READ_BYTES_MAX, REPLY_BYTES_MAX, serve_tcp,
    serve_udp,
};
pub use prometheus_api::routes as prometheus_routes;
pub use query::Memory;
