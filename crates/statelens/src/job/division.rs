//! Division of a plan into tasks of about the same number of bytes.
//!
//! A task is a range of the output, and a plan of its own: its files are runs of segments whose
//! positions in the output are known. It therefore runs as any plan does.

use std::sync::Arc;

use statelens_checkpoint::{
    Checkpoint, Data, Error, Outcomes, Plan, PlannedFile, Result, Segment, Size, Tensor,
    WrittenSegment,
};
use statelens_convert::check_promise;
use statelens_tensor::{grain, verbatim_span};

/// Takes the index of a file, a position in it, and the bytes to write there.
pub(crate) type WriteLate<'a> = dyn FnMut(usize, u64, &[u8]) -> Result<()> + 'a;

/// A division of a plan into tasks.
pub(crate) struct Division {
    shapes: Vec<FileShape>,
    /// The start of each task, and the end of the last one.
    cuts: Vec<Cut>,
    medium: Medium,
}

/// The storage of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Medium {
    /// Files, of which any bytes can be written at any time.
    Files,
    /// Objects, which are sent in parts of at least [`LEAST_RANGE`] bytes. A task makes the late
    /// segments of its part, except for those at the end of a file.
    Objects,
}

/// Bytes of the shortest range of an object that a task sends. Stores require 5 MiB for each part
/// but the last.
pub(crate) const LEAST_RANGE: u64 = 8 << 20;

/// The way in which tasks write a file.
enum FileShape {
    /// All segments have known positions: their offsets in bytes. Any task may write any of them.
    Placed(Vec<u64>),
    /// Positions depend on the data, for example on how well it compresses. One task writes all of
    /// it.
    Whole,
    /// The file has no tensors, and depends on others. It is written when the job is committed.
    Last,
}

/// A position in the output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cut {
    file: usize,
    segment: usize,
    /// Elements of a tensor, or bytes of another segment.
    at: u64,
}

/// The work of one task.
pub(crate) struct TaskPlan {
    /// The plan, with a file for each run.
    pub(crate) plan: Plan,
    /// The places of its files in the output.
    pub(crate) runs: Vec<OutputRun>,
}

/// A run of segments that follow each other in a file of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutputRun {
    /// Index of the file in the whole plan.
    pub(crate) file: usize,
    /// Index of the first segment in that file.
    pub(crate) segment: usize,
    /// Position of the first byte in that file.
    pub(crate) at: u64,
    /// Whether the run is a whole file whose segments have no known positions.
    pub(crate) whole: bool,
}

impl Division {
    /// Divides a plan into `tasks` tasks, or fewer if it does not have that many parts.
    pub(crate) fn of(plan: &Plan, tasks: u64, medium: Medium) -> Result<Self> {
        let shapes = plan.files.iter().map(|file| shape(file, &plan.source, medium));
        let shapes: Vec<FileShape> = shapes.collect::<Result<_>>()?;
        let cuts = cuts(plan, &shapes, tasks.max(1), medium)?;
        Ok(Self { shapes, cuts, medium })
    }

    /// Returns the number of tasks, at least one.
    pub(crate) fn tasks(&self) -> u64 {
        self.cuts.len() as u64 - 1
    }

    /// Returns the positions at which tasks begin, and the end of the last one.
    pub(crate) fn cuts(&self) -> impl Iterator<Item = [u64; 3]> {
        self.cuts.iter().map(|cut| [cut.file as u64, cut.segment as u64, cut.at])
    }

    /// Iterates over the files that are written by a single task each, by index.
    pub(crate) fn undivided(&self) -> impl Iterator<Item = usize> {
        let whole = |(index, shape): (usize, &FileShape)| {
            matches!(shape, FileShape::Whole).then_some(index)
        };
        self.shapes.iter().enumerate().filter_map(whole)
    }

    /// Returns the plan of a task.
    pub(crate) fn task(&self, plan: &Plan, index: u64) -> Result<TaskPlan> {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let ends = self.cuts.get(at).zip(self.cuts.get(at.saturating_add(1)));
        let (from, to) = ends.ok_or_else(|| {
            Error::refused(format!("there is no task {index}"))
                .expected(format!("0 to {}", self.tasks() - 1))
        })?;
        let mut runs = Runs::default();
        for (file, (planned, shape)) in plan.files.iter().zip(&self.shapes).enumerate() {
            let start = Cut { file, ..Cut::default() };
            if file < from.file || start >= *to {
                continue;
            }
            match shape {
                FileShape::Last => {}
                // A cut is never within such a file.
                FileShape::Whole if start >= *from => {
                    runs.open(planned, OutputRun { file, segment: 0, at: 0, whole: true });
                    planned.segments.iter().for_each(|segment| runs.push(segment.clone()));
                    runs.close(planned.head_last);
                }
                FileShape::Whole => {}
                FileShape::Placed(offsets) => {
                    let first = if file == from.file { from.segment } else { 0 };
                    for (segment, offset) in offsets.iter().enumerate().skip(first) {
                        let here = Cut { file, segment, at: 0 };
                        if here >= *to {
                            break;
                        }
                        let Some(of) = planned.segments.get(segment) else { break };
                        if matches!(of, Segment::Late { .. }) {
                            match self.medium == Medium::Objects && segment < tail(planned) {
                                // It looks up the segments before it by their index.
                                true => runs.push(of.clone()),
                                false => runs.close(false),
                            }
                            continue;
                        }
                        let same = |cut: &Cut| (cut.file, cut.segment) == (file, segment);
                        let start = if same(from) { from.at } else { 0 };
                        let end = same(to).then_some(to.at);
                        let (before, piece) = piece(of, &plan.source, start, end)?;
                        let run = OutputRun { file, segment, at: offset + before, whole: false };
                        match self.medium {
                            Medium::Files => runs.open(planned, run),
                            Medium::Objects => runs.open_aligned(planned, run),
                        }
                        runs.push(piece);
                    }
                    runs.close(false);
                }
            }
        }
        let files = runs.files;
        let plan = Plan { source: plan.source.clone(), files, losses: Vec::new() };
        Ok(TaskPlan { plan, runs: runs.runs })
    }

    /// Returns the ranges of each file that tasks write, with their tasks: first byte, length.
    /// For files without known positions, there is one of length 0.
    pub(crate) fn ranges(&self, plan: &Plan) -> Result<Vec<Vec<(u64, u64, u64)>>> {
        let mut all = Vec::new();
        for (file, (planned, shape)) in plan.files.iter().zip(&self.shapes).enumerate() {
            let mut ranges = Vec::new();
            let start = Cut { file, ..Cut::default() };
            let end = Cut { file: file + 1, ..Cut::default() };
            for (task, ends) in self.cuts.windows(2).enumerate() {
                let [from, to] = ends else { continue };
                let (from, to) = ((*from).max(start), (*to).min(end));
                if from >= to {
                    continue;
                }
                match shape {
                    FileShape::Last => {}
                    FileShape::Whole if from == start => ranges.push((task as u64, 0, 0)),
                    FileShape::Whole => {}
                    FileShape::Placed(offsets) => {
                        let at = |cut: Cut| position(cut, planned, offsets, &plan.source);
                        // The end of the file is the start of the next one.
                        let to = match to.file > file {
                            true => Cut { segment: planned.segments.len(), ..start },
                            false => to,
                        };
                        let (first, last) = (at(from)?, at(to)?);
                        if last > first {
                            ranges.push((task as u64, first, last - first));
                        }
                    }
                }
            }
            all.push(ranges);
        }
        Ok(all)
    }

    /// Returns the outcomes of all segments whose position is known, with `checksum` for each
    /// segment of a file.
    pub(crate) fn outcomes(
        &self,
        plan: &Plan,
        file: usize,
        checksum: impl Fn(usize) -> Option<u32>,
    ) -> Result<Option<Vec<WrittenSegment>>> {
        let (Some(FileShape::Placed(offsets)), Some(planned)) =
            (self.shapes.get(file), plan.files.get(file))
        else {
            return Ok(None);
        };
        let outcome = |(index, (segment, offset)): (usize, (&Segment, &u64))| {
            let (len, _) = segment.size(&plan.source)?;
            let checksum = checksum(index);
            Ok(WrittenSegment { offset: *offset, len, checksum, chunks: Vec::new() })
        };
        let segments = planned.segments.iter().zip(offsets).enumerate();
        segments.map(outcome).collect::<Result<_>>().map(Some)
    }

    /// Calls `write` with the bytes that no task writes, and their position in a file: the late
    /// segments of divided files, and files that depend on others. `outcomes` are those of all
    /// files.
    pub(crate) fn late(
        &self,
        plan: &Plan,
        outcomes: &mut [Vec<WrittenSegment>],
        write: &mut WriteLate<'_>,
    ) -> Result<()> {
        for (file, (planned, shape)) in plan.files.iter().zip(&self.shapes).enumerate() {
            match shape {
                FileShape::Whole => {}
                FileShape::Placed(offsets) => {
                    let known = Outcomes::new(outcomes.get(..=file).unwrap_or_default());
                    let first = match self.medium {
                        Medium::Files => 0,
                        Medium::Objects => tail(planned),
                    };
                    let segments = planned.segments.iter().zip(offsets);
                    for (segment, offset) in segments.skip(first) {
                        if let Segment::Late { len, make } = segment {
                            let bytes = make(&known)?;
                            check_promise(*len, &bytes)?;
                            write(file, *offset, &bytes)?;
                        }
                    }
                }
                FileShape::Last => {
                    let mut offset = 0;
                    for segment in &planned.segments {
                        let known = Outcomes::new(outcomes.get(..=file).unwrap_or_default());
                        let bytes = match segment {
                            Segment::Bytes(bytes) => bytes.to_vec(),
                            Segment::Late { make, .. } => make(&known)?,
                            Segment::Zeros(_) | Segment::Data(_) => {
                                return Err(Error::io("a file without tensors has one"));
                            }
                        };
                        write(file, offset, &bytes)?;
                        let len = bytes.len() as u64;
                        if let Some(outcomes) = outcomes.get_mut(file) {
                            outcomes.push(WrittenSegment {
                                offset,
                                len,
                                ..WrittenSegment::default()
                            });
                        }
                        offset += len;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The runs of a task, while they are collected.
#[derive(Default)]
struct Runs {
    files: Vec<PlannedFile>,
    runs: Vec<OutputRun>,
    is_open: bool,
}

impl Runs {
    /// Begins a run of a file, unless one is open.
    fn open(&mut self, of: &PlannedFile, run: OutputRun) {
        if !std::mem::replace(&mut self.is_open, true) {
            let name = of.name.clone();
            self.files.push(PlannedFile { name, segments: Vec::new(), head_last: false });
            self.runs.push(run);
        }
    }

    /// Begins a run in which segments have the same index as in the file.
    fn open_aligned(&mut self, of: &PlannedFile, run: OutputRun) {
        if !self.is_open {
            self.open(of, OutputRun { segment: 0, ..run });
            (0..run.segment).for_each(|_| self.push(Segment::Zeros(0)));
        }
    }

    fn push(&mut self, segment: Segment) {
        if let Some(file) = self.files.last_mut() {
            file.segments.push(segment);
        }
    }

    fn close(&mut self, head_last: bool) {
        if let Some(file) = self.files.last_mut().filter(|_| self.is_open) {
            file.head_last = head_last;
        }
        self.is_open = false;
    }
}

/// Returns the index of the first of the late segments at the end of a file.
fn tail(file: &PlannedFile) -> usize {
    let others = file.segments.iter().rposition(|one| !matches!(one, Segment::Late { .. }));
    others.map_or(0, |last| last + 1)
}

fn shape(file: &PlannedFile, source: &Checkpoint, medium: Medium) -> Result<FileShape> {
    let size = file.size(source)?;
    // A short object, or one whose first bytes are made last, is sent by one task.
    let divisible = match medium {
        Medium::Files => true,
        Medium::Objects => size.bytes() >= 2 * LEAST_RANGE && !file.head_last,
    };
    if divisible && matches!(size, Size::Exact(_)) {
        let mut offset = 0u64;
        let mut place = |segment: &Segment| {
            let at = offset;
            offset = offset.saturating_add(segment.size(source)?.0);
            Ok(at)
        };
        return file.segments.iter().map(&mut place).collect::<Result<_>>().map(FileShape::Placed);
    }
    let made = |segment: &Segment| matches!(segment, Segment::Bytes(_) | Segment::Late { .. });
    Ok(if file.segments.iter().all(made) { FileShape::Last } else { FileShape::Whole })
}

/// Returns the starts of all tasks, and the end of the last one.
fn cuts(plan: &Plan, shapes: &[FileShape], tasks: u64, medium: Medium) -> Result<Vec<Cut>> {
    let source = &*plan.source;
    let mut total = 0u64;
    // The first and the last byte of each file, and their cuts.
    let mut files: Vec<(u64, u64)> = vec![(0, 0); plan.files.len()];
    each_part(plan, shapes, medium, &mut |part| {
        let start = total;
        total = total.saturating_add(part.bytes);
        if let Some(file) = files.get_mut(part.from.file) {
            let first = if part.from.segment == 0 { start } else { file.0 };
            *file = (first, total);
        }
        Ok(())
    })?;
    let goal = |task: u64| {
        let goal = u128::from(total) * u128::from(task) / u128::from(tasks);
        u64::try_from(goal).unwrap_or(u64::MAX)
    };
    let mut cuts = vec![Cut::default()];
    let mut last = 0u64;
    let (mut before, mut next) = (0u64, 1);
    each_part(plan, shapes, medium, &mut |part| {
        let after = before.saturating_add(part.bytes);
        while next < tasks && goal(next) < after {
            let inside = goal(next).saturating_sub(before);
            let (cut, bytes) = match within(&part, source, inside)? {
                Some(at) => (Cut { at, ..part.from }, before.saturating_add(inside)),
                None if inside * 2 < part.bytes => (part.from, before),
                None => (part.to, after),
            };
            let (cut, bytes) = match (medium, files.get(cut.file)) {
                (Medium::Objects, Some((start, end))) => {
                    // No range of a file is too short to be a part.
                    if bytes.saturating_sub(*start) < LEAST_RANGE {
                        (Cut { file: cut.file, ..Cut::default() }, *start)
                    } else if end.saturating_sub(bytes) < LEAST_RANGE {
                        (Cut { file: cut.file + 1, ..Cut::default() }, *end)
                    } else {
                        (cut, bytes)
                    }
                }
                _ => (cut, bytes),
            };
            let near = medium == Medium::Objects && bytes.saturating_sub(last) < LEAST_RANGE;
            let follows = cuts.last().is_some_and(|last| *last < cut);
            if follows && (1..total).contains(&bytes) && (!near || cut.at + cut.segment as u64 == 0)
            {
                cuts.push(cut);
                last = bytes;
            }
            next += 1;
        }
        before = after;
        Ok(())
    })?;
    cuts.push(Cut { file: plan.files.len(), ..Cut::default() });
    Ok(cuts)
}

/// Returns the position of a cut in a file, before the late segments at its end.
fn position(cut: Cut, file: &PlannedFile, offsets: &[u64], source: &Checkpoint) -> Result<u64> {
    let segment = cut.segment.min(tail(file));
    let start = match offsets.get(segment) {
        Some(offset) => *offset,
        None => file.size(source)?.bytes(),
    };
    let inside = match file.segments.get(segment) {
        Some(Segment::Data(data)) => {
            source.tensor(data.tensor)?.dtype.bytes_of(cut.at).unwrap_or(0)
        }
        _ => cut.at,
    };
    Ok(start + inside)
}

/// A part of the output that is counted as one.
struct OutputPart<'a> {
    from: Cut,
    to: Cut,
    bytes: u64,
    /// The segment, if it may be cut.
    segment: Option<&'a Segment>,
}

/// Calls `each` with all parts of the output that tasks write.
fn each_part<'a>(
    plan: &'a Plan,
    shapes: &[FileShape],
    medium: Medium,
    each: &mut dyn FnMut(OutputPart<'a>) -> Result<()>,
) -> Result<()> {
    for (file, (planned, shape)) in plan.files.iter().zip(shapes).enumerate() {
        let from = Cut { file, ..Cut::default() };
        match shape {
            FileShape::Last => {}
            FileShape::Whole => {
                let bytes = planned.size(&plan.source)?.bytes();
                let to = Cut { file: file + 1, ..Cut::default() };
                each(OutputPart { from, to, bytes, segment: None })?;
            }
            // A task makes late segments from those before them.
            FileShape::Placed(_)
                if medium == Medium::Objects
                    && planned.segments.iter().any(|one| matches!(one, Segment::Late { .. })) =>
            {
                let (mut from, mut bytes) = (from, 0u64);
                for (index, segment) in planned.segments.iter().enumerate().take(tail(planned)) {
                    bytes = bytes.saturating_add(segment.size(&plan.source)?.0);
                    if matches!(segment, Segment::Late { .. }) {
                        let to = Cut { segment: index + 1, ..from };
                        each(OutputPart { from, to, bytes, segment: None })?;
                        (from, bytes) = (to, 0);
                    }
                }
                if bytes > 0 {
                    let to = Cut { file: file + 1, ..Cut::default() };
                    each(OutputPart { from, to, bytes, segment: None })?;
                }
            }
            FileShape::Placed(_) => {
                for (index, segment) in planned.segments.iter().enumerate() {
                    let from = Cut { segment: index, ..from };
                    let to = Cut { segment: index + 1, ..from };
                    let bytes = match segment {
                        Segment::Late { .. } => 0,
                        segment => segment.size(&plan.source)?.0,
                    };
                    each(OutputPart { from, to, bytes, segment: Some(segment) })?;
                }
            }
        }
    }
    Ok(())
}

/// Returns where to cut a part near one of its bytes, in elements of a tensor or in bytes; `None`
/// if it can't be cut there.
fn within(part: &OutputPart<'_>, source: &Checkpoint, inside: u64) -> Result<Option<u64>> {
    Ok(match part.segment {
        Some(Segment::Bytes(_) | Segment::Zeros(_)) => Some(inside),
        Some(Segment::Data(data)) => {
            let tensor = source.tensor(data.tensor)?;
            let numel = tensor.numel().unwrap_or(0);
            step(tensor).and_then(|step| {
                let near = u128::from(numel) * u128::from(inside) / u128::from(part.bytes.max(1));
                let near = u64::try_from(near).ok()?;
                let at = near - near % step;
                (at > 0 && at < numel).then_some(at)
            })
        }
        Some(Segment::Late { .. }) | None => None,
    })
}

/// Returns a number of elements: at its multiples a tensor may be cut without reading or decoding
/// anything twice, and at whole bytes. `None` if it may not be cut.
fn step(tensor: &Tensor) -> Option<u64> {
    // A dense view of a storage is copied like a tensor of its own.
    let grain = if verbatim_span(tensor).is_some() { 1 } else { grain(tensor)? };
    // Blocks of quantised dtypes have up to 256 elements.
    let whole = |step: &u64| {
        tensor.dtype.bytes_of(*step).is_some() && tensor.stored.bytes_of(*step).is_some()
    };
    [1u64, 32, 256].into_iter().filter_map(|times| grain.checked_mul(times)).find(whole)
}

/// Returns the part of a segment from `start` to `end`, and the bytes before it.
fn piece(
    segment: &Segment,
    source: &Checkpoint,
    start: u64,
    end: Option<u64>,
) -> Result<(u64, Segment)> {
    let (len, _) = segment.size(source)?;
    let bad = || Error::io("a task begins where its segment has no byte");
    Ok(match segment {
        segment if start == 0 && end.is_none() => (0, segment.clone()),
        Segment::Bytes(bytes) => {
            let end = end.unwrap_or(len);
            let part = bytes.get(start as usize..end as usize).ok_or_else(bad)?;
            (start, Segment::Bytes(Arc::from(part)))
        }
        Segment::Zeros(_) => {
            let end = end.unwrap_or(len);
            (start, Segment::Zeros(end.checked_sub(start).ok_or_else(bad)?))
        }
        Segment::Data(data) => {
            let tensor = source.tensor(data.tensor)?;
            let end = end.map_or_else(|| tensor.numel().ok_or_else(bad), Ok)?;
            let before = tensor.dtype.bytes_of(start).ok_or_else(bad)?;
            (before, Segment::Data(Data { part: Some(start..end), ..data.clone() }))
        }
        Segment::Late { .. } => return Err(bad()),
    })
}
