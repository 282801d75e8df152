//! The worker.

/// Starts the worker.
pub fn start() {}
