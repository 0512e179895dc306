//! The host's inventory: installed packages.
