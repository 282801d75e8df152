//! Tensors, and slices of them.

use std::fs::File;
use std::sync::Arc;

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyEllipsis, PySlice, PyTuple};
use statelens::parts::checkpoint::try_alloc;
use statelens::{Axis, DType, Error, Slice, Tensor};

use crate::dtype::numpy_only;
use crate::errors::raised;
use crate::watch::Watch;

/// A tensor of an open checkpoint, or a slice of one.
#[pyclass(frozen, module = "pystatelens._native", name = "Tensor")]
pub(crate) struct NativeTensor(pub(crate) Tensor);

#[pymethods]
impl NativeTensor {
    #[getter]
    fn key(&self) -> &str {
        self.0.key()
    }

    /// Returns the name of the dtype, as in torch, or as in NumPy for those that torch lacks.
    #[getter]
    fn dtype(&self) -> &str {
        self.0.dtype().name()
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape())
    }

    #[getter]
    fn size(&self) -> u64 {
        self.0.numel()
    }

    #[getter]
    fn nbytes(&self) -> u64 {
        self.0.nbytes()
    }

    /// Returns the bytes of one element, or of one block.
    #[getter]
    fn itemsize(&self) -> u64 {
        self.0.dtype().itemsize()
    }

    /// Returns the argument of `numpy.dtype` for the dtypes that only NumPy has; `None` for all
    /// others.
    #[getter]
    fn numpy_type<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        numpy_only(py, self.0.dtype())
    }

    /// Returns whether the elements are quantised in blocks, which neither NumPy nor torch has.
    #[getter]
    fn is_blocks(&self) -> bool {
        matches!(self.0.dtype(), DType::Blocks(_))
    }

    /// Returns the slice of a Python index.
    fn slice(&self, index: &Bound<'_, PyAny>) -> PyResult<Self> {
        let axes = match index.cast::<PyTuple>() {
            Ok(tuple) => tuple.iter().map(|one| axis(&one)).collect::<PyResult<Vec<_>>>()?,
            Err(_) => vec![axis(index)?],
        };
        let sliced = self.0.slice(&Slice::new(axes));
        sliced.map(Self).map_err(|error| raised(index.py(), &error))
    }

    /// Returns the tensor in another dtype, by name.
    fn cast(&self, py: Python<'_>, dtype: &str) -> PyResult<Self> {
        let unknown = || Error::refused(format!("there is no dtype `{dtype}`"));
        let dtype = DType::from_torch_name(dtype).ok_or_else(unknown);
        let cast = dtype.and_then(|dtype| self.0.cast(dtype));
        cast.map(Self).map_err(|error| raised(py, &error))
    }

    /// Returns the file on disk that has the bytes that `read` returns, and their offset; `None` if
    /// no file has them.
    fn in_file(&self, py: Python<'_>) -> PyResult<Option<(NativeFile, u64)>> {
        let found = try_alloc::ahead(self.0.nbytes()).and_then(|()| self.0.in_file());
        let found = found.map_err(|error| raised(py, &error))?;
        Ok(found.map(|(file, offset)| (NativeFile(file), offset)))
    }

    /// Reads the elements in C order, little-endian, into new memory.
    fn read<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyByteArray>> {
        let len = try_alloc::ahead(self.0.nbytes())
            .and_then(|()| {
                let large = |_| Error::limit("the tensor is larger than the address space");
                usize::try_from(self.0.nbytes()).map_err(large)
            })
            .map_err(|error| raised(py, &error))?;
        PyByteArray::new_with(py, len, |out| {
            Watch::new(None).over(py, |progress| self.0.read_into(out, progress))
        })
    }
}

/// An open file.
#[pyclass(frozen, module = "pystatelens._native", name = "File")]
pub(crate) struct NativeFile(Arc<File>);

#[pymethods]
impl NativeFile {
    /// Returns the descriptor, which is valid as long as this object.
    #[cfg(unix)]
    fn fileno(&self) -> i32 {
        std::os::fd::AsRawFd::as_raw_fd(&*self.0)
    }
}

/// Why an item of an index is refused that NumPy would take: lists, arrays, masks, `None`.
const INDEX: &str = "a tensor of a file takes integers, slices and `...` as an index; for others, read it \
                     first: `tensor.numpy()[index]`";

/// Converts one item of an index.
fn axis(item: &Bound<'_, PyAny>) -> PyResult<Axis> {
    if item.is_instance_of::<PyEllipsis>() {
        return Ok(Axis::Rest);
    }
    if item.is_instance_of::<PySlice>() {
        let field = |name: &str| match item.getattr(name)? {
            none if none.is_none() => Ok(None),
            given => integer(&given).map(Some),
        };
        let step = field("step")?.unwrap_or(1);
        return Ok(Axis::Range { start: field("start")?, stop: field("stop")?, step });
    }
    if item.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err(INDEX));
    }
    integer(item).map(Axis::Index)
}

/// Converts an object that Python takes for an integer. Those that are too large are outside of any
/// tensor, as is the largest.
fn integer(object: &Bound<'_, PyAny>) -> PyResult<i64> {
    object.extract().or_else(|error: PyErr| match error {
        error if error.is_instance_of::<PyOverflowError>(object.py()) => {
            Ok(if object.lt(0)? { i64::MIN } else { i64::MAX })
        }
        error if error.is_instance_of::<PyTypeError>(object.py()) => {
            Err(PyTypeError::new_err(INDEX))
        }
        error => Err(error),
    })
}
