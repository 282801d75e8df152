//! Compares two tensors closely, and searches for renamed tensors.

use std::rc::Rc;

use statelens_checkpoint::Result;
use statelens_inspect::compare::{
    Basis, Comparison, DiffOptions, Renamed, TensorComparison, TensorDifference, Unpaired,
    rename_map,
};
use statelens_inspect::weights::Measured;
use statelens_stats::{Scale, Summary};
use statelens_tensor::Machine as _;

use crate::protocol::compare::{CompareOptions, CompareReply};
use crate::protocol::matrix::PackedOverview;
use crate::protocol::tensor_diff::{RenameSearch, Renames, TensorDiff, TensorDiffState};
use crate::text;
use crate::worker::job::Job;
use crate::worker::opened::OpenCheckpoint;
use crate::worker::pairing::{post_reply, renamed, rows};
use crate::worker::reading::drive;
use crate::worker::session::SharedSession;
use crate::worker::weights::values;

/// Maximum number of blocks of the map, across and down.
const BLOCKS: (u32, u32) = (160, 100);
/// Number of bins of the histograms.
const BINS: usize = 48;
/// Pairs up to this many bytes are read without asking; longer ones on request.
const MAX_UNASKED: u64 = 1_000_000_000;

fn checkpoints(session: &SharedSession) -> Option<(OpenCheckpoint, OpenCheckpoint)> {
    let session = session.borrow();
    session.compared.sides(session.open.as_ref())
}

/// Compares a row of each checkpoint.
pub(super) fn compare_tensors(
    session: &SharedSession,
    job: Job,
    pair: (u32, u32),
    on_request: bool,
) {
    let Some((left, right)) = checkpoints(session) else { return };
    job.clone().spawn(async move {
        let reply = match close(&left, &right, pair, on_request, &job).await {
            Ok(reply) => Some(reply),
            Err(error) => text::failure(&error).map(TensorDiffState::Failed),
        };
        if let Some(reply) = reply {
            post_reply(&job, CompareReply::TensorDiff(pair, reply));
        }
    });
}

async fn close(
    left: &OpenCheckpoint,
    right: &OpenCheckpoint,
    pair: (u32, u32),
    on_request: bool,
    job: &Job,
) -> Result<TensorDiffState> {
    let (Some(a), Some(b)) = (left.leaves.get(pair.0 as usize), right.leaves.get(pair.1 as usize))
    else {
        return Ok(TensorDiffState::Unread(0));
    };
    let sides = ((left.checkpoint.clone(), a), (right.checkpoint.clone(), b));
    let mut comparison = TensorComparison::new(sides.0, sides.1, BLOCKS)?;
    let (_, bytes) = comparison.progress();
    let remote = left.sources.server().is_some();
    if !on_request && (bytes > MAX_UNASKED || remote) {
        return Ok(TensorDiffState::Unread(bytes));
    }
    drive(&mut comparison, &[&left.sources, &right.sources], job, |comparison, time| {
        if time {
            let (done, total) = comparison.progress();
            let so_far = comparison.so_far();
            let some = so_far.differences.count() > 0;
            let so_far = some.then(|| Box::new(describe(so_far)));
            post_reply(
                job,
                CompareReply::TensorDiff(pair, TensorDiffState::Reading(done, total, so_far)),
            );
            left.report_fetched(job);
        }
    })
    .await?;
    left.report_fetched(job);
    Ok(TensorDiffState::Read(Box::new(describe(comparison.so_far()))))
}

fn describe(of: &TensorDifference) -> TensorDiff {
    let side = |of: &Summary| {
        let of = of.statistics();
        [of.mean, of.std, of.l2]
    };
    let differences = values(0, &Measured::of(&of.differences));
    TensorDiff {
        sides: [side(&of.left), side(&of.right), side(&of.differences)],
        differing: (differences.short.count - differences.short.zeros, differences.short.count),
        nan: of.nan,
        shape: of.shape.clone(),
        outlines: [Scale::Linear, Scale::Log].map(|scale| of.outlines(scale, BINS)),
        differences,
        map: of.drawn().map(|map| PackedOverview::of(&map)),
    }
}

/// Searches the second checkpoint for renamed tensors.
pub(super) fn renames(session: &SharedSession, job: Job, options: CompareOptions) {
    let Some((left, right)) = checkpoints(session) else { return };
    job.clone().spawn(async move {
        let reply = match find(&left, &right, &options, &job).await {
            Ok(found) => Some(RenameSearch::Found(Box::new(found))),
            Err(error) => text::failure(&error).map(RenameSearch::Failed),
        };
        if let Some(reply) = reply {
            post_reply(&job, CompareReply::Renames(reply));
        }
    });
}

async fn find(
    left: &OpenCheckpoint,
    right: &OpenCheckpoint,
    options: &CompareOptions,
    job: &Job,
) -> Result<Renames> {
    let first = renamed(left, options)?;
    let second = &right.checkpoint;
    let how = DiffOptions::default();
    let matches = Comparison::new(first.clone(), second.clone(), how).matches().to_vec();
    let mut unpaired = Unpaired::of(&first, second, &matches);
    let [(_, of_left), (_, of_right)] = unpaired.hashed();
    let total = of_left.saturating_add(of_right);
    let before = [0, of_left];
    for (side, mut survey) in unpaired.surveys().into_iter().enumerate() {
        let sources: &Rc<_> = if side == 0 { &left.sources } else { &right.sources };
        drive(&mut survey, &[sources], job, |survey, time| {
            if time {
                let done = survey.progress().0.saturating_add(before[side]);
                post_reply(job, CompareReply::Renames(RenameSearch::Now(done, total)));
                left.report_fetched(job);
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
    let of_right =
        |leaf: usize| right.leaves.get(leaf).map(|leaf| leaf.flat.to_lossy().into_owned());
    let before = matches.iter().enumerate().filter_map(|(leaf, other)| {
        let pair = (key(leaf)?, of_right((*other)?)?);
        (pair.0 != pair.1).then_some(pair)
    });
    let names = found.iter().map(|pair| (pair.from.clone(), pair.to.clone()));
    let names = before.chain(names).collect();
    Ok(Renames { names, counts, alone, list: rename_map(&found) })
}
