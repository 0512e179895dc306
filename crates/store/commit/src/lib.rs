//! Journal first, then apply, then checkpoint; replay.
