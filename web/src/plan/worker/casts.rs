//! Describes the effects of casts on the page, and refuses casts that did more than round.

use std::collections::{HashMap, HashSet};

use statelens_checkpoint::{Checkpoint, DType, Error, Result, TensorId, order};
use statelens_convert::{Origins, RunReport};
use statelens_tensor::Narrowing;

use crate::plan::worker::PlannedOutput;
use crate::protocol::error::FALSIFIED;
use crate::state::fmt::{exact, plural};
use crate::values::state::number;
use crate::worker::measurements::Measurements;

/// Number of tensors that a refusal names.
const MAX_NAMED: usize = 5;

/// Returns a line for each pair of dtypes.
pub(crate) fn lines(report: &RunReport) -> Vec<String> {
    let line = |pair: &statelens_convert::CastPair| {
        let mut parts = vec![format!("{} rounded", exact(pair.cast.changed))];
        parts.extend(pair.effects());
        format!(
            "{} to {}, {}: {}",
            pair.from,
            pair.to,
            plural(pair.tensors, "tensor"),
            parts.join(", ")
        )
    };
    report.pairs.iter().map(line).collect()
}

/// Describes the ranges of the numbers to be cast, as far as their values were read: a line for
/// each pair of dtypes whose target may not hold all numbers. Tensors that are cut, transposed or
/// joined count as the tensors of `open` that they come from.
pub(crate) fn ranges(
    open: &Checkpoint,
    output: &PlannedOutput,
    measurements: &Measurements,
) -> Vec<String> {
    let read = measurements.measured.keys().filter_map(|id| Some((*id, open.tensor(*id).ok()?)));
    let origins = Origins::of(read);
    let mut pairs: HashMap<(&DType, &DType), CastRanges> = HashMap::new();
    let sources = std::iter::once(&output.plan).chain(&output.more).map(|plan| &plan.source);
    for (id, tensor) in sources.flat_map(|source| (0..).map(TensorId).zip(source.tensors())) {
        let (from, to) = (&tensor.stored, &tensor.dtype);
        let narrowing = Narrowing::of(from, to).filter(Narrowing::overflows);
        let Some(narrowing) = narrowing.filter(|_| from != to) else { continue };
        let pair = pairs.entry((from, to)).or_default();
        let same = open.tensor(id).is_ok_and(|of| of.dtype == *from && of.layout == tensor.layout);
        let own = match same && measurements.measured.contains_key(&id) {
            true => Some(vec![id]),
            false => origins.trace(&tensor.layout),
        };
        let Some(own) = own else {
            pair.tensors += 1;
            continue;
        };
        for id in own {
            let Some(known) = measurements.measured.get(&id).filter(|_| pair.seen.insert(id))
            else {
                continue;
            };
            pair.tensors += 1;
            pair.known += 1;
            if let (Some(min), Some(max)) = (known.statistics.min, known.statistics.max) {
                pair.far = pair.far.max(-min).max(max);
                pair.beyond += u64::from(!narrowing.fits(min, max));
            }
        }
    }
    let mut lines: Vec<String> = pairs
        .into_iter()
        .filter(|(_, of)| of.known > 0)
        .map(|((from, to), of)| {
            let which = match of.known == of.tensors {
                true => String::new(),
                false => format!(
                    "in the {} of {} read so far, ",
                    exact(of.known),
                    plural(of.tensors, "tensor")
                ),
            };
            let far = number(of.far);
            let fit = match of.beyond {
                0 => "all finite numbers fit".to_owned(),
                1 => "1 tensor has numbers that do not fit".to_owned(),
                count => format!("{} tensors have numbers that do not fit", exact(count)),
            };
            format!("{from} becomes {to}: {which}max |x| is {far}; {fit}")
        })
        .collect();
    order::natural(&mut lines);
    lines
}

/// Ranges of the tensors of one pair of dtypes.
#[derive(Default)]
struct CastRanges {
    seen: HashSet<TensorId>,
    tensors: u64,
    known: u64,
    far: f64,
    beyond: u64,
}

/// Refuses casts that did more than round.
///
/// # Errors
/// If a cast falsified numbers, naming the tensors.
pub(crate) fn refuse_lossy(source: &Checkpoint, report: &RunReport) -> Result<()> {
    if !report.is_false() {
        return Ok(());
    }
    let (texts, more) = report.falsified(source, MAX_NAMED);
    let more = more.map(|more| format!("; and {more}")).unwrap_or_default();
    let what = format!("casting loses numbers, so nothing was kept: {}{more}", texts.join("; "));
    Err(Error::refused(what).coded(FALSIFIED).advice(
        "Choose a dtype with a larger range (bfloat16 has the range of float32), or cast only the tensors that fit.",
    ))
}
