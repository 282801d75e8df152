//! Raises errors of the core as the exceptions of `pystatelens.errors`.

use std::error::Error as _;

use pyo3::exceptions::{PyException, PyImportError};
use pyo3::prelude::*;
use statelens::{Error, ErrorKind, Result};

/// Does work without holding the interpreter.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T> + Send,
) -> PyResult<T> {
    py.detach(work).map_err(|error| raised(py, &error))
}

/// Returns the exception for an error. If Python code caused the error, for example a file object,
/// that exception is its `__cause__`; exceptions such as `KeyboardInterrupt` are raised unchanged.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<PyErr>());
    let cause = cause.map(|cause| cause.clone_ref(py));
    if let Some(cause) = &cause
        && !cause.is_instance_of::<PyException>(py)
    {
        return cause.clone_ref(py);
    }
    let made = py.import("pystatelens.errors").and_then(|module| {
        let place = (error.file(), error.offset());
        let sentence =
            (error.to_string(), error.what(), error.next_step().map(ToString::to_string));
        module.getattr(class(error))?.call1((
            sentence.0,
            sentence.1,
            error.code(),
            place.0,
            place.1,
            sentence.2,
        ))
    });
    let exception = match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(failed) => PyImportError::new_err(format!("{error} ({failed})")),
    };
    exception.set_cause(py, cause);
    exception
}

/// Returns the name of the class of exceptions.
fn class(error: &Error) -> &'static str {
    match (error.code(), error.kind()) {
        ("no-such-key", _) => "NoSuchKeyError",
        ("slice", _) => "SliceError",
        ("not-found", _) => "NotFoundError",
        ("exists", _) => "ExistsError",
        (_, ErrorKind::Damaged) => "DamagedError",
        (_, ErrorKind::Unsupported) => "UnsupportedError",
        (_, ErrorKind::Limit) => "LimitError",
        (_, ErrorKind::Refused) => "RefusedError",
        (_, ErrorKind::Io) => "IoError",
        (_, ErrorKind::Cancelled) => "CancelledError",
        _ => "StatelensError",
    }
}
