//! Stands for `statelens::threads`. Shuttle ends a test when a thread panics; these threads report
//! the panic to the thread that joins them, as those of the system do.

use std::panic::{AssertUnwindSafe, catch_unwind};

use shuttle::thread::{self, Scope};
use statelens_checkpoint::{Error, Result};

pub(crate) struct Builder;

pub(crate) struct JoinHandle<T>(thread::JoinHandle<thread::Result<T>>);

pub(crate) struct ScopedJoinHandle<'scope, T>(thread::ScopedJoinHandle<'scope, thread::Result<T>>);

#[expect(clippy::unnecessary_wraps, reason = "the system may refuse a thread")]
pub(crate) fn thread() -> Result<Builder> {
    Ok(Builder)
}

pub(crate) fn no_thread(error: std::io::Error) -> Error {
    Error::limit(error.to_string())
}

#[expect(clippy::unnecessary_wraps, reason = "the system may refuse a thread")]
impl Builder {
    pub(crate) fn spawn<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<JoinHandle<T>> {
        Ok(JoinHandle(thread::spawn(|| catch_unwind(AssertUnwindSafe(work)))))
    }

    pub(crate) fn spawn_scoped<'scope, T: Send + 'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> std::io::Result<ScopedJoinHandle<'scope, T>> {
        Ok(ScopedJoinHandle(scope.spawn(|| catch_unwind(AssertUnwindSafe(work)))))
    }
}

impl<T> JoinHandle<T> {
    pub(crate) fn join(self) -> thread::Result<T> {
        self.0.join()?
    }
}

impl<T> ScopedJoinHandle<'_, T> {
    pub(crate) fn join(self) -> thread::Result<T> {
        self.0.join()?
    }
}
