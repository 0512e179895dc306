//! File change to verified change: rules, walk, observation, difference.
