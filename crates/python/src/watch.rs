//! Progress of long work, for Python.

use std::time::{Duration, Instant};

use pyo3::prelude::*;
use statelens::{Progress, Result};

use crate::errors::raised;

/// Time between two looks at Python: it takes the interpreter, for which other threads may wait.
const TICK: Duration = Duration::from_millis(50);

/// Looks for Ctrl-C and calls back now and then. An exception stops the work, and so does a
/// callback that returns `False`.
pub(crate) struct Watch {
    callback: Option<Py<PyAny>>,
    last: Instant,
    raised: Option<PyErr>,
}

impl Watch {
    /// Creates a watch that calls `callback(done, total)`.
    pub(crate) fn new(callback: Option<Py<PyAny>>) -> Self {
        Self { callback, last: Instant::now(), raised: None }
    }

    /// Does work without holding the interpreter, watched.
    pub(crate) fn over<T: Send>(
        mut self,
        py: Python<'_>,
        work: impl FnOnce(&mut dyn Progress) -> Result<T> + Send,
    ) -> PyResult<T> {
        let outcome = py.detach(|| work(&mut self));
        outcome.map_err(|error| self.raised.unwrap_or_else(|| raised(py, &error)))
    }

    fn look(&self, py: Python<'_>, done: u64, total: u64) -> PyResult<bool> {
        py.check_signals()?;
        let Some(callback) = &self.callback else { return Ok(true) };
        let answer = callback.bind(py).call1((done, total))?;
        Ok(!answer.is_instance_of::<pyo3::types::PyBool>() || answer.is_truthy()?)
    }
}

impl Progress for Watch {
    fn report(&mut self, done: u64, total: u64) -> bool {
        let is_end = total > 0 && done >= total && self.callback.is_some();
        if self.last.elapsed() < TICK && !is_end {
            return true;
        }
        let go_on = Python::attach(|py| self.look(py, done, total));
        self.last = Instant::now();
        go_on.unwrap_or_else(|error| {
            self.raised = Some(error);
            false
        })
    }
}
