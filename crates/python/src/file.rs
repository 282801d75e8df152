//! Python's file objects as sources.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use statelens::{Error, ReadAt, Result};

/// An object with `seek` and `read`, which is read by one thread at a time.
pub(crate) struct FileObject {
    object: Py<PyAny>,
    len: u64,
    /// Held from `seek` to `read`. It is taken before the interpreter, never while holding it: the
    /// holder of the lock waits for the interpreter.
    turn: Mutex<()>,
}

impl FileObject {
    /// Takes a file object, and asks for its length.
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        object.call_method1(intern!(object.py(), "seek"), (0, 2))?;
        let len = object.call_method0(intern!(object.py(), "tell"))?.extract()?;
        Ok(Self { object: object.clone().unbind(), len, turn: Mutex::new(()) })
    }

    fn read(&self, py: Python<'_>, offset: u64, mut buffer: &mut [u8]) -> PyResult<bool> {
        let object = self.object.bind(py);
        object.call_method1(intern!(py, "seek"), (offset,))?;
        // One call may return fewer bytes than requested.
        while !buffer.is_empty() {
            let read = object.call_method1(intern!(py, "read"), (buffer.len(),))?;
            let bytes = read.cast::<PyBytes>()?.as_bytes();
            if bytes.is_empty() {
                return Ok(false);
            }
            let Some(place) = buffer.split_off_mut(..bytes.len()) else {
                return Err(PyTypeError::new_err("`read` returned more bytes than requested"));
            };
            place.copy_from_slice(bytes);
        }
        Ok(true)
    }
}

impl fmt::Debug for FileObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileObject({})", self.len)
    }
}

impl ReadAt for FileObject {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match Python::attach(|py| self.read(py, offset, buffer)) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::io("the file became shorter while it was read").at(offset)),
            Err(error) => {
                Err(Error::io(format!("reading failed: {error}")).at(offset).caused_by(error))
            }
        }
    }
}
