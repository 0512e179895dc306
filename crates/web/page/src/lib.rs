//! Serves the dashboard's built files.
