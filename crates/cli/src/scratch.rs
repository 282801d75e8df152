//! Temporary space on disk for reordering tensors, as much as the user allows.

use std::sync::{Arc, OnceLock};

use statelens::parts::checkpoint::Scratch;
pub(crate) use statelens::scratch::unnamed;
use statelens::scratch::{Disk, MOST};

static DISK: OnceLock<Arc<Disk>> = OnceLock::new();

/// Sets the limit in bytes.
pub(crate) fn allow(most: u64) {
    // Can't fail: a command sets it once, before it reads anything.
    let _ = DISK.set(disk(most));
}

/// Returns temporary space on disk.
pub(crate) fn on_disk() -> Arc<dyn Scratch> {
    DISK.get_or_init(|| disk(MOST)).clone()
}

fn disk(most: u64) -> Arc<Disk> {
    Arc::new(
        Disk::new(most).advising(|needed| {
            format!("Allow more with --scratch {needed}; TMPDIR sets its folder.")
        }),
    )
}
