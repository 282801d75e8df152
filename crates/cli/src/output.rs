//! Output files, and how signals interrupt writing.

mod signals;

pub(crate) use signals::{caught, report_to_caller, stop_signal, watched};
pub(crate) use statelens::output::{Folders, Output, Sync, check_target, keep_all, sync_folder};
