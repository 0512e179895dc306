//! The durable queue of an agent: what was seen and what was told in one row, events beside it.
