//! Errors for losses that the user did not accept.

use statelens_checkpoint::{Checkpoint, Error, Loss, Plan, Result};
use statelens_convert::RunReport;

/// The errors that refuse losses, in the words of a front end.
#[derive(Debug, Clone, Copy)]
pub struct Refusal {
    /// Returns the error for the losses of a plan.
    pub losses: fn(&[Loss]) -> Error,
    /// Returns the error for casts that lost numbers: values became infinite or zero. Takes the
    /// edited source.
    pub casts: fn(&Checkpoint, &RunReport) -> Error,
}

impl Default for Refusal {
    fn default() -> Self {
        Self { losses: losses_refused, casts: casts_refused }
    }
}

impl Refusal {
    /// Fails if a plan has losses.
    pub fn check_losses(&self, plan: &Plan) -> Result<()> {
        if plan.loses() { Err((self.losses)(&plan.losses)) } else { Ok(()) }
    }

    /// Fails if casts of `source`, the edited source, lost numbers.
    pub fn check_casts(&self, source: &Checkpoint, report: &RunReport) -> Result<()> {
        if report.is_false() { Err((self.casts)(source, report)) } else { Ok(()) }
    }
}

fn casts_refused(_: &Checkpoint, _: &RunReport) -> Error {
    Error::refused("casting loses numbers, so nothing was kept")
        .coded("lossy")
        .advice("Use a dtype with a larger range, or accept losses with `lossy`.")
}

fn losses_refused(losses: &[Loss]) -> Error {
    let mut what = String::new();
    for loss in losses.iter().filter(|loss| !loss.harmless) {
        let keys = match loss.keys.as_slice() {
            [] => String::new(),
            [key] => format!(" (`{key}`)"),
            [key, more @ ..] => format!(" (`{key}` and {} more)", more.len()),
        };
        what.push_str(if what.is_empty() { "" } else { "; " });
        what.push_str(&format!("{}{keys}", loss.what));
    }
    Error::refused(format!("something would be lost, so nothing was written: {what}"))
        .coded("lossy")
        .advice("Leave these keys out, or accept losses with `lossy`.")
}
