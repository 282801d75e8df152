//! Runs a plan: its steps in order, from the first byte of the first file to the last of the last.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use statelens_checkpoint::{
    Checksum, DType, Data, Error, FileSet, Outcomes, Plan, PlannedFile, Result, Segment, Span,
    StoredChunk, TensorId, WrittenSegment, try_alloc,
};
use statelens_tensor::crc::Summing;
use statelens_tensor::{BUDGET, CastReport, Gather, Receive, verbatim_span, verbatim_spans};

use crate::casts::RunReport;
use crate::make::{Make, TakeMade};

/// Maximum number of zeros in one step.
const ZEROS: u64 = 64 << 10;

/// The next action for the caller of a [`Run`].
#[derive(Clone)]
pub enum Step {
    /// Start the file with this index in [`Plan::files`]; the previous one is complete. Everything
    /// that follows belongs to this file.
    Begin(usize),
    /// Append these bytes.
    Bytes(Arc<[u8]>),
    /// Append this span of the source unchanged.
    Copy(Span),
    /// Pass the elements of a tensor through a [`TensorWriter`], and their casts to [`Run::made`].
    Make(Make),
    /// Overwrite the first bytes of the file, which are zeros, with these.
    Head(Vec<u8>),
}

/// Executes a plan; see the [crate] and [`Step`]. Drop it to cancel.
pub struct Run {
    plan: Plan,
    /// Whether the files are composed of spans rather than written.
    compose: bool,
    file: usize,
    /// The next segment; `None` if the file has not been started.
    segment: Option<usize>,
    /// Position of the file's first byte in the output of all files.
    base: u64,
    /// Zeros that the segment still needs.
    zeros: u64,
    tensor: Option<WritingTensor>,
    /// The spans of the tensor that are still to be copied.
    spans: VecDeque<Span>,
    report: RunReport,
    done: u64,
    /// Bytes of the current step.
    current: u64,
    total: u64,
}

/// The tensor of the current step.
struct WritingTensor {
    id: TensorId,
    /// Whether the tensor is written from its first element.
    first: bool,
    summing: Option<Summing>,
    cast: CastReport,
    /// When composing: the span to copy once its checksum is known.
    span: Option<Span>,
}

/// Passes made bytes through a run to the new file.
pub struct TensorWriter<'a, T: ?Sized> {
    /// The run.
    pub run: &'a mut Run,
    /// The receiver of the new file's bytes.
    pub file: &'a mut T,
}

impl Run {
    /// Creates a run. Fails if the plan is invalid.
    ///
    /// With `compose`, the files are composed of spans rather than written: a span whose checksum
    /// is needed is made, but its bytes are not passed on, and it then comes as a [`Step::Copy`].
    pub fn new(plan: Plan, compose: bool) -> Result<Self> {
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
        Ok(Self {
            plan,
            compose,
            file: 0,
            segment: None,
            base: 0,
            zeros: 0,
            tensor: None,
            spans: VecDeque::new(),
            report: RunReport::default(),
            done: 0,
            current: 0,
            total,
        })
    }

    /// Returns the next step, when the previous one is complete; `None` if the files are.
    pub fn next_step(&mut self) -> Result<Option<Step>> {
        self.done = self.done.saturating_add(std::mem::take(&mut self.current));
        if let Some(span) = self.end_tensor()? {
            // The bytes were counted when they were made.
            self.count(span.len);
            return Ok(Some(Step::Copy(span)));
        }
        loop {
            if let Some(span) = self.spans.pop_front() {
                self.current = span.len;
                self.count(span.len);
                return Ok(Some(Step::Copy(span)));
            }
            if self.zeros > 0 {
                let len = self.zeros.min(ZEROS);
                self.zeros -= len;
                return Ok(Some(self.bytes(vec![0; len as usize].into())));
            }
            let Some(file) = self.plan.files.get(self.file) else { return Ok(None) };
            let Some(index) = self.segment else {
                self.base = self.report.bytes;
                self.report.outcomes.push(Vec::new());
                self.segment = Some(0);
                return Ok(Some(Step::Begin(self.file)));
            };
            let Some(segment) = file.segments.get(index).cloned() else {
                let head = self.head()?;
                self.file += 1;
                self.segment = None;
                match head {
                    Some(head) => return Ok(Some(Step::Head(head))),
                    None => continue,
                }
            };
            let head = file.head_last && index == 0;
            if let Some(step) = self.begin(segment, head)? {
                return Ok(Some(step));
            }
        }
    }

    /// Adds the effects of the casts of a [`Step::Make`], or of one of its parts.
    pub fn made(&mut self, cast: CastReport) {
        if let Some(tensor) = &mut self.tensor {
            tensor.cast.add(cast);
        }
    }

    /// Returns the bytes of the completed steps and the total: logical bytes, each counted once.
    pub fn progress(&self) -> (u64, u64) {
        (self.done, self.total)
    }

    /// Returns the files that spans refer to.
    pub fn files(&self) -> &FileSet {
        &self.plan.source.files
    }

    /// Returns the report so far.
    pub fn report(&self) -> &RunReport {
        &self.report
    }

    /// Returns the report; complete once there is no next step.
    pub fn into_report(self) -> RunReport {
        self.report
    }

    /// Begins a segment; returns its first step, if it has one of its own.
    fn begin(&mut self, segment: Segment, head: bool) -> Result<Option<Step>> {
        self.segment = self.segment.map(|index| index + 1);
        let offset = self.report.bytes - self.base;
        if let Some(outcomes) = self.report.outcomes.last_mut() {
            try_alloc::push(outcomes, WrittenSegment { offset, ..WrittenSegment::default() })?;
        }
        let bytes = match segment {
            Segment::Bytes(bytes) => bytes,
            Segment::Late { len: Some(len), .. } if head => return Ok(self.zeros(len)),
            Segment::Zeros(len) => return Ok(self.zeros(len)),
            Segment::Late { len, make } => {
                let bytes = make(&Outcomes::new(&self.report.outcomes))?;
                check_promise(len, &bytes)?;
                if len.is_none() {
                    self.total = self.total.saturating_add(bytes.len() as u64);
                }
                bytes.into()
            }
            Segment::Data(data) => return self.begin_tensor(data),
        };
        Ok((!bytes.is_empty()).then(|| self.bytes(bytes)))
    }

    fn zeros(&mut self, len: u64) -> Option<Step> {
        self.zeros = len;
        None
    }

    fn begin_tensor(&mut self, data: Data) -> Result<Option<Step>> {
        let source = self.plan.source.clone();
        let tensor = source.tensor(data.tensor)?;
        let elements = data.elements(tensor);
        let plain = data.encoding.is_none();
        let span = if plain { verbatim_span(tensor) } else { None };
        let span = span.and_then(|span| part_of(span, &tensor.dtype, &elements));
        if let (Some(span), Checksum::None) = (span, data.checksum) {
            // Checks that the file has all bytes.
            Gather::new(&source.files, tensor, elements, BUDGET)?;
            self.current = span.len;
            self.count(span.len);
            return Ok((span.len > 0).then_some(Step::Copy(span)));
        }
        if plain
            && data.checksum == Checksum::None
            && let Some(spans) = verbatim_spans(&source.files, tensor, &elements)
        {
            spans.iter().try_for_each(|span| source.files.check(*span))?;
            self.spans = spans.into();
            return Ok(None);
        }
        self.current = data.nbytes(tensor).unwrap_or(0);
        self.tensor = Some(WritingTensor {
            id: data.tensor,
            first: elements.start == 0,
            summing: Summing::of(data.checksum),
            cast: CastReport::default(),
            span: span.filter(|_| self.compose),
        });
        Make::new(&source, data).map(|make| Some(Step::Make(make)))
    }

    /// Records the effects of the cast and the checksum of the tensor. Returns the span to copy. If
    /// only a part of a tensor is written, the `first` part counts as the tensor.
    fn end_tensor(&mut self) -> Result<Option<Span>> {
        let Some(WritingTensor { id, first, summing, cast, span }) = self.tensor.take() else {
            return Ok(None);
        };
        let tensor = self.plan.source.tensor(id)?;
        self.report.count_cast(&tensor.stored, &tensor.dtype, u64::from(first), cast);
        if cast.changed > 0 {
            self.report.changed.push((id, cast));
        }
        if let (Some(summing), Some(outcome)) = (summing, current(&mut self.report)) {
            outcome.checksum = Some(summing.value());
        }
        Ok(span.filter(|span| span.len > 0))
    }

    /// Takes bytes of the current tensor; returns whether they belong to the new file.
    fn take(&mut self, bytes: &[u8], chunk: Option<StoredChunk>) -> Result<bool> {
        let Some(tensor) = &mut self.tensor else {
            return Err(Error::io("bytes were fed to a plan that needs none"));
        };
        if let Some(summing) = &mut tensor.summing {
            summing.update(bytes);
        }
        if tensor.span.is_some() {
            return Ok(false);
        }
        let offset = self.report.bytes - self.base;
        self.count(bytes.len() as u64);
        if let (Some(chunk), Some(outcome)) = (chunk, current(&mut self.report)) {
            outcome.chunks.push(StoredChunk { offset, ..chunk });
        }
        Ok(true)
    }

    /// Returns the step of bytes that don't belong to a tensor.
    fn bytes(&mut self, bytes: Arc<[u8]>) -> Step {
        self.current = bytes.len() as u64;
        self.count(bytes.len() as u64);
        Step::Bytes(bytes)
    }

    fn count(&mut self, len: u64) {
        self.report.bytes += len;
        if let Some(outcome) = current(&mut self.report) {
            outcome.len += len;
        }
    }

    /// Returns the head of the file, if it is written last.
    fn head(&self) -> Result<Option<Vec<u8>>> {
        if let Some(PlannedFile { segments, head_last: true, .. }) = self.plan.files.get(self.file)
            && let Some(Segment::Late { len, make }) = segments.first()
        {
            let head = make(&Outcomes::new(&self.report.outcomes))?;
            check_promise(*len, &head)?;
            return Ok(Some(head));
        }
        Ok(None)
    }
}

impl<T: Receive + ?Sized> TakeMade for TensorWriter<'_, T> {
    fn take(&mut self, bytes: &[u8], chunk: Option<StoredChunk>) -> Result<()> {
        if self.run.take(bytes, chunk)? { self.file.receive(bytes) } else { Ok(()) }
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
