//! Running a plan: a state machine that is fed bytes and passes on those of the new file.

use crc32fast::Hasher;
use statelens_checkpoint::{
    Checksum, Data, Error, FileSet, Outcome, Plan, Result, Segment, Span, TensorId,
};
use statelens_tensor::{BUDGET, CastReport, Gather, Need, Out, verbatim_span};

use crate::cutter::Cutter;

/// Zeros passed on in one step.
const ZEROS: usize = 64 << 10;

/// How to run a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// The file is composed of spans rather than written: a span whose checksum is needed is
    /// read for that, passed on to nobody, and then comes as a [`Step::Copy`] too.
    pub compose: bool,
}

/// What a [`Run`] waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The bytes of this span, through [`Run::feed`], in order, in pieces of any size.
    Read(Span),
    /// This span of the source comes next in the new file, as it is. Put it there, all or the
    /// first part of it, and say so with [`Run::copied`].
    Copy(Span),
    /// A call of [`Run::work`].
    Work,
    /// These bytes replace the first ones of the new file, where zeros were put for them. Put
    /// them there and say so with [`Run::patched`].
    Head(Vec<u8>),
    /// Nothing: the file is complete.
    Done,
}

/// What became of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Length of the new file.
    pub bytes: u64,
    /// What each segment turned out to be.
    pub outcomes: Vec<Outcome>,
    /// What casting did to all elements together.
    pub cast: CastReport,
    /// The tensors with elements that were too large for their new dtype.
    pub overflowed: Vec<(TensorId, CastReport)>,
}

/// Runs a plan; see the [crate] and [`Step`]. Cancelled by dropping it.
pub struct Run {
    plan: Plan,
    options: Options,
    segment: usize,
    state: State,
    report: Report,
    done: u64,
    total: u64,
}

enum State {
    /// The segment has not begun.
    Begin,
    Zeros(u64),
    Data(Box<Writing>),
    Copy(Span),
    Head(Vec<u8>),
    Done,
}

/// A tensor on its way.
struct Writing {
    gather: Gather,
    tensor: TensorId,
    crc: Option<Hasher>,
    cutter: Option<Cutter>,
    /// Logical bytes that are still to come.
    left: u64,
    /// Composed: only the checksum is wanted, and this span comes after it.
    span: Option<Span>,
}

impl Run {
    /// A machine for a plan. Fails if the plan can't be run as it is.
    pub fn new(plan: Plan, options: Options) -> Result<Self> {
        plan.size()?;
        if plan.head_last
            && !matches!(plan.segments.first(), Some(Segment::Late { len: Some(_), .. }))
        {
            return Err(Error::unsupported(
                "a plan whose head is made last does not say how long it will be",
            ));
        }
        let mut total = 0u64;
        for segment in &plan.segments {
            let work = match segment {
                Segment::Bytes(bytes) => bytes.len() as u64,
                Segment::Zeros(len) => *len,
                Segment::Late { len, .. } => len.unwrap_or(0),
                Segment::Data(data) => plan.source.tensor(data.tensor)?.nbytes().unwrap_or(0),
            };
            total = total.saturating_add(work);
        }
        Ok(Self {
            plan,
            options,
            segment: 0,
            state: State::Begin,
            report: Report::default(),
            done: 0,
            total,
        })
    }

    /// What it waits for.
    pub fn step(&self) -> Step {
        match &self.state {
            State::Begin | State::Zeros(_) => Step::Work,
            State::Data(writing) => match writing.gather.need() {
                Need::Feed(span) => Step::Read(span),
                Need::Step | Need::Done => Step::Work,
            },
            State::Copy(span) => Step::Copy(*span),
            State::Head(bytes) => Step::Head(bytes.clone()),
            State::Done => Step::Done,
        }
    }

    /// Takes the next bytes of the span that [`Run::step`] asked to read, not more than that.
    /// `out` gets bytes of the new file.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Out<'_>) -> Result<()> {
        self.write_data(out, |gather, put| gather.feed(bytes, put))
    }

    /// Goes on where nothing is to be read or copied; `out` gets bytes of the new file.
    pub fn work(&mut self, out: &mut Out<'_>) -> Result<()> {
        match &mut self.state {
            State::Begin => self.begin(out),
            State::Zeros(left) => {
                let now = (*left).min(ZEROS as u64);
                *left -= now;
                let finished = *left == 0;
                self.put(&vec![0; now as usize], out)?;
                if finished {
                    self.end_segment();
                }
                Ok(())
            }
            State::Data(_) => {
                let plan = self.plan.source.clone();
                self.write_data(out, |gather, put| gather.step(&plan.files, put))
            }
            State::Copy(_) | State::Head(_) | State::Done => Ok(()),
        }
    }

    /// The first `len` bytes of the span that [`Run::step`] asked to copy are in the new file.
    pub fn copied(&mut self, len: u64) {
        let State::Copy(span) = &mut self.state else { return };
        let len = len.min(span.len);
        span.offset += len;
        span.len -= len;
        let finished = span.len == 0;
        self.count(len);
        if self.options.compose && self.checksum_of_segment() {
            // It was counted when it was read.
            self.done -= len;
        }
        if finished {
            self.end_segment();
        }
    }

    /// The head is in its place.
    pub fn patched(&mut self) {
        if matches!(self.state, State::Head(_)) {
            self.state = State::Done;
        }
    }

    /// Bytes done and in all, for progress: logical ones, each counted once.
    pub fn progress(&self) -> (u64, u64) {
        (self.done, self.total)
    }

    /// The files that spans are of.
    pub fn files(&self) -> &FileSet {
        &self.plan.source.files
    }

    /// What the plan was about.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What became of it; complete once [`Run::step`] is [`Step::Done`].
    pub fn into_report(self) -> Report {
        self.report
    }

    fn begin(&mut self, out: &mut Out<'_>) -> Result<()> {
        let Some(segment) = self.plan.segments.get(self.segment).cloned() else {
            return self.finish();
        };
        self.report.outcomes.push(Outcome { offset: self.report.bytes, ..Outcome::default() });
        match segment {
            Segment::Bytes(bytes) => {
                self.put(&bytes, out)?;
                self.end_segment();
            }
            Segment::Late { len: Some(len), .. } if self.plan.head_last && self.segment == 0 => {
                self.zeros(len);
            }
            Segment::Zeros(len) => self.zeros(len),
            Segment::Late { len, make } => {
                let bytes = make(&self.report.outcomes)?;
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
        self.state = State::Zeros(len);
        if len == 0 {
            self.end_segment();
        }
    }

    fn begin_data(&mut self, data: &Data) -> Result<()> {
        let source = self.plan.source.clone();
        let tensor = source.tensor(data.tensor)?;
        let plain = data.encoding.is_none();
        let span = if plain { verbatim_span(tensor) } else { None };
        let checksum = data.checksum == Checksum::Crc32;
        let numel = tensor.numel().unwrap_or(0);
        // Made even where the span is only copied: it checks that the file has all of it.
        let gather = Gather::new(&source.files, tensor, 0..numel, BUDGET)?;
        if let (Some(span), false) = (span, checksum) {
            self.state = State::Copy(span);
            if span.len == 0 {
                self.end_segment();
            }
            return Ok(());
        }
        let writing = Writing {
            gather,
            tensor: data.tensor,
            crc: checksum.then(Hasher::new),
            cutter: data
                .encoding
                .as_ref()
                .map(|encoding| Cutter::new(encoding, tensor))
                .transpose()?,
            left: tensor.nbytes().unwrap_or(0),
            span: span.filter(|_| self.options.compose),
        };
        let nothing = writing.gather.need() == Need::Done;
        self.state = State::Data(Box::new(writing));
        if nothing { self.end_data() } else { Ok(()) }
    }

    /// Runs one call of the gather and passes what comes of it through chunks and checksum.
    fn write_data(
        &mut self,
        out: &mut Out<'_>,
        call: impl FnOnce(&mut Gather, &mut Out<'_>) -> Result<()>,
    ) -> Result<()> {
        let State::Data(writing) = &mut self.state else {
            return Err(Error::io("bytes were fed to a plan that needs none"));
        };
        let Writing { gather, crc, cutter, left, span, .. } = &mut **writing;
        let (report, done) = (&mut self.report, &mut self.done);
        call(gather, &mut |bytes| {
            let len = bytes.len() as u64;
            *left = left.checked_sub(len).ok_or_else(too_many)?;
            *done += len;
            match cutter {
                Some(cutter) => cutter.feed(bytes, &mut |encoded, mut chunk| {
                    chunk.offset = report.bytes;
                    put(report, crc.as_mut(), encoded, out)?;
                    if let Some(outcome) = report.outcomes.last_mut() {
                        outcome.chunks.push(chunk);
                    }
                    Ok(())
                }),
                None if span.is_some() => {
                    if let Some(crc) = crc {
                        crc.update(bytes);
                    }
                    Ok(())
                }
                None => put(report, crc.as_mut(), bytes, out),
            }
        })?;
        if gather.need() == Need::Done { self.end_data() } else { Ok(()) }
    }

    fn end_data(&mut self) -> Result<()> {
        let State::Data(writing) = std::mem::replace(&mut self.state, State::Begin) else {
            return Ok(());
        };
        let writing = *writing;
        if writing.left > 0 {
            return Err(Error::damaged(format!("a tensor ends {} bytes early", writing.left)));
        }
        let cast = writing.gather.cast_report();
        self.report.cast.add(cast);
        if cast.overflowed > 0 {
            self.report.overflowed.push((writing.tensor, cast));
        }
        if let (Some(crc), Some(outcome)) = (writing.crc, self.report.outcomes.last_mut()) {
            outcome.crc32 = Some(crc.finalize());
        }
        match writing.span {
            Some(span) if span.len > 0 => self.state = State::Copy(span),
            _ => self.end_segment(),
        }
        Ok(())
    }

    /// Bytes that are no tensor's.
    fn put(&mut self, bytes: &[u8], out: &mut Out<'_>) -> Result<()> {
        self.count(bytes.len() as u64);
        if bytes.is_empty() { Ok(()) } else { out(bytes) }
    }

    fn count(&mut self, len: u64) {
        self.report.bytes += len;
        self.done += len;
        if let Some(outcome) = self.report.outcomes.last_mut() {
            outcome.len += len;
        }
    }

    fn checksum_of_segment(&self) -> bool {
        self.report.outcomes.last().is_some_and(|outcome| outcome.crc32.is_some())
    }

    fn end_segment(&mut self) {
        self.segment += 1;
        self.state = State::Begin;
    }

    fn finish(&mut self) -> Result<()> {
        self.state = State::Done;
        if let (true, Some(Segment::Late { len, make })) =
            (self.plan.head_last, self.plan.segments.first())
        {
            let head = make(&self.report.outcomes)?;
            check_promise(*len, &head)?;
            self.state = State::Head(head);
        }
        Ok(())
    }
}

/// Whether every tensor of a plan is a span of a file that goes into the new one as it is, so
/// that the new file can be composed without moving the weights.
pub fn composable(plan: &Plan) -> bool {
    plan.segments.iter().all(|segment| match segment {
        Segment::Data(data) => {
            let tensor = plan.source.tensor(data.tensor);
            let spans = |tensor| verbatim_span(tensor).is_some() || tensor.nbytes() == Some(0);
            data.encoding.is_none() && tensor.is_ok_and(spans)
        }
        _ => true,
    })
}

fn put(
    report: &mut Report,
    crc: Option<&mut Hasher>,
    bytes: &[u8],
    out: &mut Out<'_>,
) -> Result<()> {
    if let Some(crc) = crc {
        crc.update(bytes);
    }
    report.bytes += bytes.len() as u64;
    if let Some(outcome) = report.outcomes.last_mut() {
        outcome.len += bytes.len() as u64;
    }
    out(bytes)
}

fn check_promise(promised: Option<u64>, bytes: &[u8]) -> Result<()> {
    match promised {
        Some(promised) if promised != bytes.len() as u64 => Err(Error::unsupported(format!(
            "a part of the new file came out as {} bytes where {promised} were planned",
            bytes.len()
        ))
        .advice("This is an error of the writer: please report it.")),
        _ => Ok(()),
    }
}

fn too_many() -> Error {
    Error::damaged("a tensor has more bytes than its shape and dtype say")
}
