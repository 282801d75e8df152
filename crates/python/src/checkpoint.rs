//! Open checkpoints.

use pyo3::prelude::*;
use statelens::Checkpoint;

use crate::errors::detached;
use crate::tree::Trees;

/// An open checkpoint.
#[pyclass(frozen, module = "pystatelens._native", name = "Checkpoint")]
pub(crate) struct NativeCheckpoint(pub(crate) Checkpoint);

#[pymethods]
impl NativeCheckpoint {
    /// The flat keys of all leaves, in file order.
    fn keys(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        detached(py, || Ok(self.0.keys().collect()))
    }

    fn has(&self, py: Python<'_>, key: &str) -> PyResult<bool> {
        detached(py, || self.0.has(key))
    }

    /// The short name, the name and the version of the format, and the program that wrote it.
    #[getter]
    fn format(&self) -> (&str, &str, &str, &str) {
        let format = self.0.format();
        (format.id, format.name, &format.version, &format.producer)
    }

    /// Returns the value of a leaf. `maker` makes tensors and whatever else Python itself lacks.
    fn leaf<'py>(&self, key: &str, maker: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Trees::of_leaf(&self.0, key, maker)
    }

    /// Returns the value at `key` with everything below it.
    fn below<'py>(&self, key: &str, maker: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Trees::below(&self.0, key, maker)
    }
}
