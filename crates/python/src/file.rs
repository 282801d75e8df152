//! Python's file objects as sources.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use pyo3::buffer::PyBuffer;
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
    /// Takes a file object, and finds its length.
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
            let more = || PyTypeError::new_err("`read` returned more bytes than requested");
            if let Ok(bytes) = read.cast::<PyBytes>() {
                let bytes = bytes.as_bytes();
                if bytes.is_empty() {
                    return Ok(false);
                }
                buffer.split_off_mut(..bytes.len()).ok_or_else(more)?.copy_from_slice(bytes);
                continue;
            }
            let bytes = PyBuffer::<u8>::get(&read)?;
            if bytes.len_bytes() == 0 {
                return Ok(false);
            }
            let place = buffer.split_off_mut(..bytes.len_bytes()).ok_or_else(more)?;
            bytes.copy_to_slice(py, place)?;
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
        let read = Python::try_attach(|py| self.read(py, offset, buffer));
        match read.ok_or_else(|| Error::io("Python has ended"))? {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::io("the file became shorter while it was read").at(offset)),
            Err(error) => {
                Err(Error::io(format!("reading failed: {error}")).at(offset).caused_by(error))
            }
        }
    }
}
