//! The checkpoints that a converted model is written to: one, or one per part, per rank, and for
//! the optimizer.

use std::path::PathBuf;
use std::sync::Arc;

use statelens::PathText as _;
use statelens::Result;
use statelens::parts::checkpoint::Checkpoint;
use statelens::parts::convert::{CastRule, Edit};
use statelens::parts::formats::Shards;
use statelens_recipes::conversion::OPTIMIZER_FILE;

use super::requested::RequestedConversion;
use crate::args::{ConvertModel, Writes};
use crate::commands::convert::{ConvertJob, Forecast};
use crate::print::Failure;
use crate::source::FileSource;

/// The checkpoints to write and their options.
pub(super) struct CheckpointOutputs<'a> {
    args: &'a ConvertModel,
    parts: Vec<(CheckpointOutput, Arc<Checkpoint>)>,
}

struct CheckpointOutput {
    path: PathBuf,
    edit: Edit,
    writes: Writes,
    cut: Shards,
}

impl<'a> CheckpointOutputs<'a> {
    /// Determines the outputs of the checkpoints in `made`. A cast applies to the parts where it
    /// matches a key.
    pub(super) fn new(
        args: &'a ConvertModel,
        requested: &RequestedConversion,
        made: Vec<(Option<String>, Checkpoint)>,
        casts: Vec<CastRule>,
    ) -> Result<Self> {
        let all: Vec<&Checkpoint> = made.iter().map(|(_, checkpoint)| checkpoint).collect();
        let casts = CastRule::for_each(casts, &all)?;
        let parts = made.into_iter().zip(casts).map(|((name, checkpoint), casts)| {
            let to = match name.as_deref() {
                Some(OPTIMIZER_FILE) => "torch",
                _ if requested.target.is_cerebras() => "cerebras",
                _ if args.export_safetensors => "safetensors",
                _ => "torch",
            };
            let (path, cut) = requested.output(args, name.as_deref())?;
            let edit = Edit { casts, ..Edit::default() };
            let writes = Writes { lossy: args.lossy, ..Writes::plain(to, args.replacing) };
            let part = CheckpointOutput { path, edit, writes, cut };
            Ok((part, Arc::new(checkpoint)))
        });
        Ok(Self { args, parts: parts.collect::<Result<_>>()? })
    }

    /// Returns what casts would lose in each part that has casts, with the name of its file.
    pub(super) fn forecasts(&self) -> Result<Vec<(String, Forecast)>> {
        let cast = self.parts.iter().filter(|(part, _)| !part.edit.casts.is_empty());
        cast.map(|(part, checkpoint)| {
            let forecast = part.job(self.args)?.forecast(checkpoint, self.args.preview.scan)?;
            Ok((part.path.to_text(), forecast))
        })
        .collect()
    }

    /// Refuses losses in later parts before the first part is written.
    pub(super) fn check(&self) -> Result<()> {
        let mut later = self.parts.iter().skip(1);
        later.try_for_each(|(part, checkpoint)| part.job(self.args)?.check(checkpoint))
    }

    /// Writes the checkpoints one after the other.
    pub(super) fn write(self, sources: &[Arc<FileSource>]) -> std::result::Result<(), Failure> {
        for (part, checkpoint) in self.parts {
            part.job(self.args)?.run(checkpoint, sources)?;
        }
        Ok(())
    }
}

impl CheckpointOutput {
    fn job<'j>(&'j self, args: &'j ConvertModel) -> Result<ConvertJob<'j>> {
        let plain = ConvertJob::to_file(self.path.clone(), &self.writes, &args.common)?;
        Ok(ConvertJob { edit: self.edit.clone(), cut: self.cut.clone(), ..plain })
    }
}
