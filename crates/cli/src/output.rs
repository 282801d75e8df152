//! Output files, and how signals interrupt writing.

mod signals;

pub(crate) use signals::{caught, report_to_caller, stop_signal, watched};
pub(crate) use statelens::output::{
    Sync, check_not_addressed, check_target, sync_folder, write_file, write_small,
};
