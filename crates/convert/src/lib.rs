//! Conversions: the selection from a checkpoint ([`Edit`], [`Pattern`]), the plan of the new file
//! ([`plan`]), and its execution ([`Run`]).
//!
//! A [`Run`] gives the steps that write the new files, first byte to last: bytes, spans to copy
//! unchanged, and tensors to make, in parts if they are large. It reads and writes nothing itself.
//! The layout of a format's files is up to the writers, in `statelens-formats`.

mod alone;
mod casts;
mod composition;
mod cutter;
mod edit;
mod glob;
mod losses;
mod make;
mod merge;
mod missing;
mod origins;
mod output;
mod pattern;
mod read_as;
mod run;
mod shards;
mod shares;
mod texts;
mod unstack;

use std::sync::Arc;

pub use alone::{alone, in_dtype, lacks_numpy};
pub use casts::{CastPair, Changed, RunReport};
pub use composition::{Composed, Composition};
pub use edit::{CastRule, Change, Edit, Rename, Unused, dtype_named};
pub use glob::{Glob, GlobScope};
pub use losses::narrows;
pub use make::{MadePart, Make, Making, TakeMade};
pub use merge::{Collision, Merging};
pub use origins::Origins;
pub use output::OutputOptions;
pub use pattern::Pattern;
pub use read_as::{read_as, read_as_rule};
pub use run::{Run, Step, TensorWriter, check_promise, composable};
pub use shards::{shard_size, size};
pub use shares::{Share, shares};
use statelens_checkpoint::{Checkpoint, Plan, Result};
pub use statelens_formats::WriteTarget;
pub use texts::{EditTexts, RENAME_LIST};
pub use unstack::unstacked;

/// Plans the files of `target` that hold `source` as edited by `edit`. Reads nothing. `name` is the
/// requested file name, without a folder.
///
/// Fails if the edit leaves nothing, or the target can't be written. What the target can't
/// represent unchanged is listed in [`Plan::losses`].
pub fn plan(
    source: Arc<Checkpoint>,
    edit: &Edit,
    target: &WriteTarget,
    name: &str,
) -> Result<Plan> {
    let (edited, changes) = edit.for_writing(source)?;
    plan_edited(edited, &changes, target, name)
}

/// Like [`plan`], for a checkpoint that was edited with [`Edit::apply_and_preview`], and the
/// changes from there.
pub fn plan_edited(
    edited: Arc<Checkpoint>,
    changes: &[Change],
    target: &WriteTarget,
    name: &str,
) -> Result<Plan> {
    let (edited, outside) = match edit::state_only(&edited)? {
        Some((state, loss)) => (Arc::new(state), Some(loss)),
        None => (edited, None),
    };
    let (edited, missing) = match missing::without_missing(&edited)? {
        Some((rest, loss)) => (Arc::new(rest), Some(loss)),
        None => (edited, None),
    };
    let casts = losses::of_casts(&edited);
    let mut plan = statelens_formats::plan(edited, target, name)?;
    let optimizer = losses::of_optimizer(changes, &plan.losses);
    plan.losses.extend(outside);
    plan.losses.extend(missing);
    plan.losses.extend(casts);
    plan.losses.extend(optimizer);
    Ok(plan)
}

#[cfg(test)]
mod tests;
