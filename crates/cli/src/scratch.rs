//! Room on disk for tensors that are put in order, as much as the user allows.

use std::sync::{Arc, OnceLock};

pub(crate) use statelens::scratch::unnamed;
use statelens::scratch::{Disk, MOST};
use statelens_checkpoint::Scratch;

static DISK: OnceLock<Arc<Disk>> = OnceLock::new();

/// Allows so many bytes, once, before anything is read.
pub(crate) fn allow(most: u64) {
    // A command sets it once.
    let _ = DISK.set(disk(most));
}

/// The disk as scratch.
pub(crate) fn on_disk() -> Arc<dyn Scratch> {
    DISK.get_or_init(|| disk(MOST)).clone()
}

fn disk(most: u64) -> Arc<Disk> {
    Arc::new(
        Disk::new(most).advising(|needed| {
            format!("Allow more with --scratch {needed}; TMPDIR says where it is.")
        }),
    )
}
