//! Threads that the system may refuse to start.

use std::thread::Builder;

use statelens_checkpoint::{Error, Result, try_alloc};

/// Memory that a thread takes when it starts, in bytes: a stack, a signal stack, and the
/// allocator's share. A failure to allocate these can't be reported, so it is checked beforehand.
const THREAD: u64 = 4 << 20;

/// Returns a builder for a thread, if the system has memory for one.
pub(crate) fn thread() -> Result<Builder> {
    try_alloc::ahead(THREAD)?;
    Ok(Builder::new())
}

/// Returns the error for a thread that the system refuses to start.
#[expect(clippy::needless_pass_by_value, reason = "it is given to map_err")]
pub(crate) fn no_thread(error: std::io::Error) -> Error {
    Error::limit(format!("no thread can be started for it: {error}")).advice(
        "Each thread needs memory for its stack, and counts towards the user's limit of \
                 processes.",
    )
}
