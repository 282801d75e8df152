//! The second checkpoint of a comparison.

use statelens_inspect::check;

use crate::worker::opened::OpenCheckpoint;

/// What the worker holds of a comparison.
#[derive(Default)]
pub(super) struct Second {
    pub(super) open: Option<OpenCheckpoint>,
    /// What is expected, where it is not a checkpoint but says that.
    pub(super) list: Option<Vec<check::Expected>>,
    pub(super) report: Option<String>,
}
