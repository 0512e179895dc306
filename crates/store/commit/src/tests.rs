//! Commit with the real journal and the real state.
