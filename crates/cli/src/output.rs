//! Where files are written, and what a signal means for them.

mod signals;

pub(crate) use signals::{caught, stop_signal};
pub(crate) use statelens::output::{Folders, Output, Sync, check_target, keep_all, sync_folder};
