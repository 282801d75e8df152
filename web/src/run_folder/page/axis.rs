//! The axis of steps shared by the timeline and the chart below it.

use statelens_compare::runs::RunContents;
use statelens_values::picture::SharedAxis;

use crate::run_folder::state::{step, ticks};

/// Pixels to the left of the axis.
pub(super) const LEFT: f64 = 74.0;
/// Pixels to the right of the axis.
pub(super) const RIGHT: f64 = 20.0;

/// Returns the largest step of any file, which is the end of the axis.
pub(super) fn last_step(run: &RunContents) -> u128 {
    run.entries.iter().filter_map(step).max().unwrap_or(0)
}

/// Returns the axis for a chart.
pub(super) fn shared(run: &RunContents) -> SharedAxis {
    let last = last_step(run);
    let ticks = ticks(last).into_iter().map(|tick| tick as f64).collect();
    SharedAxis { left: LEFT, right: RIGHT, ends: (0.0, last.max(1) as f64), ticks }
}
