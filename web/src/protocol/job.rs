//! Jobs: what each request of the page begins, and how it ends.

use serde::{Deserialize, Serialize};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident($request:ty) -> $result:ty, starts $start:path $(, sheet $sheet:path)?;)*) => {
        /// The kind of a job. Of most kinds only one runs at a time: a new job replaces the running
        /// one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub enum JobKind {
            /// Opening a checkpoint. The worker receives no messages meanwhile.
            Open,
            /// Opening the files of a run folder.
            CheckRun,
            /// Opening the other files of a drop, to find damaged ones.
            CheckFiles,
            /// Reading a window of a matrix.
            Cells,
            /// Opening the second side of a comparison.
            OpenCompared,
            /// Describing a row.
            Inspect,
            Values,
            /// Planning a conversion.
            Plan,
            Share,
            /// Requests that are completed as soon as they are received.
            Other,
            $($(#[$doc])* $kind,)*
        }

        impl JobKind {
            /// Returns whether it is a task, which has progress and a result.
            pub fn is_task(self) -> bool {
                matches!(self, $(Self::$kind)|*)
            }
        }
    };
}

tasks!(kinds);

impl JobKind {
    /// Returns whether a new job of this kind replaces the running one.
    pub fn is_single(self) -> bool {
        !matches!(self, Self::Write | Self::Other)
    }
}

/// Why a job is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobEnd {
    /// It finished or failed.
    Completed,
    /// It was stopped, or another job of its kind began.
    Stopped,
    /// Something else was opened.
    Replaced,
    /// It was about a session that is not open, or not any more.
    Refused,
}
