//! What only this engine promises.
