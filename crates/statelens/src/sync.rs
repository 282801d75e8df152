//! What threads share and wait for. The tests of interleavings (`tests/interleavings`) compile the
//! modules that use it against shuttle instead.

pub(crate) use std::sync::{Condvar, Mutex, PoisonError, atomic, mpsc};
pub(crate) use std::thread::{JoinHandle, scope};
