//! The memory of a task.

use statelens_checkpoint::{Plan, Result, Segment};
use statelens_tensor::{BUDGET, verbatim_span};

use crate::executor::MOST_WORKERS;

/// Bytes for the program itself and its buffers: those that wait to be written, and one to read
/// into.
const BUFFERS: u64 = 24 << 20;

/// Bytes of a parcel and of those that wait for their turn, by worker.
const PARCELS: u64 = 16 << 20;

/// Returns the most bytes of memory that a task of this plan takes. `planning` is the memory at the
/// end of planning, which each task repeats.
pub(crate) fn of_task(plan: &Plan, planning: u64) -> Result<u64> {
    let mut processed = false;
    for segment in plan.segments() {
        if let Segment::Data(data) = segment {
            let tensor = plan.source.tensor(data.tensor)?;
            processed |= data.encoding.is_some() || verbatim_span(tensor).is_none();
        }
    }
    let workers = if processed { MOST_WORKERS as u64 } else { 0 };
    let per_worker = BUDGET as u64 + PARCELS;
    Ok(planning.saturating_add(BUFFERS).saturating_add(workers * per_worker))
}

/// Estimated bytes of memory of a task for many checkpoints, without the structure of a checkpoint.
const MANY: u64 = 400 << 20;

/// Returns the most bytes of memory that a task for many checkpoints takes, of which the largest has
/// `largest` bytes.
pub(crate) fn of_many(largest: u64) -> u64 {
    MANY.saturating_add(largest.min(1 << 30))
}

/// Returns the most memory that this process has taken so far, in bytes; 0 if the system doesn't
/// say.
pub(crate) fn so_far() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = peak.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) << 10
}
