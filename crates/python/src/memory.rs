//! The memory of arrays and tensors of Python, as files.

use std::fmt;

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyMemoryView, PySlice};
use statelens::{Error, ReadAt, Result};

/// The memory of an array.
pub(crate) struct Memory {
    /// A `memoryview` of its bytes.
    view: Py<PyAny>,
    len: u64,
}

impl Memory {
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let view = PyMemoryView::from(object)?;
        Ok(Self { len: view.len()? as u64, view: view.into_any().unbind() })
    }

    /// Returns its length in bytes.
    pub(crate) fn byte_len(&self) -> u64 {
        self.len
    }

    fn copy(&self, py: Python<'_>, offset: u64, out: &mut [u8]) -> PyResult<()> {
        let start = isize::try_from(offset)?;
        let stop = start.saturating_add(isize::try_from(out.len())?);
        let part = self.view.bind(py).get_item(PySlice::new(py, start, stop, 1))?;
        PyBuffer::<u8>::get(&part)?.copy_to_slice(py, out)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({})", self.len)
    }
}

impl ReadAt for Memory {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let copied = Python::try_attach(|py| self.copy(py, offset, out));
        copied.ok_or_else(|| Error::io("Python has ended"))?.map_err(|error| {
            Error::io(format!("reading memory failed: {error}")).at(offset).caused_by(error)
        })
    }
}
