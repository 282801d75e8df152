//! Progress of long work, for Python.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use statelens::{Progress, Result};

use statelens::waiting::stoppable;

use crate::errors::{raised, signal_check};

/// Time between two looks at Python: it takes the interpreter, for which other threads may wait.
const TICK: Duration = Duration::from_millis(50);

/// Looks for Ctrl-C and calls back now and then. An exception stops the work, and so does a
/// callback that returns `False`.
pub(crate) struct Watch {
    callback: Option<Py<PyAny>>,
    last: Instant,
    /// The last figures with a known total, which stand for those of steps without one.
    figures: (u64, u64),
    /// The total whose end was reported.
    ended: Option<u64>,
    raised: Arc<Mutex<Option<PyErr>>>,
}

impl Watch {
    /// Creates a watch that calls `callback(done, total)`.
    pub(crate) fn new(callback: Option<Py<PyAny>>) -> Self {
        Self {
            callback,
            last: Instant::now(),
            figures: (0, 0),
            ended: None,
            raised: Arc::default(),
        }
    }

    /// Does work without holding the interpreter, watched.
    pub(crate) fn over<T: Send>(
        self,
        py: Python<'_>,
        work: impl FnOnce(&mut dyn Progress) -> Result<T> + Send,
    ) -> PyResult<T> {
        self.owned_by(py, |mut watch| work(&mut *watch))
    }

    /// Does work that owns the watch, without holding the interpreter.
    pub(crate) fn owned_by<T: Send>(
        self,
        py: Python<'_>,
        work: impl FnOnce(Box<dyn Progress>) -> Result<T> + Send,
    ) -> PyResult<T> {
        let exception = self.raised.clone();
        let check = signal_check();
        py.detach(|| stoppable(check, || work(Box::new(self)))).map_err(|error| {
            let exception = exception.lock().unwrap_or_else(PoisonError::into_inner).take();
            exception.unwrap_or_else(|| raised(py, &error))
        })
    }

    fn look(&self, py: Python<'_>) -> PyResult<bool> {
        py.check_signals()?;
        let Some(callback) = &self.callback else { return Ok(true) };
        let answer = callback.bind(py).call1(self.figures)?;
        Ok(!answer.is_instance_of::<pyo3::types::PyBool>() || answer.is_truthy()?)
    }
}

impl Progress for Watch {
    fn report(&mut self, done: u64, total: u64) -> bool {
        if total > 0 {
            self.figures = (done, total);
        } else if self.figures.1 == 0 {
            self.figures.0 = done;
        }
        let is_end = total > 0 && done >= total && self.ended != Some(total);
        if self.last.elapsed() < TICK && !(is_end && self.callback.is_some()) {
            return true;
        }
        if is_end {
            self.ended = Some(total);
        }
        let go_on = Python::attach(|py| self.look(py));
        self.last = Instant::now();
        go_on.unwrap_or_else(|error| {
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            false
        })
    }
}
