//! Raises errors of the core as the exceptions of `pystatelens.errors`.

use std::error::Error as _;
use std::io;
use std::sync::Arc;

use pyo3::exceptions::{PyException, PyImportError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;
use statelens::parts::checkpoint::Setting;
use statelens::waiting::{StopCheck, stoppable};
use statelens::{Error, ErrorKind, Result};

use crate::words::in_python;

/// The module `pystatelens.errors`, imported when this one is: an import would fail while a signal is
/// pending.
static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// Imports the classes of exceptions.
pub(crate) fn import_classes(py: Python<'_>) -> PyResult<()> {
    CLASSES.get_or_try_init(py, || Ok(py.import("pystatelens.errors")?.unbind())).map(|_| ())
}

/// Does work without holding the interpreter. Ctrl-C ends it while it waits for a server.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T> + Send,
) -> PyResult<T> {
    py.detach(|| stoppable(signal_check(), work)).map_err(|error| raised(py, &error))
}

/// Returns a check for Ctrl-C, which finds it in the main thread of Python only.
pub(crate) fn signal_check() -> Arc<StopCheck> {
    Arc::new(|| {
        let checked = Python::attach(|py| py.check_signals());
        checked.map_err(|signal| Error::cancelled().caused_by(signal))
    })
}

/// Returns the exception for an error. If Python code caused the error, for example a file object,
/// that exception is its `__cause__`; exceptions such as `KeyboardInterrupt` are raised unchanged. A
/// signal that is pending comes first.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    if let Err(signal) = py.check_signals() {
        return signal;
    }
    let cause = error.source().and_then(|cause| cause.downcast_ref::<PyErr>());
    let cause = cause.map(|cause| cause.clone_ref(py));
    if let Some(cause) = &cause
        && !cause.is_instance_of::<PyException>(py)
    {
        return cause.clone_ref(py);
    }
    let made = import_classes(py).and_then(|()| {
        let classes =
            CLASSES.get(py).ok_or_else(|| PyImportError::new_err("pystatelens.errors"))?;
        let error = &advised(error);
        let advice = error.next_step().map(|advice| advice.sentence(parameter));
        let advice = advice.map(|advice| in_python(&advice).into_owned());
        let message = error.message(parameter);
        let (message, what) = (in_python(&message), in_python(error.what()));
        let parts = (message, what, error.code(), error.file());
        let more = (error.offset(), advice, errno(py, error, cause.as_ref()));
        classes
            .bind(py)
            .getattr(class(error))?
            .call1((parts.0, parts.1, parts.2, parts.3, more.0, more.1, more.2))
    });
    let exception = match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(failed) => PyImportError::new_err(format!("{error} ({failed})")),
    };
    exception.set_cause(py, cause);
    exception
}

/// Returns the error with advice in terms of Python, unless the library's suffices.
fn advised(error: &Error) -> Error {
    let error = error.clone();
    match (error.code(), error.next_step()) {
        ("exists", _) => error.advice("Name another one, or replace it with `replace=True`."),
        ("limit", None) => error.advice(
            "If you trust the file, allow ten times as much with `pystatelens.open(file, limit=10)`, \
             or anything with `limit=0`.",
        ),
        _ => error,
    }
}

/// Returns the number of the system's error that caused this one, if it is known.
fn errno(py: Python<'_>, error: &Error, cause: Option<&PyErr>) -> Option<i32> {
    if let Some(cause) = cause {
        return cause.value(py).getattr("errno").ok()?.extract().ok();
    }
    error.source()?.downcast_ref::<io::Error>()?.raw_os_error()
}

/// Returns the name of the class of exceptions.
fn class(error: &Error) -> &'static str {
    match (error.code(), error.kind()) {
        ("no-such-key", _) => "NoSuchKeyError",
        ("slice", _) => "SliceError",
        ("not-found", _) => "NotFoundError",
        ("exists", _) => "ExistsError",
        (_, ErrorKind::Damaged) => "DamagedError",
        (_, ErrorKind::Unsupported) => "UnsupportedError",
        (_, ErrorKind::Limit) => "LimitError",
        (_, ErrorKind::Refused) => "RefusedError",
        (_, ErrorKind::Io) => "IoError",
        (_, ErrorKind::Cancelled) => "CancelledError",
        _ => "StatelensError",
    }
}

/// Returns the parameter in Python of a setting.
pub(crate) fn parameter(setting: Setting) -> &'static str {
    match setting {
        Setting::AbortJob => "`pystatelens.job.abort`",
        Setting::CastToFloat32 => "`cast=\"float32\"`",
        Setting::Compress => "`compression`",
        Setting::Config => "`config`",
        Setting::Convert => "`pystatelens.convert`",
        Setting::ConvertLossy => "`pystatelens.convert(\u{2026}, lossy=True)`",
        Setting::DropUnmatched => "`drop_unmatched_keys=True`",
        Setting::Exclude => "`exclude`",
        Setting::FoldLora => "`fold_lora=True`",
        Setting::FixSpec => "`pystatelens.fix_checkpoint_spec(\u{2026}, upgrade=True)`",
        Setting::FormatVersion => "`version`",
        Setting::FormatVersion04 => "`version=\"0.4\"`",
        Setting::FromCerebras => "`src_fmt=\"cs-2.4\"`",
        Setting::FromHuggingFace => "`src_fmt=\"hf\"`",
        Setting::HubToken => "the environment variable `HF_TOKEN`",
        Setting::Limit10 => "`pystatelens.open(file, limit=10)`",
        Setting::LimitNone => "`limit=0`",
        Setting::ListConverters => "`pystatelens.list_converters`",
        Setting::ListKeys => "`pystatelens.ls`",
        Setting::MakeManifest => "`pystatelens.manifest`",
        Setting::MaxFetch => "`max_fetch`",
        Setting::Model => "`model`",
        Setting::ObjectGraph => "`object_graph`",
        Setting::PlanJob => "`pystatelens.job.plan`",
        Setting::Prefix => "`prefix`",
        Setting::ReadAs => "`read_as`",
        Setting::Recipe => "`recipe`",
        Setting::Rename => "`rename`",
        Setting::Select => "`select`",
        Setting::ShardSize => "`shard_size`",
        Setting::Shards => "`shard_size` or `shards`",
        Setting::ToTensorflow => "`to=\"tensorflow\"`",
        Setting::Untie => "`untie=True`",
        Setting::Unwrap => "`unwrap=True`",
        Setting::Upgrade => "`pystatelens.upgrade`",
        Setting::UpgradeLossy => "`pystatelens.upgrade(\u{2026}, lossy=True)`",
        Setting::WithOptimizer => "`with_optimizer=True`",
    }
}
