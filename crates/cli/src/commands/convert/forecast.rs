//! Reports what a conversion would lose, without writing anything.

use std::sync::Arc;

use statelens::parts::checkpoint::{Checkpoint, Plan};
use statelens::parts::convert::RunReport;
use statelens::parts::values::Json;
use statelens::report::{cast_json, losses_json};
use statelens::{Result, executor};

use super::{ConvertJob, report};
use crate::commands::edits;
use crate::output::stop_signal;
use crate::print::{Failure, Printer};
use crate::progress::{Bar, Unit};
use crate::{limits, remote};

/// The losses that a conversion would have.
pub(crate) struct Forecast {
    plan: Plan,
    /// Counts of what casts would do; set if the values were read.
    scanned: Option<RunReport>,
}

impl ConvertJob<'_> {
    /// Computes the losses; with `scan`, reads the values to count what casts do.
    pub(crate) fn forecast(&self, checkpoint: &Arc<Checkpoint>, scan: bool) -> Result<Forecast> {
        let (plan, ..) = self.planned(checkpoint)?;
        let scanned = scan.then(|| counted(checkpoint, plan.clone())).transpose()?;
        Ok(Forecast { plan, scanned })
    }

    /// Refuses, before anything is written, a conversion whose result [`ConvertJob::run`] would
    /// discard.
    pub(crate) fn check(&self, checkpoint: &Arc<Checkpoint>) -> Result<()> {
        if self.writes.lossy {
            return Ok(());
        }
        let (plan, ..) = self.planned(checkpoint)?;
        if plan.loses() {
            return Err(report::refuse_losses(&plan.losses));
        }
        let source = plan.source.clone();
        match statelens::parts::convert::narrows(&source) {
            true => edits::refuse_false(&source, &counted(checkpoint, plan)?),
            false => Ok(()),
        }
    }
}

impl Forecast {
    /// Prints the losses, then the counts.
    pub(crate) fn text(&self, printer: &mut Printer) -> Result<(), Failure> {
        report::losses_text(&self.plan.losses, printer)?;
        match &self.scanned {
            Some(report) => edits::cast_text(&self.plan.source, report, printer),
            None => Ok(()),
        }
    }

    /// Writes the losses and counts as fields of an object.
    pub(crate) fn json(&self, json: &mut Json) {
        if let Some(report) = &self.scanned {
            cast_json(json, report, &report.worst(&self.plan.source));
        }
        losses_json(json, &self.plan.losses);
    }

    /// Fails where a conversion without `--lossy` would fail.
    pub(crate) fn refuse(&self) -> Result<()> {
        match &self.scanned {
            Some(report) => edits::refuse_false(&self.plan.source, report),
            None => Ok(()),
        }
    }
}

/// Reads the values that a plan writes and counts what casts do to them.
pub(super) fn counted(checkpoint: &Checkpoint, plan: Plan) -> Result<RunReport> {
    limits::check(checkpoint, "reading all values")?;
    remote::check_cap(&plan)?;
    let mut bar = Bar::new("reading", Unit::Bytes).stopped_by(stop_signal()?);
    executor::count(plan, &mut bar)
}
