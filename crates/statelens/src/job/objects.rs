//! Output in an object store: each object is one multipart upload, whose parts several tasks send.
//! Reads complete objects back, and compares the CRC-32C of each part with that of the sent bytes.

use std::path::{Path, PathBuf};
use std::time::Instant;

use statelens_checkpoint::{Error, ErrorKind, Plan, Progress, Result, Setting, advice};
use statelens_compare::ReadBack;
use statelens_convert::RunReport;
use statelens_tensor::crc;

use super::division::{Division, OutputRun, TaskPlan};
use super::planned::JobConversion;
use super::recipe::JobOutput;
use super::results::{TaskResult, WrittenRange};
use super::summed::check_ranges;
use crate::remote::{SentPart, SharedRange, uploads};

/// Bytes of a part, unless there would be too many.
const PART: u64 = 16 << 20;
/// Parts of one object that are planned by size. Each task may add one.
const PARTS_BY_SIZE: u64 = 7_000;
/// Parts that stores allow.
const MOST_PARTS: u64 = 10_000;

/// The parts of a range of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RangeParts {
    task: u64,
    /// Position of the first byte.
    start: u64,
    /// Number of the first part.
    first: u64,
    /// Number of parts; 0 if it depends on the data.
    count: u64,
    /// Bytes of each part but the last.
    part: u64,
}

/// Uploads that were begun for a new job. If they are dropped before [`Uploads::keep`], they are
/// aborted.
#[derive(Default)]
pub(super) struct Uploads(Vec<(String, String)>);

impl Uploads {
    /// Begins an upload and returns its id.
    pub(super) fn begin(&mut self, path: &Path) -> Result<String> {
        let url = path.to_string_lossy().into_owned();
        let id = uploads::begin_upload(&url)?;
        self.0.push((url, id.clone()));
        Ok(id)
    }

    pub(super) fn keep(&mut self) {
        self.0.clear();
    }
}

impl Drop for Uploads {
    fn drop(&mut self) {
        for (url, id) in &self.0 {
            // If this fails, there is nothing left to try.
            let _ = uploads::abort_upload(url, id);
        }
    }
}

/// Fails if an object exists and may not be replaced, or would have too many parts.
pub(super) fn check(
    plan: &Plan,
    division: &Division,
    paths: &[PathBuf],
    replace: bool,
) -> Result<()> {
    for path in paths.iter().filter(|_| !replace) {
        let url = path.to_string_lossy();
        if uploads::exists_at(&url)?.is_some() {
            return Err(Error::refused("this object already exists")
                .in_file(url)
                .coded("exists")
                .advice("Name another one, or allow replacing it."));
        }
    }
    for (parts, path) in parts(plan, division)?.iter().zip(paths) {
        let count: u64 = parts.iter().map(|range| range.count).sum();
        if count >= MOST_PARTS {
            return Err(Error::refused(format!("the object would have {count} parts"))
                .in_file(path.to_string_lossy())
                .expected(format!("at most {MOST_PARTS}, as stores allow"))
                .advice(advice![
                    "Plan fewer tasks, or several files with ",
                    Setting::ShardSize,
                    "."
                ]));
        }
    }
    Ok(())
}

/// Aborts the uploads of a job.
pub(super) fn abort(outputs: &[JobOutput]) -> Result<()> {
    for output in outputs {
        if let Some(id) = &output.upload {
            uploads::abort_upload(&output.path.to_string_lossy(), id)?;
        }
    }
    Ok(())
}

/// Returns the parts of each file, range by range.
fn parts(plan: &Plan, division: &Division) -> Result<Vec<Vec<RangeParts>>> {
    let mut all = Vec::new();
    for (ranges, file) in division.ranges(plan)?.into_iter().zip(&plan.files) {
        let size = file.size(&plan.source)?.bytes();
        let least = PART.max(size.div_ceil(PARTS_BY_SIZE).next_multiple_of(1 << 20));
        let mut first = 0;
        let mut parts = Vec::new();
        for (task, start, len) in ranges {
            // Parts of about the same size, none of which is short.
            let count = len / least;
            let count = if len > 0 { count.max(1) } else { 0 };
            let part = if count > 0 { len.div_ceil(count) } else { least };
            parts.push(RangeParts { task, start, first, count, part });
            first += count;
        }
        all.push(parts);
    }
    Ok(all)
}

impl JobConversion<'_> {
    /// Returns whether the output is in an object store.
    pub(super) fn is_remote(&self) -> bool {
        self.recipe.outputs.iter().any(|output| output.upload.is_some())
    }

    /// Runs a task whose output are parts of objects.
    pub(super) fn send(
        &self,
        index: u64,
        task: &TaskPlan,
        started: Instant,
        progress: &mut dyn Progress,
    ) -> Result<TaskResult> {
        let parts = parts(&self.plan, &self.division)?;
        let mut ranges = Vec::new();
        let mut numbers = Vec::new();
        for (OutputRun { file, .. }, planned) in task.runs.iter().zip(&task.plan.files) {
            let own =
                parts.get(*file).and_then(|parts| parts.iter().find(|range| range.task == index));
            let (Some(own), Some(output)) = (own, self.recipe.outputs.get(*file)) else {
                return Err(Error::io("a task writes a file that the job does not name"));
            };
            let number = usize::try_from(own.first).unwrap_or(usize::MAX);
            numbers.push((*file, number));
            let head = match planned.segments.first() {
                Some(statelens_checkpoint::Segment::Late { len: Some(len), .. })
                    if planned.head_last =>
                {
                    *len
                }
                _ => 0,
            };
            ranges.push(SharedRange {
                url: output.path.to_string_lossy().into_owned(),
                id: output.upload.clone().unwrap_or_default(),
                first: number,
                part: own.part,
                head,
            });
        }
        let (report, parts) = uploads::send(task.plan.clone(), ranges, progress)?;
        self.check_sources()?;
        let mut result = TaskResult::new(task, &report);
        result.seconds = started.elapsed().as_secs_f64();
        let numbered = numbers.into_iter().zip(parts);
        result.parts = numbered.map(|((file, first), parts)| (file, first, parts)).collect();
        Ok(result)
    }

    /// Sends what no task could make, completes the objects, and reads them back. An object with
    /// other bytes or contents is removed.
    pub(super) fn complete(
        &self,
        results: &[TaskResult],
        report: &mut RunReport,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let mut tails: Vec<Vec<u8>> = vec![Vec::new(); self.plan.files.len()];
        let mut late = |file: usize, _: u64, bytes: &[u8]| {
            if let Some(tail) = tails.get_mut(file) {
                tail.extend_from_slice(bytes);
            }
            Ok(())
        };
        self.division.late(&self.plan, &mut report.outcomes, &mut late)?;
        let mut found: Vec<Vec<(usize, &[SentPart])>> = vec![Vec::new(); self.plan.files.len()];
        for result in results {
            for (file, first, parts) in &result.parts {
                if let Some(found) = found.get_mut(*file) {
                    found.push((*first, parts));
                }
            }
        }
        let (mut written, mut ranges) = (Vec::new(), Vec::new());
        report.bytes = 0;
        let files = self.recipe.outputs.iter().zip(found).zip(tails).zip(&report.outcomes);
        for (((output, mut parts), tail), outcomes) in files {
            let url = output.path.to_string_lossy();
            let id = output.upload.as_deref().unwrap_or_default();
            parts.sort_unstable_by_key(|(first, _)| *first);
            let (file, mut at, mut names) = (written.len(), 0, Vec::new());
            let mut range = |len, sum| {
                ranges.push(WrittenRange { file, at, len, sum });
                at += len;
            };
            for (first, more) in parts {
                if first != names.len() {
                    return Err(Error::damaged("the parts of an object do not follow each other")
                        .in_file(url));
                }
                for SentPart { name, len, sum } in more {
                    names.push(name.clone());
                    range(*len, *sum);
                }
            }
            range(tail.len() as u64, crc::crc32c(0, &tail));
            let bytes = outcomes.last().map_or(0, |last| last.offset + last.len);
            report.bytes += bytes;
            let complete = uploads::exists_at(&url)? == Some(bytes) && !self.recipe.options.replace;
            if !complete && !tail.is_empty() {
                names.push(uploads::send_part(&url, id, names.len(), tail)?);
            }
            written.push(uploads::complete_upload(&url, id, names, bytes)?);
        }
        let limits = &self.recipe.options.reading.limits();
        let read_back = check_ranges(&written, &ranges, progress)
            .and_then(|()| ReadBack::of(&self.plan).check(written, limits, progress));
        if let Err(error) = &read_back
            && error.kind() == ErrorKind::Damaged
        {
            for output in &self.recipe.outputs {
                uploads::remove_object(&output.path.to_string_lossy())?;
            }
        }
        read_back
    }
}
