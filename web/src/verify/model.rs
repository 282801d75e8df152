//! The state of a verification.

use web_sys::File;

use crate::page::stored::store_rate;
use crate::state::task::Task;
use crate::verify::message::VerifyReport;

/// A verification of the open checkpoint.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Verification {
    /// The manifest to verify against.
    pub manifest: Option<File>,
    /// Whether non-finite numbers count as errors.
    pub finite: bool,
    /// Whether the user agreed to read far more data than the files hold (they expand when
    /// unpacked).
    pub unpack_confirmed: bool,
    pub task: Task<VerifyReport>,
}

impl Verification {
    /// Stores the report.
    pub(crate) fn set(&mut self, report: Box<VerifyReport>, done: bool) {
        self.task.set(report, done);
        // A shorter run is not a reliable estimate of the speed.
        if let Task::Done(verified) = &self.task
            && verified.millis > 300.0
        {
            store_rate(verified.bytes as f64 / verified.millis);
        }
    }
}
