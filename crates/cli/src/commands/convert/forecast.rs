//! Reports what a conversion would lose, without writing anything.

use std::sync::Arc;

use serde::Serialize;
use statelens::parts::checkpoint::Checkpoint;
use statelens::parts::convert::RunReport;
use statelens::parts::values::fields;
use statelens::report::CastEffects;
use statelens::{ConversionPlan, Result, executor};

use super::ConvertJob;
use crate::commands::losses::{REFUSAL, cast_text, losses_text};
use crate::print::{Failure, Printer};
use crate::progress::{Bar, Unit};
use crate::{limits, remote};

/// The plan of a conversion and its losses.
pub(crate) struct Forecast {
    pub(super) planned: ConversionPlan,
    /// Counts of what casts would do; set if the values were read.
    scanned: Option<RunReport>,
}

impl ConvertJob<'_> {
    /// Computes the losses; with `scan`, reads the values to count what casts do.
    pub(crate) fn forecast(&self, checkpoint: &Arc<Checkpoint>, scan: bool) -> Result<Forecast> {
        let planned = self.plan(checkpoint)?;
        let scanned = scan.then(|| counted(checkpoint, &planned)).transpose()?;
        Ok(Forecast { planned, scanned })
    }

    /// Refuses, before anything is written, a conversion whose result [`ConvertJob::run`] would
    /// discard.
    pub(crate) fn check(&self, checkpoint: &Arc<Checkpoint>) -> Result<()> {
        if self.writes.lossy {
            return Ok(());
        }
        let planned = self.plan(checkpoint)?;
        REFUSAL.check_losses(&planned.plan)?;
        let source = &planned.plan.source;
        match statelens::parts::convert::narrows(source) {
            true => REFUSAL.check_casts(source, &counted(checkpoint, &planned)?),
            false => Ok(()),
        }
    }
}

impl Forecast {
    /// Prints the losses, then the counts.
    pub(crate) fn text(&self, printer: &mut Printer) -> Result<(), Failure> {
        let plan = &self.planned.plan;
        losses_text(&plan.losses, printer)?;
        match &self.scanned {
            Some(report) => cast_text(report, &report.worst(&plan.source), printer),
            None => Ok(()),
        }
    }

    /// Returns the losses and counts as in JSON.
    pub(crate) fn fields(&self) -> impl Serialize {
        let plan = &self.planned.plan;
        let cast = self.scanned.as_ref().map(|report| {
            fields! { cast: CastEffects::new(report, &report.worst(&plan.source)) }
        });
        fields! {
            #[serde(flatten)]
            cast: cast,
            losses: &plan.losses,
        }
    }

    /// Returns what casts would do, if the values were read.
    pub(super) fn scanned(&self) -> Option<&RunReport> {
        self.scanned.as_ref()
    }

    /// Fails if the casts that were counted would be refused.
    pub(crate) fn refuse(&self) -> Result<()> {
        match &self.scanned {
            Some(report) => REFUSAL.check_casts(&self.planned.plan.source, report),
            None => Ok(()),
        }
    }
}

/// Reads the values that a plan writes and counts what casts do to them.
fn counted(checkpoint: &Checkpoint, planned: &ConversionPlan) -> Result<RunReport> {
    limits::check(checkpoint, "reading all values")?;
    remote::check_cap(&planned.plan)?;
    let mut bar = Bar::stoppable("reading", Unit::Bytes)?;
    executor::count(planned.plan.clone(), &mut bar)
}
