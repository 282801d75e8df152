//! Plain values of Python, which need no description.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyComplex, PyDict, PyFloat, PyInt, PyString};
use statelens::Value;
use statelens::parts::checkpoint::Int;

use crate::text::from_python;

/// Returns the value of an object that is not a container.
pub(crate) fn plain(object: &Bound<'_, PyAny>) -> PyResult<Option<Value>> {
    Ok(Some(if object.is_none() {
        Value::None
    } else if object.is_exact_instance_of::<PyBool>() {
        Value::Bool(object.extract()?)
    } else if object.is_exact_instance_of::<PyInt>() {
        Value::Int(int(object)?)
    } else if object.is_exact_instance_of::<PyFloat>() {
        Value::Float(object.extract()?)
    } else if let Ok(string) = object.cast_exact::<PyString>() {
        Value::Str(from_python(string)?)
    } else if let Ok(bytes) = object.cast_exact::<PyBytes>() {
        Value::Bytes { data: bytes.as_bytes().into(), mutable: false }
    } else if let Ok(bytes) = object.cast_exact::<PyByteArray>() {
        Value::Bytes { data: bytes.to_vec().into(), mutable: true }
    } else if object.is_exact_instance_of::<PyComplex>() {
        Value::Complex(object.getattr("real")?.extract()?, object.getattr("imag")?.extract()?)
    } else {
        return Ok(None);
    }))
}

fn int(object: &Bound<'_, PyAny>) -> PyResult<Int> {
    if let Ok(small) = object.extract::<i64>() {
        return Ok(small.into());
    }
    let bits: usize = object.call_method0("bit_length")?.extract()?;
    let options = PyDict::new(object.py());
    options.set_item("signed", true)?;
    let bytes = object.call_method("to_bytes", (bits / 8 + 1, "little"), Some(&options))?;
    Ok(Int::from_le_bytes(bytes.cast::<PyBytes>()?.as_bytes()))
}
