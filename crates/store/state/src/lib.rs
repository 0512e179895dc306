//! State and registry behind two traits, on SQLite.
