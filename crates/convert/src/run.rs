//! Runs a plan: a state machine that is fed bytes and passes on those of the new files.

use std::ops::Range;

use statelens_checkpoint::{
    Checksum, DType, Data, Error, FileSet, Outcomes, Plan, PlannedFile, Result, Segment, Span,
    StoredChunk, TensorId, WrittenSegment, room,
};
use statelens_tensor::crc::Summing;
use statelens_tensor::{BUDGET, CastReport, Gather, Machine, Need, Out, Receive, verbatim_span};

use crate::casts::RunReport;
use crate::cutter::Cutter;
use crate::parcels::{Parcel, Parcels};

/// Zeros passed on in one step.
const ZEROS: usize = 64 << 10;

/// Options for running a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunOptions {
    /// Whether the files are composed of spans rather than written. A span whose checksum is needed
    /// is read, its bytes are not passed on, and it then comes as a [`Step::Copy`], too.
    pub compose: bool,
    /// Whether large tensors that need processing are split into parcels: see [`Run::parcels`].
    pub divide: bool,
}

/// The next action for the caller of a [`Run`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Start the file with this index in [`Plan::files`]; the previous one is complete. Everything
    /// that follows belongs to this file. Confirm with [`Run::begun`].
    Begin(usize),
    /// Read this span and pass its bytes to [`Run::feed`], in order, in pieces of any size.
    Read(Span),
    /// Copy this span of the source unchanged to the new file. Copy all or the first part of it,
    /// and confirm with [`Run::copied`].
    Copy(Span),
    /// Call [`Run::work`].
    Work,
    /// Overwrite the first bytes of the new file, which are zeros, with these. Confirm with
    /// [`Run::patched`].
    Head(Vec<u8>),
    /// Do nothing: the files are complete.
    Done,
}

/// Executes a plan; see the [crate] and [`Step`]. Drop it to cancel.
pub struct Run {
    plan: Plan,
    options: RunOptions,
    file: usize,
    segment: usize,
    /// Position of the file's first byte in the output of all files.
    base: u64,
    state: RunState,
    report: RunReport,
    done: u64,
    total: u64,
}

enum RunState {
    /// The file has not been started.
    File,
    /// The segment has not been started.
    Segment,
    Zeros(u64),
    Data(Box<WritingTensor>),
    /// A tensor whose parcels are expected.
    Parcels(Box<Supplied>),
    Copy(Span),
    Head(Vec<u8>),
    Done,
}

/// A tensor that is being written.
struct WritingTensor {
    gather: Gather,
    tensor: TensorId,
    /// Whether the tensor is written from its first element.
    first: bool,
    summing: Option<Summing>,
    cutter: Option<Cutter>,
    /// The remaining logical bytes.
    left: u64,
    /// When composing: the span to copy once its checksum is known.
    span: Option<Span>,
}

/// A tensor that is supplied in parcels.
struct Supplied {
    parcels: Parcels,
    tensor: TensorId,
    first: bool,
    summing: Option<Summing>,
    cast: CastReport,
    /// The remaining logical bytes.
    left: u64,
}

impl Run {
    /// Creates a run. Fails if the plan is invalid.
    pub fn new(plan: Plan, options: RunOptions) -> Result<Self> {
        plan.size()?;
        let headless = |file: &PlannedFile| {
            file.head_last
                && !matches!(file.segments.first(), Some(Segment::Late { len: Some(_), .. }))
        };
        if plan.files.iter().any(headless) {
            return Err(Error::unsupported(
                "a plan whose head is written last does not give its length",
            ));
        }
        let mut total = 0u64;
        for segment in plan.segments() {
            let work = match segment {
                Segment::Bytes(bytes) => bytes.len() as u64,
                Segment::Zeros(len) => *len,
                Segment::Late { len, .. } => len.unwrap_or(0),
                Segment::Data(data) => data.nbytes(plan.source.tensor(data.tensor)?).unwrap_or(0),
            };
            total = total.saturating_add(work);
        }
        let state = if plan.files.is_empty() { RunState::Done } else { RunState::File };
        Ok(Self {
            plan,
            options,
            file: 0,
            segment: 0,
            base: 0,
            state,
            report: RunReport::default(),
            done: 0,
            total,
        })
    }

    /// Returns the next action for the caller.
    pub fn step(&self) -> Step {
        match &self.state {
            RunState::File => Step::Begin(self.file),
            RunState::Segment | RunState::Zeros(_) | RunState::Parcels(_) => Step::Work,
            RunState::Data(writing) => match writing.gather.need() {
                Need::Feed(span) => Step::Read(span),
                Need::Step | Need::Done => Step::Work,
            },
            RunState::Copy(span) => Step::Copy(*span),
            RunState::Head(bytes) => Step::Head(bytes.clone()),
            RunState::Done => Step::Done,
        }
    }

    /// Confirms that the file of [`Step::Begin`] is ready for its first byte.
    pub fn begun(&mut self) {
        if matches!(self.state, RunState::File) {
            self.base = self.report.bytes;
            self.report.outcomes.push(Vec::new());
            self.segment = 0;
            self.state = RunState::Segment;
        }
    }

    /// Takes the next bytes of the span of [`Step::Read`], at most as many as its length. `out`
    /// gets bytes of the new file.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Out<'_>) -> Result<()> {
        self.write_data(out, |gather, put| gather.feed(bytes, put))
    }

    /// Continues when nothing needs to be read or copied; `out` gets bytes of the new file.
    pub fn work(&mut self, out: &mut Out<'_>) -> Result<()> {
        match &mut self.state {
            RunState::Segment => self.begin(out),
            RunState::Zeros(left) => {
                let now = (*left).min(ZEROS as u64);
                *left -= now;
                let finished = *left == 0;
                self.put(&vec![0; now as usize], out)?;
                if finished {
                    self.end_segment();
                }
                Ok(())
            }
            RunState::Data(_) => {
                let plan = self.plan.source.clone();
                self.write_data(out, |gather, put| gather.step(&plan.files, put))
            }
            RunState::File
            | RunState::Parcels(_)
            | RunState::Copy(_)
            | RunState::Head(_)
            | RunState::Done => Ok(()),
        }
    }

    /// Returns the parcels of the next tensor, all of which must be passed to [`Run::supply`] in
    /// order. `None` if the run reads the tensor itself, as it always does unless
    /// [`RunOptions::divide`] is set.
    pub fn parcels(&self) -> Option<&Parcels> {
        match &self.state {
            RunState::Parcels(supplied) => Some(&supplied.parcels),
            _ => None,
        }
    }

    /// Takes the next one of [`Run::parcels`], with the effects of its cast; `out` gets bytes of
    /// the new file.
    pub fn supply(&mut self, parcel: &Parcel, cast: CastReport, out: &mut Out<'_>) -> Result<()> {
        let RunState::Parcels(supplied) = &mut self.state else {
            return Err(Error::io("a parcel was supplied to a plan that needs none"));
        };
        let Supplied { summing, left, cast: all, .. } = &mut **supplied;
        *left = left.checked_sub(parcel.logical).ok_or_else(too_many)?;
        all.add(cast);
        self.done += parcel.logical;
        let report = &mut self.report;
        match parcel.chunks.is_empty() {
            true => put(report, summing.as_mut(), &parcel.bytes, out)?,
            false => {
                let mut rest = &*parcel.bytes;
                for chunk in &parcel.chunks {
                    let (encoded, after) = rest.split_at((chunk.len as usize).min(rest.len()));
                    rest = after;
                    let offset = report.bytes - self.base;
                    put(report, summing.as_mut(), encoded, out)?;
                    if let Some(outcome) = current(report) {
                        outcome.chunks.push(StoredChunk { offset, ..*chunk });
                    }
                }
            }
        }
        if supplied.left > 0 {
            return Ok(());
        }
        let (tensor, first, cast) = (supplied.tensor, supplied.first, supplied.cast);
        let checksum = supplied.summing.take().map(|summing| summing.value());
        self.end_tensor(tensor, first, cast, checksum)?;
        self.end_segment();
        Ok(())
    }

    /// Confirms that the first `len` bytes of the span of [`Step::Copy`] are in the new file.
    pub fn copied(&mut self, len: u64) {
        let RunState::Copy(span) = &mut self.state else { return };
        let len = len.min(span.len);
        span.offset += len;
        span.len -= len;
        let finished = span.len == 0;
        self.count(len);
        if self.options.compose && self.checksum_of_segment() {
            // The bytes were counted when they were read.
            self.done -= len;
        }
        if finished {
            self.end_segment();
        }
    }

    /// Confirms that the head has been written.
    pub fn patched(&mut self) {
        if matches!(self.state, RunState::Head(_)) {
            self.end_file();
        }
    }

    /// Returns the bytes done and the total: logical bytes, each counted once.
    pub fn progress(&self) -> (u64, u64) {
        (self.done, self.total)
    }

    /// Returns the files that spans refer to.
    pub fn files(&self) -> &FileSet {
        &self.plan.source.files
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the report so far.
    pub fn report(&self) -> &RunReport {
        &self.report
    }

    /// Returns the report; complete once [`Run::step`] is [`Step::Done`].
    pub fn into_report(self) -> RunReport {
        self.report
    }

    fn begin(&mut self, out: &mut Out<'_>) -> Result<()> {
        let Some(file) = self.plan.files.get(self.file) else { return Ok(()) };
        let Some(segment) = file.segments.get(self.segment).cloned() else {
            return self.finish();
        };
        let head = file.head_last && self.segment == 0;
        let offset = self.report.bytes - self.base;
        if let Some(outcomes) = self.report.outcomes.last_mut() {
            room::push(outcomes, WrittenSegment { offset, ..WrittenSegment::default() })?;
        }
        match segment {
            Segment::Bytes(bytes) => {
                self.put(&bytes, out)?;
                self.end_segment();
            }
            Segment::Late { len: Some(len), .. } if head => self.zeros(len),
            Segment::Zeros(len) => self.zeros(len),
            Segment::Late { len, make } => {
                let bytes = make(&Outcomes::new(&self.report.outcomes))?;
                check_promise(len, &bytes)?;
                if len.is_none() {
                    self.total = self.total.saturating_add(bytes.len() as u64);
                }
                self.put(&bytes, out)?;
                self.end_segment();
            }
            Segment::Data(data) => self.begin_data(&data)?,
        }
        Ok(())
    }

    fn zeros(&mut self, len: u64) {
        self.state = RunState::Zeros(len);
        if len == 0 {
            self.end_segment();
        }
    }

    fn begin_data(&mut self, data: &Data) -> Result<()> {
        let source = self.plan.source.clone();
        let tensor = source.tensor(data.tensor)?;
        let elements = data.elements(tensor);
        let first = elements.start == 0;
        let plain = data.encoding.is_none();
        let span = if plain { verbatim_span(tensor) } else { None };
        let span = span.and_then(|span| part_of(span, &tensor.dtype, &elements));
        let checksum = data.checksum != Checksum::None;
        // Created even if the span is only copied, because it checks that the file has all bytes.
        let gather = Gather::new(&source.files, tensor, elements.clone(), BUDGET)?;
        if let (Some(span), false) = (span, checksum) {
            self.state = RunState::Copy(span);
            if span.len == 0 {
                self.end_segment();
            }
            return Ok(());
        }
        let writing = WritingTensor {
            gather,
            tensor: data.tensor,
            first,
            summing: Summing::of(data.checksum),
            cutter: data
                .encoding
                .as_ref()
                .map(|encoding| Cutter::new(encoding, tensor, source.files.limits()))
                .transpose()?,
            left: data.nbytes(tensor).unwrap_or(0),
            span: span.filter(|_| self.options.compose),
        };
        // Unprocessed bytes are read faster than they are handed to another thread.
        if self.options.divide
            && span.is_none()
            && let Some(parcels) = Parcels::of(&source, data)?
        {
            let WritingTensor { tensor, first, summing, left, .. } = writing;
            let cast = CastReport::default();
            let supplied = Supplied { parcels, tensor, first, summing, cast, left };
            self.state = RunState::Parcels(Box::new(supplied));
            return Ok(());
        }
        let nothing = writing.gather.need() == Need::Done;
        self.state = RunState::Data(Box::new(writing));
        if nothing { self.end_data() } else { Ok(()) }
    }

    /// Runs one call of the gather and passes its output through chunks and checksum.
    fn write_data(
        &mut self,
        out: &mut Out<'_>,
        call: impl FnOnce(&mut Gather, &mut Out<'_>) -> Result<()>,
    ) -> Result<()> {
        let RunState::Data(writing) = &mut self.state else {
            return Err(Error::io("bytes were fed to a plan that needs none"));
        };
        let WritingTensor { gather, summing, cutter, left, span, .. } = &mut **writing;
        let (report, done, base) = (&mut self.report, &mut self.done, self.base);
        call(gather, &mut |bytes| {
            let len = bytes.len() as u64;
            *left = left.checked_sub(len).ok_or_else(too_many)?;
            *done += len;
            match cutter {
                Some(cutter) => cutter.feed(bytes, &mut |encoded, mut chunk| {
                    chunk.offset = report.bytes - base;
                    put(report, summing.as_mut(), encoded, out)?;
                    if let Some(outcome) = current(report) {
                        outcome.chunks.push(chunk);
                    }
                    Ok(())
                }),
                None if span.is_some() => {
                    if let Some(summing) = summing {
                        summing.update(bytes);
                    }
                    Ok(())
                }
                None => put(report, summing.as_mut(), bytes, out),
            }
        })?;
        if gather.need() == Need::Done { self.end_data() } else { Ok(()) }
    }

    fn end_data(&mut self) -> Result<()> {
        let RunState::Data(writing) = std::mem::replace(&mut self.state, RunState::Segment) else {
            return Ok(());
        };
        let writing = *writing;
        if writing.left > 0 {
            return Err(Error::damaged(format!("a tensor ends {} bytes early", writing.left)));
        }
        let checksum = writing.summing.map(|summing| summing.value());
        let cast = writing.gather.cast_report();
        self.end_tensor(writing.tensor, writing.first, cast, checksum)?;
        match writing.span {
            Some(span) if span.len > 0 => self.state = RunState::Copy(span),
            _ => self.end_segment(),
        }
        Ok(())
    }

    /// Records the effects of the cast and the checksum of a tensor. If only a part of it is
    /// written, the `first` part counts as the tensor.
    fn end_tensor(
        &mut self,
        id: TensorId,
        first: bool,
        cast: CastReport,
        checksum: Option<u32>,
    ) -> Result<()> {
        let tensor = self.plan.source.tensor(id)?;
        self.report.count_cast(&tensor.stored, &tensor.dtype, u64::from(first), cast);
        if cast.changed > 0 {
            self.report.changed.push((id, cast));
        }
        if let (Some(checksum), Some(outcome)) = (checksum, current(&mut self.report)) {
            outcome.checksum = Some(checksum);
        }
        Ok(())
    }

    /// Passes on bytes that don't belong to a tensor.
    fn put(&mut self, bytes: &[u8], out: &mut Out<'_>) -> Result<()> {
        self.count(bytes.len() as u64);
        if bytes.is_empty() { Ok(()) } else { out(bytes) }
    }

    fn count(&mut self, len: u64) {
        self.report.bytes += len;
        self.done += len;
        if let Some(outcome) = current(&mut self.report) {
            outcome.len += len;
        }
    }

    fn checksum_of_segment(&self) -> bool {
        let outcomes = self.report.outcomes.last();
        outcomes.and_then(|all| all.last()).is_some_and(|outcome| outcome.checksum.is_some())
    }

    fn end_segment(&mut self) {
        self.segment += 1;
        self.state = RunState::Segment;
    }

    /// Ends the file after its last segment, or requests its head first.
    fn finish(&mut self) -> Result<()> {
        if let Some(PlannedFile { segments, head_last: true, .. }) = self.plan.files.get(self.file)
            && let Some(Segment::Late { len, make }) = segments.first()
        {
            let head = make(&Outcomes::new(&self.report.outcomes))?;
            check_promise(*len, &head)?;
            self.state = RunState::Head(head);
        } else {
            self.end_file();
        }
        Ok(())
    }

    fn end_file(&mut self) {
        self.file += 1;
        self.state =
            if self.file < self.plan.files.len() { RunState::File } else { RunState::Done };
    }
}

/// A [`Run`] with the receiver of the new file's bytes: a machine that reads until the run requests
/// something other than reading.
pub struct ReadingRun<'a, T: ?Sized> {
    /// The run.
    pub run: &'a mut Run,
    /// The receiver of the new file's bytes.
    pub into: &'a mut T,
}

impl<T: Receive + ?Sized> Machine for ReadingRun<'_, T> {
    fn need(&self) -> Need {
        match self.run.step() {
            Step::Read(span) => Need::Feed(span),
            Step::Work if self.run.parcels().is_none() => Need::Step,
            Step::Work | Step::Begin(_) | Step::Copy(_) | Step::Head(_) | Step::Done => Need::Done,
        }
    }

    fn files(&self) -> &FileSet {
        self.run.files()
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        self.run.feed(bytes, &mut |bytes| self.into.receive(bytes))
    }

    fn step(&mut self) -> Result<()> {
        self.run.work(&mut |bytes| self.into.receive(bytes))
    }

    fn progress(&self) -> (u64, u64) {
        self.run.progress()
    }
}

/// Returns whether every tensor of a plan is copied unchanged from a span of a file, so that the
/// new file can be composed without moving the weights.
pub fn composable(plan: &Plan) -> bool {
    plan.segments().all(|segment| match segment {
        Segment::Data(data) => {
            let tensor = plan.source.tensor(data.tensor);
            let spans = |tensor| verbatim_span(tensor).is_some() || tensor.nbytes() == Some(0);
            data.encoding.is_none() && tensor.is_ok_and(spans)
        }
        _ => true,
    })
}

/// Returns the part of a tensor's span that holds these elements.
fn part_of(span: Span, dtype: &DType, elements: &Range<u64>) -> Option<Span> {
    let start = dtype.bytes_of(elements.start)?;
    let len = dtype.bytes_of(elements.end.checked_sub(elements.start)?)?;
    Some(Span { offset: span.offset.checked_add(start)?, len, ..span })
}

/// Returns the outcome of the segment that is being written.
fn current(report: &mut RunReport) -> Option<&mut WrittenSegment> {
    report.outcomes.last_mut()?.last_mut()
}

fn put(
    report: &mut RunReport,
    summing: Option<&mut Summing>,
    bytes: &[u8],
    out: &mut Out<'_>,
) -> Result<()> {
    if let Some(summing) = summing {
        summing.update(bytes);
    }
    report.bytes += bytes.len() as u64;
    if let Some(outcome) = current(report) {
        outcome.len += bytes.len() as u64;
    }
    out(bytes)
}

/// Fails if the bytes of a late segment do not have the promised length.
pub fn check_promise(promised: Option<u64>, bytes: &[u8]) -> Result<()> {
    match promised {
        Some(promised) if promised != bytes.len() as u64 => Err(Error::unsupported(format!(
            "a part of the new file has {} bytes where {promised} were planned",
            bytes.len()
        ))
        .advice("This is a bug in the writer: please report it.")),
        _ => Ok(()),
    }
}

fn too_many() -> Error {
    Error::damaged("a tensor has more bytes than its shape and dtype need")
}
