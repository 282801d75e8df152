//! Compares two tensors closely, and searches for renamed tensors.

use std::rc::Rc;

use statelens_checkpoint::{Error, Result};
use statelens_compare::diff::{
    Basis, Comparison, DiffOptions, Renamed, TensorComparison, TensorDifference, Unpaired,
    rename_map,
};
use statelens_tensor::Machine as _;
use statelens_values::weights::Measured;
use statelens_values::{Scale, Summary};
use wasm_bindgen::JsValue;

use crate::compare::message::CompareOptions;
use crate::compare::message::tensor_diff::{Renames, TensorDiff, TensorDiffRequest};
use crate::compare::worker::pairing::{AlikeSides, leaf, renamed, rows};
use crate::matrix::message::PackedOverview;
use crate::worker::job::Job;
use crate::worker::opened::OpenCheckpoint;
use crate::worker::reading::drive;
use crate::worker::session::SharedSession;
use crate::worker::task::Task;

/// Maximum number of blocks of the map, across and down.
const BLOCKS: (u32, u32) = (160, 100);
/// Number of bins of the histograms.
const BINS: usize = 48;
/// Pairs up to this many bytes are read without asking; longer ones on request.
const MAX_UNASKED: u64 = 64_000_000;

/// Compares a row of each checkpoint.
pub(crate) fn start(session: &SharedSession, job: Job, request: TensorDiffRequest, _: &JsValue) {
    let TensorDiffRequest { pair, on_request } = request;
    let Some((left, right)) = session.borrow().compared_sides() else { return };
    let work = async move |task: &Task| close(task, &right, pair, on_request).await;
    Task::start(left, job, work);
}

async fn close(
    task: &Task,
    right: &OpenCheckpoint,
    pair: (u32, u32),
    on_request: bool,
) -> Result<TensorDiff> {
    let left = &task.open;
    let alike = AlikeSides::new(left, right)?;
    let leaves = (leaf(left, &alike.left, pair.0), leaf(right, &alike.right, pair.1));
    let (Some(a), Some(b)) = leaves else { return Err(Error::cancelled()) };
    let sides = ((alike.left, &a), (alike.right, &b));
    let mut comparison = TensorComparison::new(sides.0, sides.1, BLOCKS)?;
    let remote = left.sources.server().is_some();
    if !on_request && (comparison.progress().1 > MAX_UNASKED || remote) {
        return Err(Error::cancelled());
    }
    drive(&mut comparison, &[&left.sources, &right.sources], &task.job, |comparison, time| {
        if time {
            let so_far = comparison.so_far();
            if so_far.differences.count() > 0 {
                task.post_partial(describe(so_far));
            }
            task.progress(comparison.progress());
        }
    })
    .await?;
    Ok(describe(comparison.so_far()))
}

fn describe(of: &TensorDifference) -> TensorDiff {
    TensorDiff {
        sides: [&of.left, &of.right].map(Summary::statistics),
        nan: of.nan,
        shape: of.shape.clone(),
        outlines: [Scale::Linear, Scale::Log].map(|scale| of.outlines(scale, BINS)),
        differences: Measured::of(&of.differences),
        map: of.drawn().map(|map| PackedOverview::of(&map, (0, 0))),
    }
}

/// Searches the second checkpoint for renamed tensors.
pub(crate) fn start_renames(
    session: &SharedSession,
    job: Job,
    options: Box<CompareOptions>,
    _: &JsValue,
) {
    let Some((left, right)) = session.borrow().compared_sides() else { return };
    let work = async move |task: &Task| find(task, &right, &options).await;
    Task::start(left, job, work);
}

async fn find(task: &Task, right: &OpenCheckpoint, options: &CompareOptions) -> Result<Renames> {
    let left = &task.open;
    let alike = AlikeSides::new(left, right)?;
    let first = renamed(&alike.left, options)?;
    let second = &alike.right;
    let how = DiffOptions::default();
    let matches = Comparison::new(first.clone(), second.clone(), how).matches().to_vec();
    let mut unpaired = Unpaired::of(&first, second, &matches);
    let [(_, of_left), (_, of_right)] = unpaired.hashed();
    let total = of_left.saturating_add(of_right);
    let before = [0, of_left];
    for (side, mut survey) in unpaired.surveys().into_iter().enumerate() {
        let sources: &Rc<_> = if side == 0 { &left.sources } else { &right.sources };
        drive(&mut survey, &[sources], &task.job, |survey, time| {
            if time {
                let done = survey.progress().0.saturating_add(before[side]);
                task.progress((done, total));
            }
        })
        .await?;
        unpaired.learn(side == 1, survey.take());
    }
    let pairs = unpaired.pairs();
    let alone = unpaired.alone(&pairs);
    let count = |basis| pairs.iter().filter(|pair| pair.basis == basis).count() as u64;
    let counts = [Basis::Bytes, Basis::BytesOfSeveral, Basis::Order].map(count);
    // Reports the keys as they are in the file, without the page's own renaming.
    let rows = rows(left, &first);
    let key = |leaf: usize| {
        let row = rows.get(leaf).and_then(|row| left.leaves.get(*row as usize));
        row.map(|leaf| leaf.flat.to_lossy().into_owned())
    };
    let found: Vec<Renamed> = pairs
        .iter()
        .filter_map(|pair| Some(Renamed { from: key(pair.left)?, ..pair.clone() }))
        .collect();
    let of_right = second.leaves();
    let of_right = |leaf: usize| of_right.get(leaf).map(|leaf| leaf.flat.to_lossy().into_owned());
    let before = matches.iter().enumerate().filter_map(|(leaf, other)| {
        let pair = (key(leaf)?, of_right((*other)?)?);
        (pair.0 != pair.1).then_some(pair)
    });
    let names = found.iter().map(|pair| (pair.from.clone(), pair.to.clone()));
    let names = before.chain(names).collect();
    Ok(Renames { names, counts, alone, list: rename_map(&found) })
}
