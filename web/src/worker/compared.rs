//! The second checkpoint of a comparison.

use statelens_inspect::check;

use crate::worker::opened::OpenCheckpoint;

/// The state of a comparison.
#[derive(Default)]
pub(super) struct ComparedCheckpoint {
    pub(super) open: Option<OpenCheckpoint>,
    /// The expected keys, if a manifest or a list of keys was opened instead of a checkpoint.
    pub(super) list: Option<Vec<check::Expected>>,
    pub(super) report: Option<String>,
}
