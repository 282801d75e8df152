//! The result of a task of a conversion, and the report of all of them.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use statelens_checkpoint::{Plan, Result, Segment, TensorId, WrittenSegment};
use statelens_convert::RunReport;
use statelens_tensor::{CastReport, crc};

use super::division::{Division, OutputRun, TaskPlan};
use crate::remote::SentPart;

/// The result of a task: report and checksums.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct TaskResult {
    /// Number of bytes written.
    pub(crate) bytes: u64,
    /// The ranges of files that this task wrote.
    pub(crate) written: Vec<WrittenRange>,
    pub(crate) seconds: f64,
    /// Checksums of segments, or of parts of them, in order.
    pub(crate) checksums: Vec<PartChecksum>,
    /// The segments of files that this task wrote alone, by file.
    pub(crate) files: Vec<(usize, Vec<WholeSegment>)>,
    /// Effects of casts by pairs of dtypes: names, number of tensors, counts.
    pub(crate) casts: Vec<(String, String, u64, CastCounts)>,
    /// Effects of casts on tensors, by their number in the source.
    pub(crate) changed: Vec<(u32, CastCounts)>,
    /// Whether the task begins within a tensor.
    pub(crate) continues: bool,
    /// Parts of objects: file, number of the first, the parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) parts: Vec<(usize, usize, Vec<SentPart>)>,
}

/// A range of a file that a task wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WrittenRange {
    pub(crate) file: usize,
    /// Position of the first byte.
    pub(crate) at: u64,
    /// Number of bytes.
    pub(crate) len: u64,
    /// Their CRC-32C.
    pub(crate) sum: u32,
}

/// The checksum of a segment, or of a part of it: file, segment, bytes, checksum.
pub(crate) type PartChecksum = (usize, usize, u64, u32);

/// A segment of a file without known positions: offset, bytes, checksum.
type WholeSegment = (u64, u64, Option<u32>);

/// A [`CastReport`]. The largest relative error is given by its bits, which any parser keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct CastCounts {
    elements: u64,
    changed: u64,
    overflowed: u64,
    nonzero: u64,
    flushed: u64,
    worst_bits: u64,
}

impl From<CastReport> for CastCounts {
    fn from(of: CastReport) -> Self {
        let CastReport { elements, changed, overflowed, nonzero, flushed, worst } = of;
        Self { elements, changed, overflowed, nonzero, flushed, worst_bits: worst.to_bits() }
    }
}

impl From<CastCounts> for CastReport {
    fn from(of: CastCounts) -> Self {
        let CastCounts { elements, changed, overflowed, nonzero, flushed, worst_bits } = of;
        Self { elements, changed, overflowed, nonzero, flushed, worst: f64::from_bits(worst_bits) }
    }
}

impl TaskResult {
    /// Returns the result of a task from the report of its plan.
    pub(crate) fn new(of: &TaskPlan, report: &RunReport) -> Self {
        let mut result = Self { bytes: report.bytes, ..Self::default() };
        for (OutputRun { file, segment: first, whole, .. }, outcomes) in
            of.runs.iter().zip(&report.outcomes)
        {
            if *whole {
                let segments = outcomes.iter().map(|one| (one.offset, one.len, one.checksum));
                result.files.push((*file, segments.collect()));
                continue;
            }
            for (index, outcome) in outcomes.iter().enumerate() {
                if let Some(checksum) = outcome.checksum {
                    result.checksums.push((*file, first + index, outcome.len, checksum));
                }
            }
        }
        for pair in &report.pairs {
            let (from, to) = (pair.from.name().to_owned(), pair.to.name().to_owned());
            result.casts.push((from, to, pair.tensors, pair.cast.into()));
        }
        result.changed = report.changed.iter().map(|(id, cast)| (id.0, (*cast).into())).collect();
        let first = of.plan.segments().find(|one| !matches!(one, Segment::Zeros(0)));
        result.continues = matches!(first, Some(Segment::Data(data))
            if data.part.as_ref().is_some_and(|part| part.start > 0));
        result
    }
}

/// Returns the report that one run of the whole plan would have given, except for the outcomes of
/// files that are written when the job is committed. `results` come in the order of the tasks.
pub(crate) fn merged(
    plan: &Plan,
    division: &Division,
    results: &[TaskResult],
) -> Result<RunReport> {
    let mut report = RunReport::default();
    let mut sums: HashMap<(usize, usize), u32> = HashMap::new();
    let mut whole: HashMap<usize, &[WholeSegment]> = HashMap::new();
    let mut casts: HashMap<(&str, &str), (u64, CastReport)> = HashMap::new();
    for result in results {
        for (file, segment, len, sum) in &result.checksums {
            let kind = match plan.files.get(*file).and_then(|file| file.segments.get(*segment)) {
                Some(Segment::Data(data)) => data.checksum,
                _ => continue,
            };
            let so_far = sums.entry((*file, *segment));
            so_far
                .and_modify(|so_far| *so_far = crc::combined(kind, *so_far, *sum, *len))
                .or_insert(*sum);
        }
        whole.extend(result.files.iter().map(|(file, segments)| (*file, segments.as_slice())));
        for (from, to, tensors, counts) in &result.casts {
            let (all, cast) = casts.entry((from.as_str(), to.as_str())).or_default();
            *all += tensors;
            cast.add((*counts).into());
        }
        let mut changed = result.changed.iter().map(|(id, cast)| (TensorId(*id), *cast));
        // The rest of a tensor that the task before began.
        if result.continues
            && let (Some((id, cast)), Some((last, before))) =
                (changed.clone().next(), report.changed.last_mut())
            && id == *last
        {
            before.add(cast.into());
            changed.next();
        }
        report.changed.extend(changed.map(|(id, cast)| (id, cast.into())));
    }
    // The pairs in the order of the plan.
    for segment in plan.segments() {
        let Segment::Data(data) = segment else { continue };
        let tensor = plan.source.tensor(data.tensor)?;
        let names = (tensor.stored.name(), tensor.dtype.name());
        if let Some((tensors, cast)) = casts.remove(&names) {
            report.count_cast(&tensor.stored, &tensor.dtype, tensors, cast);
        }
    }
    for file in 0..plan.files.len() {
        let placed =
            division.outcomes(plan, file, |segment| sums.get(&(file, segment)).copied())?;
        report.outcomes.push(match (placed, whole.get(&file)) {
            (Some(placed), _) => placed,
            (None, Some(segments)) => segments
                .iter()
                .map(|(offset, len, checksum)| WrittenSegment {
                    offset: *offset,
                    len: *len,
                    checksum: *checksum,
                    chunks: Vec::new(),
                })
                .collect(),
            (None, None) => Vec::new(),
        });
    }
    Ok(report)
}
