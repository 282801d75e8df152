//! The extension module of the Python package `pystatelens`: checkpoints, tensors and reports for
//! the classes and functions in `python/pystatelens`, which are what users see.
//!
//! Work that may take long releases the interpreter, and looks for Ctrl-C now and then.

mod checkpoint;
mod collect;
mod command;
mod convert;
mod dtype;
mod errors;
mod file;
mod job;
mod lists;
mod matrices;
mod memory;
mod place;
mod plain;
mod reports;
mod served;
mod sharing;
mod tensor;
mod text;
mod tree;
mod watch;
mod words;

#[pyo3::pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::checkpoint::NativeCheckpoint;
    #[pymodule_export]
    use crate::collect::{collect, updated};
    #[pymodule_export]
    use crate::command::{call, command};
    #[pymodule_export]
    use crate::convert::{convert, plan_conversion};
    #[pymodule_export]
    use crate::job::{job_abort, job_commit, job_plan, job_plan_many, job_run, job_status};
    #[pymodule_export]
    use crate::lists::{ls, manifest, matching};
    #[pymodule_export]
    use crate::matrices::{draw, rank, singular, snippet, tensor_diff};
    #[pymodule_export]
    use crate::place::{dequantized, is_address, open, parse_size};
    #[pymodule_export]
    use crate::reports::{
        check, check_folder, diff, info, link, renames, scan, stats, summary, verify,
    };
    #[pymodule_export]
    use crate::served::{files, page, read_file};
    #[pymodule_export]
    use crate::tensor::{NativeFile, NativeTensor};
    #[pymodule_export]
    use crate::words::translated;

    /// Imports the classes of exceptions.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::errors::import_classes(module.py())
    }

    /// The version of the package.
    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "Python's name for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
