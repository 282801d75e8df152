//! Measures a checkpoint: reads its tensors, checks those without statistics, reads some again.

use statelens_checkpoint::{Error, Leaf, Progress, Result, Setting, advice};
use statelens_convert::Pattern;
use statelens_values::weights::{Noticed, Survey};

use super::{
    FailOn, FailedTensors, MeasuredTensor, MeasuredTensors, OtherNumbers, SecondPass,
    StatisticsOptions, drive, first_read,
};
use crate::Checkpoint;

/// Shows the progress of the stages of [`measure`].
pub trait Stages {
    /// Begins a stage: `reading`, `checking` or `looking closer`.
    fn begin(&mut self, stage: &'static str) -> Result<&mut dyn Progress>;
}

impl Stages for &mut dyn Progress {
    fn begin(&mut self, _: &'static str) -> Result<&mut dyn Progress> {
        Ok(&mut **self)
    }
}

/// The statistics of a checkpoint and what follows from them.
pub struct Measurements<'a> {
    /// The leaves whose keys match the patterns.
    pub leaves: &'a [Leaf],
    /// The statistics of their tensors.
    pub tensors: &'a MeasuredTensors<'a>,
    /// The second read.
    pub second: SecondPass<'a>,
    /// The observations about the leaves.
    pub noticed: Vec<Noticed>,
    /// The tensors that the caller does not accept, if it named properties.
    pub failed: Option<FailedTensors>,
}

/// Reads the tensors of `checkpoint` whose keys match one of the patterns, and passes the results to
/// `report`. `stored` is the same checkpoint with quantised weights as they are stored, whose scales
/// are checked if `fail_on` is not empty.
pub fn measure<T, E: From<crate::Error>>(
    (stored, checkpoint): (&Checkpoint, &Checkpoint),
    patterns: &[Pattern],
    options: StatisticsOptions<'_>,
    fail_on: &[FailOn],
    stages: &mut dyn Stages,
    report: impl FnOnce(Measurements<'_>) -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    let _call = checkpoint.call();
    let (core, workers) = (checkpoint.inner(), checkpoint.workers());
    core.room(800)?;
    let wanted = |key: &str| Pattern::any_selects(patterns, key);
    let leaves = core.leaves().into_iter().filter(|leaf| wanted(&leaf.flat.to_lossy()));
    let leaves: Vec<Leaf> = leaves.collect();
    if !fail_on.is_empty() {
        refuse_unused(patterns, &leaves)?;
    }
    let mut tensors = MeasuredTensors::new(options, core, &leaves);
    let first = first_read(core, &leaves);
    drive(first, workers, stages.begin("reading")?, &mut |id, found| tensors.take(id, found))?;
    checkpoint.unchanged()?;
    let mut failed = None;
    if !fail_on.is_empty() {
        let progress = stages.begin("checking")?;
        let found = OtherNumbers::read(core, &leaves, &tensors, progress)?;
        let others = OtherNumbers { scales: stored.scale_faults(&wanted, progress)?, ..found };
        failed = Some(FailedTensors::find(fail_on, &tensors, &leaves, others));
    }
    let mut again = |survey: Survey, out: &mut dyn FnMut(_, _) -> Result<()>| {
        drive(survey, workers, stages.begin("looking closer")?, out)?;
        checkpoint.unchanged()
    };
    let second = SecondPass::read(core, &leaves, &tensors, options.rows, &mut again)?;
    let noticed = second.findings(core, &leaves);
    report(Measurements { leaves: &leaves, tensors: &tensors, second, noticed, failed })
}

/// Fails if a pattern matches no key: what it names would pass without being checked.
fn refuse_unused(patterns: &[Pattern], leaves: &[Leaf]) -> Result<()> {
    let is_unused =
        |pattern: &&Pattern| !leaves.iter().any(|leaf| pattern.selects(&leaf.flat.to_lossy()));
    match patterns.iter().find(is_unused) {
        None => Ok(()),
        Some(unused) => Err(Error::refused(format!(
            "no key matches {}, so nothing would be checked",
            unused.as_str()
        ))
        .advice(advice!["List the keys with ", Setting::ListKeys, "."])),
    }
}

impl Measurements<'_> {
    /// Writes JSON in pieces, with the tensors in `rows`.
    pub fn json<E>(
        &self,
        rows: &[(&Leaf, &MeasuredTensor)],
        out: &mut dyn FnMut(&str) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let Self { leaves, tensors, second, noticed, failed } = self;
        tensors.json(rows, leaves, second, noticed, failed.as_ref(), out)
    }
}
