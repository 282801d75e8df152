//! Reads files sequentially, for work that needs all of their bytes: files on disk from a stream of
//! the browser, remote ones in parts that are requested ahead. The bytes are fed to [`Machine`]s,
//! while the worker keeps receiving messages.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use js_sys::{ArrayBuffer, Promise, Uint8Array};
use statelens_checkpoint::{Error, FileId, FileSet, ReadAt as _, Result, Span};
use statelens_tensor::{Machine, Need};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, future_to_promise};
use web_sys::{
    AbortController, AbortSignal, ReadableStreamByobReader, ReadableStreamGetReaderOptions,
    ReadableStreamReaderMode,
};

use crate::messages::get;
use crate::worker::blob::{self, BlobSource};
use crate::worker::embedder::OfferedFile;
use crate::worker::job::Job;
use crate::worker::next_task::NextTask;
use crate::worker::port::now;
use crate::worker::remote::{self, XhrFile};
use crate::worker::sources::{SourceFile, Sources};

/// The size of the stream's buffer in bytes.
const BUFFER: u32 = 4 << 20;
/// A gap in a file that is cheaper to read through than to open a new stream after it.
const GAP: u64 = 1 << 20;
/// Shorter spans that are out of order are read separately, which takes less time than opening a
/// new stream. Writers that sort keys read small tensors in an order different from the file's.
const MAX_OUT_OF_ORDER: u64 = 256 << 10;
/// Bytes that are read around such a span: its neighbours are often read next.
const NEAR: u64 = 256 << 10;
/// Length of a request for a part of a remote file: at first, and at most.
const MIN_REQUEST: u64 = 1 << 20;
const MAX_REQUEST: u64 = 4 << 20;
/// Maximum number of bytes in flight.
const WINDOW: u64 = 16 << 20;

/// Milliseconds that a machine may run before the worker receives messages.
const SLICE: f64 = 40.0;
/// Milliseconds between two reports of progress.
const REPORT: f64 = 250.0;

/// Steps, and bytes fed in them, between two readings of the clock. Reading it takes as long as the
/// statistics of a small tensor.
const UNCLOCKED_STEPS: u32 = 16;
const UNCLOCKED_BYTES: usize = 64 << 10;

/// Decides after which steps of a machine to look at the clock.
#[derive(Default)]
struct Pace {
    steps: u32,
    bytes: usize,
    /// Whether the last step was fed nothing.
    idle: bool,
}

impl Pace {
    /// Counts a step that was fed `bytes`. Returns whether to look at the clock.
    fn is_due(&mut self, bytes: usize) -> bool {
        // A machine that is not fed computes, perhaps for long; the first such step begins a tensor.
        let computes = self.idle && bytes == 0;
        self.idle = bytes == 0;
        self.steps += 1;
        self.bytes += bytes;
        let is_due = computes || self.steps >= UNCLOCKED_STEPS || self.bytes >= UNCLOCKED_BYTES;
        if is_due {
            (self.steps, self.bytes) = (0, 0);
        }
        is_due
    }
}

/// Decides when to report progress: the page draws each report.
pub(crate) struct ReportTimer(f64);

impl ReportTimer {
    pub(crate) fn new() -> Self {
        Self(now())
    }

    /// Returns true four times a second.
    pub(crate) fn is_due(&mut self) -> bool {
        let time = now();
        let is_due = time - self.0 >= REPORT;
        if is_due {
            self.0 = time;
        }
        is_due
    }
}

/// Checks the clock between steps of long work.
pub(crate) struct YieldTimer {
    report: ReportTimer,
    last_yield: f64,
    next_task: NextTask,
}

impl YieldTimer {
    pub(crate) fn new() -> Self {
        Self { report: ReportTimer::new(), last_yield: now(), next_task: NextTask::new() }
    }

    /// Receives messages if the last time was long ago: neither reads that complete at once nor
    /// work without reads yield to the event loop. Returns true four times a second, when it is
    /// time to report progress.
    pub(crate) async fn yield_if_due(&mut self) -> bool {
        if now() - self.last_yield >= SLICE {
            self.next_task.wait().await;
            self.last_yield = now();
        }
        self.report.is_due()
    }
}

/// Feeds machines for a job, one after the other. Streams stay open between machines.
pub(crate) struct Driver<'a> {
    readers: Vec<SourceReader>,
    job: &'a Job,
    yield_timer: YieldTimer,
}

impl<'a> Driver<'a> {
    /// Creates a driver for the sources, which [`Machine::source`] indexes.
    pub(crate) fn new(sources: &[&Rc<Sources>], job: &'a Job) -> Self {
        let readers = sources.iter().map(|sources| SourceReader::new(sources, job)).collect();
        Self { readers, job, yield_timer: YieldTimer::new() }
    }

    /// Feeds a machine until it is done, the job is stopped, or `each` fails. `each` is called
    /// after each step; its flag is true four times a second, when it is time to report progress.
    pub(crate) async fn drive<M: Machine>(
        &mut self,
        machine: &mut M,
        each: impl AsyncFnMut(&mut M, bool) -> Result<()>,
    ) -> Result<()> {
        self.drive_tapped(machine, async |_: &mut M, _: &[u8]| Ok(()), each).await
    }

    /// Like [`Driver::drive`]; `tap` is called with the bytes that are fed next.
    pub(crate) async fn drive_tapped<M: Machine>(
        &mut self,
        machine: &mut M,
        mut tap: impl AsyncFnMut(&mut M, &[u8]) -> Result<()>,
        mut each: impl AsyncFnMut(&mut M, bool) -> Result<()>,
    ) -> Result<()> {
        let mut pace = Pace::default();
        loop {
            self.job.check()?;
            let mut fed = 0;
            match machine.need() {
                Need::Done => return Ok(()),
                Need::Step => machine.step()?,
                Need::Feed(span) => {
                    match self.piece(machine.source(), machine.files(), span).await {
                        Ok(piece) => {
                            fed = piece.len();
                            tap(machine, &piece).await?;
                            machine.feed(&piece)?;
                        }
                        // The user agreed to a number of bytes to fetch of a remote file: fetching
                        // more than that is an error.
                        Err(error) => machine.unread(error)?,
                    }
                }
            }
            let report_due = pace.is_due(fed) && self.yield_timer.yield_if_due().await;
            each(machine, report_due).await?;
        }
    }

    /// Returns the first bytes of a span, as many as are available at once.
    pub(crate) async fn piece(
        &mut self,
        source: usize,
        files: &FileSet,
        span: Span,
    ) -> Result<Cow<'_, [u8]>> {
        files.check(span)?;
        match self.readers.get_mut(source) {
            Some(reader) => reader.piece(files, span).await,
            None => files.read_vec(span.file, span.offset, span.len).map(Cow::Owned),
        }
    }

    /// Receives messages as at the end of each step. Returns whether it is time to report progress.
    pub(crate) async fn yield_if_due(&mut self) -> bool {
        self.yield_timer.yield_if_due().await
    }

    pub(crate) async fn close(self) {
        for reader in self.readers {
            reader.close().await;
        }
    }
}

/// Feeds a machine until it is done or the job is stopped. `each` is called after each step; its
/// flag is true four times a second, when it is time to report progress.
pub(crate) async fn drive<M: Machine>(
    machine: &mut M,
    sources: &[&Rc<Sources>],
    job: &Job,
    mut each: impl FnMut(&mut M, bool),
) -> Result<()> {
    let mut driver = Driver::new(sources, job);
    let each = async |machine: &mut M, report_due: bool| {
        each(machine, report_due);
        Ok(())
    };
    let ended = driver.drive(machine, each).await;
    driver.close().await;
    ended
}

/// Reads the files of a checkpoint for a job. It keeps them alive even if something else is opened.
pub(crate) struct SourceReader {
    sources: Rc<Sources>,
    stream: Option<FileStream>,
    /// The bytes around the last span that was out of order.
    near: Option<(FileId, ReadAhead)>,
    remote: Option<RemoteStream>,
    job: Job,
}

impl SourceReader {
    pub(crate) fn new(sources: &Rc<Sources>, job: &Job) -> Self {
        Self { sources: sources.clone(), stream: None, near: None, remote: None, job: job.clone() }
    }

    /// Returns the first bytes of a span, as many as are available at once.
    pub(crate) async fn piece(&mut self, files: &FileSet, span: Span) -> Result<Cow<'_, [u8]>> {
        match self.sources.source_file(span.file) {
            Some(SourceFile::Disk(_)) if self.is_out_of_order(span) => {
                let near = match self.near.take() {
                    Some((file, near)) if file == span.file && near.has(span) => near,
                    _ => ReadAhead::around(files, span)?,
                };
                let (_, near) = self.near.insert((span.file, near));
                Ok(Cow::Borrowed(near.slice(span)))
            }
            Some(SourceFile::Disk(file)) => {
                if let Some(other) = self.stream.take_if(|stream| !stream.reaches(span)) {
                    other.close().await;
                }
                match &mut self.stream {
                    Some(stream) => stream.piece(span).await,
                    none => none.insert(FileStream::open(file, span)?).piece(span).await,
                }
                .map(Cow::Borrowed)
            }
            Some(SourceFile::Offered(_)) if self.job.has_missed() => {
                Err(Error::io("this run is repeated: it missed bytes"))
            }
            Some(SourceFile::Offered(file)) => {
                let file = PartFile::Embedder(file.clone());
                self.part(file, span).await.map(Cow::Borrowed)
            }
            Some(SourceFile::Parts(file)) => {
                let file = PartFile::Server(file.clone());
                self.part(file, span).await.map(Cow::Borrowed)
            }
            Some(SourceFile::Whole) | None => {
                files.read_vec(span.file, span.offset, span.len.min(MAX_REQUEST)).map(Cow::Owned)
            }
        }
    }

    /// Returns the first bytes of a span of a file that is read in parts.
    async fn part(&mut self, file: PartFile, span: Span) -> Result<&[u8]> {
        self.remote.take_if(|remote| !remote.reaches(span));
        let job = &self.job;
        self.remote.get_or_insert_with(|| RemoteStream::new(file, span, job)).piece(span).await
    }

    /// Returns whether to read a span separately, leaving the stream where it is.
    fn is_out_of_order(&self, span: Span) -> bool {
        span.len <= MAX_OUT_OF_ORDER
            && self.stream.as_ref().is_some_and(|stream| !stream.reaches(span))
    }

    pub(crate) async fn close(self) {
        if let Some(stream) = self.stream {
            stream.close().await;
        }
    }
}

/// A file read sequentially, through one buffer that is passed to the browser and back: the browser
/// fills it while the worker uses a copy of the bytes before.
struct FileStream {
    file: FileId,
    reader: ReadableStreamByobReader,
    buffer: Option<ArrayBuffer>,
    /// The read of the bytes after those of `ahead`, if it has begun.
    next: Option<JsFuture>,
    ahead: ReadAhead,
}

/// The bytes read last, and their offset in the file.
#[derive(Default)]
struct ReadAhead {
    bytes: Vec<u8>,
    start: u64,
}

impl ReadAhead {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Reads the block that a span is in.
    fn around(files: &FileSet, span: Span) -> Result<Self> {
        let start = span.offset / NEAR * NEAR;
        let end = files.len(span.file).min(start + NEAR).max(span.offset.saturating_add(span.len));
        Ok(Self { bytes: files.read_vec(span.file, start, end - start)?, start })
    }

    /// Returns whether they are all bytes of a span.
    fn has(&self, span: Span) -> bool {
        self.start <= span.offset && span.offset.saturating_add(span.len) <= self.end()
    }

    /// Returns the first bytes of a span that begins in them.
    fn slice(&self, span: Span) -> &[u8] {
        let from = (span.offset - self.start) as usize;
        let len = span.len.min((self.bytes.len() - from) as u64) as usize;
        &self.bytes[from..from + len]
    }
}

impl FileStream {
    /// Opens a stream at the start of a span.
    fn open(file: &BlobSource, span: Span) -> Result<Self> {
        let slice = file.slice(span.offset, file.len().saturating_sub(span.offset))?;
        let options = ReadableStreamGetReaderOptions::new();
        options.set_mode(ReadableStreamReaderMode::Byob);
        let reader = slice.stream().get_reader_with_options(&options).unchecked_into();
        Ok(Self {
            file: span.file,
            reader,
            buffer: Some(ArrayBuffer::new(BUFFER)),
            next: None,
            ahead: ReadAhead { start: span.offset, ..ReadAhead::default() },
        })
    }

    /// Returns whether the stream gets to the span's first byte sooner than a new stream would.
    fn reaches(&self, span: Span) -> bool {
        self.file == span.file && (self.ahead.start..=self.ahead.end() + GAP).contains(&span.offset)
    }

    /// Returns the first bytes of a span that [`FileStream::reaches`] accepts, as many as are
    /// available at once.
    async fn piece(&mut self, span: Span) -> Result<&[u8]> {
        while self.ahead.end() <= span.offset {
            self.fill(span.offset.saturating_add(span.len)).await?;
        }
        Ok(self.ahead.slice(span))
    }

    /// Reads the next bytes. If they do not reach `end`, the next read begins.
    async fn fill(&mut self, end: u64) -> Result<()> {
        let next = match self.next.take() {
            Some(next) => next,
            None => self.request(),
        };
        let result = next.await.map_err(|_| blob::changed_file_error(""))?;
        let view: Uint8Array =
            get(&result, "value").dyn_into().map_err(|_| blob::changed_file_error(""))?;
        self.buffer = Some(view.buffer());
        let buffered = &mut self.ahead;
        // A stream that was read before is read on, also for a short span.
        let goes_on = !buffered.bytes.is_empty();
        buffered.start = buffered.end();
        if view.length() == 0 {
            buffered.bytes.clear();
            return Err(
                Error::io("the file is shorter than it was when it was opened").at(buffered.start)
            );
        }
        buffered.bytes.resize(view.length() as usize, 0);
        view.copy_to(&mut buffered.bytes);
        if goes_on || buffered.end() < end {
            self.next = Some(self.request());
        }
        Ok(())
    }

    /// Begins to read into the buffer.
    fn request(&mut self) -> JsFuture {
        let buffer = self.buffer.take().unwrap_or_else(|| ArrayBuffer::new(BUFFER));
        JsFuture::from(self.reader.read_with_array_buffer_view(&Uint8Array::new(&buffer)))
    }

    async fn close(self) {
        let _ = JsFuture::from(self.reader.cancel()).await;
    }
}

/// A remote file read sequentially, in contiguous parts. The longer it is read, the more parts are
/// requested ahead. Dropping it aborts requests in flight.
struct RemoteStream {
    id: FileId,
    file: PartFile,
    buffered: ReadAhead,
    /// Parts in flight: offset, length, and the bytes, or `undefined` if the request failed.
    parts: VecDeque<(u64, u64, Promise)>,
    /// The number of bytes that may be in flight.
    window: u64,
    abort: Option<AbortController>,
    job: Job,
}

impl Drop for RemoteStream {
    fn drop(&mut self) {
        if let Some(abort) = &self.abort {
            abort.abort();
        }
    }
}

/// A file that is read in parts.
#[derive(Clone)]
enum PartFile {
    Server(Arc<XhrFile>),
    Embedder(OfferedFile),
}

impl PartFile {
    fn len(&self) -> u64 {
        match self {
            Self::Server(file) => file.len(),
            Self::Embedder(file) => file.len(),
        }
    }

    /// Checks whether `len` more bytes may be fetched.
    fn check(&self, len: u64) -> Result<()> {
        match self {
            Self::Server(file) => file.meter().check(len, ""),
            Self::Embedder(_) => Ok(()),
        }
    }

    /// Requests a part; `None` if that fails.
    async fn part(
        self,
        at: u64,
        len: u64,
        signal: Option<AbortSignal>,
        job: Job,
    ) -> Option<Uint8Array> {
        match self {
            Self::Server(file) => {
                remote::part(file, at, len, signal, job.allowance().clone()).await
            }
            Self::Embedder(file) => file.part(at, len, signal.as_ref()).await.ok(),
        }
    }

    /// Requests a part again after a failure, which may succeed or return the reason.
    async fn retried(&self, at: u64, len: u64) -> Result<Vec<u8>> {
        match self {
            Self::Server(file) => {
                let mut bytes = vec![0; len as usize];
                file.read_at(at, &mut bytes)?;
                Ok(bytes)
            }
            Self::Embedder(file) => Ok(file.part(at, len, None).await?.to_vec()),
        }
    }
}

impl RemoteStream {
    fn new(file: PartFile, span: Span, job: &Job) -> Self {
        let abort = AbortController::new().ok();
        job.set_abort(abort.clone());
        let buffered = ReadAhead { start: span.offset, ..ReadAhead::default() };
        // The whole span is going to be needed.
        let window = span.len.clamp(MIN_REQUEST, WINDOW);
        let job = job.clone();
        Self { id: span.file, file, buffered, parts: VecDeque::new(), window, abort, job }
    }

    fn reaches(&self, span: Span) -> bool {
        let end = self.requested_end() + GAP;
        self.id == span.file && (self.buffered.start..=end).contains(&span.offset)
    }

    /// Returns the end of the last part requested.
    fn requested_end(&self) -> u64 {
        self.parts.back().map_or(self.buffered.end(), |(offset, len, _)| offset + len)
    }

    async fn piece(&mut self, span: Span) -> Result<&[u8]> {
        while self.buffered.end() <= span.offset {
            self.next().await?;
        }
        Ok(self.buffered.slice(span))
    }

    /// Takes the next part, and requests more after it.
    async fn next(&mut self) -> Result<()> {
        let at = self.buffered.end();
        self.buffered = ReadAhead { start: at, ..ReadAhead::default() };
        self.request(at);
        let mut len = MIN_REQUEST.min(self.file.len() - at);
        let mut bytes_received = None;
        if let Some((_, requested_end, bytes)) = self.parts.pop_front() {
            len = requested_end;
            bytes_received =
                JsFuture::from(bytes).await.ok().and_then(|bytes| bytes.dyn_into().ok());
            self.job.check()?;
        }
        self.buffered.bytes = match bytes_received {
            Some(bytes) => Uint8Array::to_vec(&bytes),
            None => self.file.retried(at, len).await?,
        };
        self.window = (self.window * 2).min(WINDOW);
        self.request(self.buffered.end());
        Ok(())
    }

    /// Requests parts until the window after `from` is full, or the agreed number of bytes is
    /// reached.
    fn request(&mut self, from: u64) {
        let end = self.file.len().min(from + self.window);
        let len = (self.window / 4).clamp(MIN_REQUEST, MAX_REQUEST);
        loop {
            let at = self.requested_end();
            let len = len.min(self.file.len() - at);
            if at >= end || self.file.check(at + len - from).is_err() {
                return;
            }
            let signal = self.abort.as_ref().map(AbortController::signal);
            let bytes = self.file.clone().part(at, len, signal, self.job.clone());
            let bytes = future_to_promise(async move { Ok(bytes.await.into()) });
            self.parts.push_back((at, len, bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of reads of the clock for steps of these sizes, in bytes.
    fn clock_reads(steps: impl IntoIterator<Item = usize>) -> usize {
        let mut pace = Pace::default();
        steps.into_iter().filter(|bytes| pace.is_due(*bytes)).count()
    }

    #[test]
    fn small_tensors_share_a_read_of_the_clock() {
        // Each is begun and fed.
        let small = std::iter::repeat_n([0, 16], 1_000).flatten();
        assert_eq!(clock_reads(small), 2_000 / UNCLOCKED_STEPS as usize);
    }

    #[test]
    fn long_steps_are_clocked_one_by_one() {
        assert_eq!(clock_reads([0, 4 << 20, 0, 4 << 20, 4 << 20]), 3);
        // Computing between two feeds, as for singular values.
        assert_eq!(clock_reads([0, 16, 0, 0, 0, 16]), 2);
    }
}
