//! What a conversion would lose, with nothing written.

use std::sync::Arc;

use statelens::dividing;
use statelens_checkpoint::{Checkpoint, FileSet, Plan, Result, Span};
use statelens_convert::{RunReport, Sink};
use statelens_inspect::Json;

use super::{ConvertJob, report};
use crate::commands::edits;
use crate::limits;
use crate::output::stop_signal;
use crate::print::{Failure, Printer};
use crate::progress::{Bar, Unit};
use crate::remote;

/// What a conversion would lose.
pub(crate) struct Forecast {
    plan: Plan,
    /// What casts would do, if values were read.
    scanned: Option<RunReport>,
}

impl ConvertJob<'_> {
    /// What this would lose; with `scan` what casts do is counted.
    pub(crate) fn forecast(&self, checkpoint: &Arc<Checkpoint>, scan: bool) -> Result<Forecast> {
        let (plan, _) = self.planned(checkpoint)?;
        let scanned = scan.then(|| counted(checkpoint, plan.clone())).transpose()?;
        Ok(Forecast { plan, scanned })
    }

    /// Refuses what [`ConvertJob::run`] would not keep, before anything is written.
    pub(crate) fn check(&self, checkpoint: &Arc<Checkpoint>) -> Result<()> {
        if self.writes.lossy {
            return Ok(());
        }
        let (plan, _) = self.planned(checkpoint)?;
        if plan.loses() {
            return Err(report::refuse_losses(&plan.losses));
        }
        let source = plan.source.clone();
        match statelens_convert::narrows(&source) {
            true => edits::refuse_false(&source, &counted(checkpoint, plan)?),
            false => Ok(()),
        }
    }
}

impl Forecast {
    /// The losses, then what was counted.
    pub(crate) fn text(&self, printer: &mut Printer) -> Result<(), Failure> {
        report::losses_text(&self.plan.losses, printer)?;
        match &self.scanned {
            Some(report) => edits::cast_text(&self.plan.source, report, printer),
            None => Ok(()),
        }
    }

    /// The same, as fields of an object.
    pub(crate) fn json(&self, json: &mut Json) {
        if let Some(report) = &self.scanned {
            edits::cast_json(json, &self.plan.source, report);
        }
        report::losses_json(json, &self.plan.losses);
    }

    /// As it would end where nothing may be lost.
    pub(crate) fn refuse(&self) -> Result<()> {
        match &self.scanned {
            Some(report) => edits::refuse_false(&self.plan.source, report),
            None => Ok(()),
        }
    }
}

/// Reads what a plan writes, and counts what casts do to it.
pub(super) fn counted(checkpoint: &Checkpoint, plan: Plan) -> Result<RunReport> {
    limits::check(checkpoint, "reading all values")?;
    remote::check_cap(&plan)?;
    let mut bar = Bar::new("reading", Unit::Bytes).stopped_by(stop_signal()?);
    dividing::run(plan, &mut Nowhere, &mut bar)
}

/// Where nothing is written: what a run reads, it reads for its report.
struct Nowhere;

impl Sink for Nowhere {
    fn begin(&mut self, _index: usize) -> Result<()> {
        Ok(())
    }

    fn write(&mut self, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    fn copy(&mut self, _files: &FileSet, _span: Span) -> Result<()> {
        Ok(())
    }

    fn patch_head(&mut self, _head: &[u8]) -> Result<()> {
        Ok(())
    }
}
