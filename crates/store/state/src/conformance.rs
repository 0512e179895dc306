//! The suite that every [`crate::StateStore`] passes.
