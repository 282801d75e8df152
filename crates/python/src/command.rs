//! The command `statelens`, and commands as functions.

use std::ffi::OsString;

use pyo3::prelude::*;
use statelens_cli::Called;

use crate::watch::Watch;
use crate::words::in_python;

/// Runs the command with these arguments, the first of which is its name. Returns the exit status.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| statelens_cli::run(arguments))
}

/// Runs a command that writes files or reads a folder; returns whether its result is positive, what
/// it prints, and its warnings.
#[pyfunction]
pub(crate) fn call(
    py: Python<'_>,
    arguments: Vec<OsString>,
    max_fetch: Option<u64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(bool, String, Vec<String>)> {
    let called = Watch::new(progress)
        .owned_by(py, |progress| statelens_cli::call(arguments, max_fetch, progress))?;
    let Called { passed, printed, notes } = called;
    Ok((passed, printed, notes.iter().map(|note| in_python(note).into_owned()).collect()))
}
