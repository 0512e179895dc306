//! Time series: catalogue, head, parts, codecs, merge, retention, query.
