//! A conversion that a worker has planned again from the recipe of its job.

use std::sync::Arc;

use statelens_checkpoint::{Error, Plan, Progress, Result};

use super::digest;
use super::division::{Division, Medium};
use super::options::JobOptions;
use super::reading::{check_unchanged, identities};
use super::recipe::{ConvertRecipe, JobWork, Recipe};
use crate::files::FileSource;

/// A conversion that was planned again from its recipe.
pub(crate) struct JobConversion<'a> {
    pub(crate) recipe: &'a ConvertRecipe,
    pub(crate) plan: Plan,
    pub(crate) division: Division,
    pub(crate) sources: Vec<Arc<FileSource>>,
}

impl<'a> JobConversion<'a> {
    /// Plans again. Fails if a source or the plan is not the same.
    pub(crate) fn again(recipe: &'a Recipe, progress: &mut dyn Progress) -> Result<Self> {
        let JobWork::Convert(convert) = &recipe.work else {
            return Err(Error::refused("this job does not convert a checkpoint"));
        };
        let (plan, sources) = convert.options.plan(progress)?;
        let planned = Self {
            recipe: convert,
            division: Division::of(&plan, convert.parts, medium(&convert.options))?,
            plan,
            sources,
        };
        planned.check_sources()?;
        if digest::of(&planned.plan, &planned.division)? != convert.digest {
            return Err(Error::refused("planning again gives another plan")
                .coded("plan-differs")
                .advice(
                    "Run all tasks with the same build of Statelens, or abort the job and plan it \
                     again.",
                ));
        }
        Ok(planned)
    }

    /// Fails if a source is not as it was when the job was planned.
    pub(crate) fn check_sources(&self) -> Result<()> {
        check_unchanged(&self.recipe.sources, &identities(&self.plan.source))
    }
}

/// Returns the storage of the output.
pub(crate) fn medium(options: &JobOptions) -> Medium {
    match crate::remote::address(&options.destination) {
        Some(_) => Medium::Objects,
        None => Medium::Files,
    }
}
