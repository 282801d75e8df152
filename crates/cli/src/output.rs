//! Output files, and how signals interrupt writing.

mod signals;

pub(crate) use signals::{caught, stop_signal};
pub(crate) use statelens::output::{Folders, Output, Sync, check_target, keep_all, sync_folder};
