//! The REST API: router, tokens, envelopes, paging, OpenAPI.
