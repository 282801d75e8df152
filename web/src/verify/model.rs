//! The state of a verification.

use web_sys::File;

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
