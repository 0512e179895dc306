//! upkeep
