//! Progress of long work, for Python.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use statelens::waiting::{StopCheck, stoppable};
use statelens::{Error, Progress};

use crate::errors::{raised, signal_check};

/// Time between two checks for signals. A check takes the interpreter's lock, for which other
/// threads may wait.
const TICK: Duration = Duration::from_millis(50);

/// Time for which stopped work is awaited before it is left alone.
const GRACE: Duration = Duration::from_millis(200);

/// Looks for Ctrl-C and calls back now and then. An exception stops the work, and so does a
/// callback that returns `False`.
pub(crate) struct Watch {
    callback: Option<Py<PyAny>>,
    last: Instant,
    figures: Figures,
    raised: Arc<Mutex<Option<PyErr>>>,
}

/// The figures for the callback.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Figures {
    done: u64,
    /// The last known total, for steps without one.
    total: u64,
    /// The total whose end was reported.
    ended: Option<u64>,
}

impl Figures {
    /// Takes new figures; returns whether they are the end of a total.
    fn take(&mut self, done: u64, total: u64) -> bool {
        if total > 0 {
            (self.done, self.total) = (done, total);
        } else if self.total == 0 {
            self.done = done;
        }
        let is_end = total > 0 && done >= total && self.ended != Some(total);
        if is_end {
            self.ended = Some(total);
        }
        is_end
    }
}

/// The progress of work in another thread: its figures, and whether it should stop.
#[derive(Clone, Default)]
struct Remote {
    figures: Arc<Mutex<Figures>>,
    stop: Arc<AtomicBool>,
}

impl Watch {
    /// Creates a watch that calls `callback(done, total)`.
    pub(crate) fn new(callback: Option<Py<PyAny>>) -> Self {
        let figures = Figures::default();
        Self { callback, last: Instant::now(), figures, raised: Arc::default() }
    }

    /// Does work that writes, without holding the interpreter, watched. It ends when it notices
    /// that it should stop, so that it removes incomplete files.
    pub(crate) fn over<T: Send>(
        self,
        py: Python<'_>,
        work: impl FnOnce(&mut dyn Progress) -> statelens::Result<T> + Send,
    ) -> PyResult<T> {
        self.owned_by(py, |mut watch| work(&mut *watch))
    }

    /// Does work that owns the watch, without holding the interpreter.
    pub(crate) fn owned_by<T: Send>(
        self,
        py: Python<'_>,
        work: impl FnOnce(Box<dyn Progress>) -> statelens::Result<T> + Send,
    ) -> PyResult<T> {
        let exception = self.raised.clone();
        let check = signal_check();
        py.detach(|| stoppable(check, || work(Box::new(self)))).map_err(|error| {
            let exception = exception.lock().unwrap_or_else(PoisonError::into_inner).take();
            exception.unwrap_or_else(|| raised(py, &error))
        })
    }

    /// Does work that only reads, in a thread of its own, while this one looks for Ctrl-C. Work that
    /// does not notice in time that it should stop is left alone: it ends some time later, and
    /// nothing waits for it.
    pub(crate) fn reading<T: Send + 'static>(
        mut self,
        py: Python<'_>,
        work: impl FnOnce(&mut dyn Progress) -> statelens::Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let remote = Remote::default();
        let (send, mut receive) = mpsc::channel();
        let mut own = remote.clone();
        let stop = remote.stop.clone();
        let check: Arc<StopCheck> = Arc::new(move || match stop.load(Ordering::Relaxed) {
            true => Err(Error::cancelled()),
            false => Ok(()),
        });
        let worker = move || {
            // The receiver is gone if the work was left alone.
            let _ = send.send(stoppable(check, || work(&mut own)));
        };
        let started = thread::Builder::new().name("statelens".into()).spawn(worker);
        started.map_err(|error| {
            raised(py, &Error::limit(format!("a thread could not be started: {error}")))
        })?;
        let mut seen = Figures::default();
        loop {
            let result = match py.detach(|| next(&mut receive, TICK)) {
                Ok(result) => result,
                Err(RecvTimeoutError::Timeout) => {
                    let figures = remote.figures();
                    let goes_on = self.look(py, figures).inspect_err(|_exception| {
                        remote.stop.store(true, Ordering::Relaxed);
                        // Its end is awaited for a moment: usually, it is near.
                        let _ = py.detach(|| next(&mut receive, GRACE));
                    })?;
                    seen = figures;
                    if goes_on {
                        continue;
                    }
                    remote.stop.store(true, Ordering::Relaxed);
                    // Work that ended in the meantime is stopped, too, whatever the load of the machine.
                    match py.detach(|| next(&mut receive, GRACE)) {
                        Ok(Err(error)) => Err(error),
                        Ok(Ok(_)) | Err(_) => Err(Error::cancelled()),
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    Err(Error::io("the work ended unexpectedly, which is a fault of Statelens")
                        .coded("panic"))
                }
            };
            let value = result.map_err(|error| raised(py, &error))?;
            // The end of a total is reported always.
            let figures = remote.figures();
            let is_stopped = self.callback.is_some()
                && figures != seen
                && figures.total > 0
                && figures.done >= figures.total
                && !self.look(py, figures)?;
            return match is_stopped {
                true => Err(raised(py, &Error::cancelled())),
                false => Ok(value),
            };
        }
    }

    fn look(&mut self, py: Python<'_>, figures: Figures) -> PyResult<bool> {
        py.check_signals()?;
        let Some(callback) = &self.callback else { return Ok(true) };
        let answer = callback.bind(py).call1((figures.done, figures.total))?;
        Ok(!answer.is_instance_of::<pyo3::types::PyBool>() || answer.is_truthy()?)
    }
}

impl Progress for Watch {
    fn report(&mut self, done: u64, total: u64) -> bool {
        let is_end = self.figures.take(done, total);
        if self.last.elapsed() < TICK && !(is_end && self.callback.is_some()) {
            return true;
        }
        let figures = self.figures;
        let go_on = Python::attach(|py| self.look(py, figures));
        self.last = Instant::now();
        go_on.unwrap_or_else(|error| {
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            false
        })
    }
}

/// Waits for a result. Takes the receiver for itself, because threads can't share it.
fn next<T>(receive: &mut Receiver<T>, time: Duration) -> Result<T, RecvTimeoutError> {
    receive.recv_timeout(time)
}

impl Remote {
    fn figures(&self) -> Figures {
        *self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for Remote {
    fn report(&mut self, done: u64, total: u64) -> bool {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner).take(done, total);
        !self.stop.load(Ordering::Relaxed)
    }
}
