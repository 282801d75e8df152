//! Stands for `statelens::sync`.

pub(crate) use shuttle::sync::{Condvar, Mutex, atomic, mpsc};
pub(crate) use shuttle::thread::scope;
pub(crate) use std::sync::PoisonError;

pub(crate) use crate::threads::JoinHandle;
