//! Dtypes of Python.

use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use statelens::DType;
use statelens::parts::checkpoint::{ByteOrder, Field, NumpyType};

/// Maximum nesting of records, as in the readers.
const RECORD_DEPTH: usize = 8;

/// Returns the argument of `numpy.dtype` for the dtypes that only NumPy has; `None` for all others.
pub(crate) fn numpy_only<'py>(
    py: Python<'py>,
    dtype: &DType,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match dtype {
        DType::Numpy(numpy) => description(py, numpy).map(Some),
        _ => Ok(None),
    }
}

/// Returns the argument of `numpy.dtype`: a code such as `<U3`, or a dict for a record.
fn description<'py>(py: Python<'py>, numpy: &NumpyType) -> PyResult<Bound<'py, PyAny>> {
    if numpy.fields.is_empty() {
        // The codes of bytes and objects have no byte order, but NumPy takes one.
        return format!("<{}", numpy.code).into_bound_py_any(py);
    }
    let formats: Vec<_> = numpy
        .fields
        .iter()
        .map(|field| {
            let dtype = match &field.dtype {
                // The depth of records is bounded by the readers.
                DType::Numpy(inner) => description(py, inner)?,
                dtype => dtype.name().into_bound_py_any(py)?,
            };
            (dtype, PyTuple::new(py, &field.shape)?).into_bound_py_any(py)
        })
        .collect::<PyResult<_>>()?;
    let names: Vec<&str> = numpy.fields.iter().map(|field| field.name.as_str()).collect();
    let offsets: Vec<u64> = numpy.fields.iter().map(|field| field.offset).collect();
    let titles = numpy.fields.iter().map(|field| match &*field.title {
        "" => None,
        title => Some(title),
    });
    let dict = PyDict::new(py);
    dict.set_item("names", names)?;
    dict.set_item("formats", formats)?;
    dict.set_item("offsets", offsets)?;
    if numpy.fields.iter().any(|field| !field.title.is_empty()) {
        dict.set_item("titles", titles.collect::<Vec<_>>())?;
    }
    dict.set_item("itemsize", numpy.itemsize)?;
    Ok(dict.into_any())
}

/// Returns the dtype that Python describes by a name of torch, ml_dtypes or NumPy, by NumPy's code
/// (`U3`), or, for a record, by its size in bytes and the name, dtype, offset, shape and title
/// of each field; `None` if the core does not have it.
pub(crate) fn dtype_of(described: &Bound<'_, PyAny>) -> PyResult<Option<DType>> {
    nested(described, 0)
}

fn nested(described: &Bound<'_, PyAny>, depth: usize) -> PyResult<Option<DType>> {
    if let Ok(name) = described.cast::<PyString>() {
        let name = name.to_str()?;
        let named = DType::from_torch_name(name).or_else(|| DType::from_ml_dtypes_name(name));
        return Ok(named.or_else(|| DType::from_numpy_code(name)));
    }
    if depth >= RECORD_DEPTH {
        return Ok(None);
    }
    let (itemsize, rows): (u64, Vec<FieldOf<'_>>) = described.extract()?;
    let mut fields = Vec::new();
    for (name, dtype, offset, shape, title) in rows {
        let Some(dtype) = nested(&dtype, depth + 1)? else { return Ok(None) };
        let field = Field { name, title, dtype, offset, shape };
        fields.push((field, ByteOrder::Little));
    }
    Ok(DType::record(itemsize, fields))
}

/// Name, dtype, offset, shape and title of a field.
type FieldOf<'py> = (String, Bound<'py, PyAny>, u64, Vec<u64>, String);
