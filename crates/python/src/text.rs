//! Strings of Python, which may have lone surrogates, as texts of the core.

use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use statelens::Error;
use statelens::parts::checkpoint::Text;

use crate::errors::raised;

/// Returns a string of Python as a text.
pub(crate) fn from_python(string: &Bound<'_, PyString>) -> PyResult<Text> {
    if let Ok(text) = string.to_str() {
        return Ok(text.into());
    }
    let bytes = string.call_method1("encode", ("utf-8", "surrogatepass"))?;
    let text = Text::from_surrogatepass(bytes.cast::<PyBytes>()?.as_bytes());
    text.map_err(|_| raised(string.py(), &Error::damaged("a string that is not Unicode")))
}

/// Returns a text as a string of Python.
pub(crate) fn to_python<'py>(py: Python<'py>, text: &Text) -> PyResult<Bound<'py, PyAny>> {
    match text.as_str() {
        Some(text) => text.into_bound_py_any(py),
        None => {
            let bytes = PyBytes::new(py, text.as_bytes());
            bytes.call_method1("decode", ("utf-8", "surrogatepass"))
        }
    }
}
