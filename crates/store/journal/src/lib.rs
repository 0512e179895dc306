//! A write-ahead log over bytes: group commit, verified recovery, a meter.
