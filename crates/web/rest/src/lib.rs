//! The framework of the REST API: callers and their permissions, the pipeline of a request, parameters,
//! envelopes, errors and limits. It knows no operation; [`http::pipeline::router`] receives the list
//! of them.
//!
//! A request passes through the pipeline in this order: rate limit, route, token, role, parameters,
//! body, operation, audit, envelope, headers, access log. An operation is a description and a function
//! that receives a validated [`http::call::Call`]. Requests to Prometheus' API, whose routes are in
//! [`http::prometheus`], leave the pipeline after the role.
//!
//! # Invariants
//! - Without a token, only the login, `/healthz`, `/readyz` and the page's files answer (`/metrics`
//!   also for callers on this machine). Prometheus' API takes a name and a password, too.
//! - A parameter that is not described is rejected, never ignored, except by Prometheus' API.
//! - Store calls run on blocking threads. Their number and their queue are bounded; a full queue
//!   answers 503.
//! - Input reaches a store only as a bound value or as a column from a fixed list.
//! - The first request after a revocation is refused.

pub mod access;
pub mod code;
pub mod error;
pub mod http;
pub mod limits;
