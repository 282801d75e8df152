//! Runs a plan: feeds it from streams, passes its bytes on, tells how far it is, stops when asked.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use js_sys::{ArrayBuffer, Uint8Array};
use statelens_checkpoint::{Error, FileId, FileSet, Plan, Result, Segment, Span, TensorId};
use statelens_convert::{Composition, Options, Run, Step, composable};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{ReadableStreamByobReader, ReadableStreamGetReaderOptions, ReadableStreamReaderMode};

use crate::page::bridge::get;
use crate::protocol::{self, Done, FromWorker, Running};
use crate::worker::sink::Sink;
use crate::worker::{blob, check, now, post, remote};

/// The stream's buffer.
const BUFFER: u32 = 4 << 20;
/// What is fetched of a remote file at once.
pub(super) const FETCH: u64 = 8 << 20;
/// A gap in a file that is cheaper to read over than to open another stream behind it.
const GAP: u64 = 1 << 20;
/// How long the machine may run without listening.
const SLICE: f64 = 40.0;

/// Looks at the clock between steps of work that takes long.
pub(super) struct Pulse {
    told: f64,
    listened: f64,
}

impl Pulse {
    pub(super) fn new() -> Self {
        Self { told: now(), listened: now() }
    }

    /// Listens to messages if that was long ago: reads that are answered at once, and work without
    /// reads, leave no room for them. True four times a second: then it is told how far it is.
    pub(super) async fn beat(&mut self) -> bool {
        let time = now();
        if time - self.listened >= SLICE {
            gloo_timers::future::TimeoutFuture::new(0).await;
            self.listened = now();
        }
        let tell = time - self.told >= 250.0;
        if tell {
            self.told = time;
        }
        tell
    }
}

/// The wish to stop, shared with whoever may have it.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Rc<Cell<bool>>);

impl Cancel {
    /// Stops what looks at it.
    pub fn set(&self) {
        self.0.set(true);
    }

    /// An error once it was asked to stop.
    ///
    /// # Errors
    /// That it is cancelled.
    pub fn check(&self) -> Result<()> {
        if self.0.get() { Err(Error::cancelled()) } else { Ok(()) }
    }
}

/// Work that goes on beside messages. It stops when this is gone: the files that it reads may be,
/// too.
pub(super) struct Guard(pub(super) Cancel);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Runs a plan. What comes back is what was written, and the finished files.
///
/// # Errors
/// As the core, the browser or the user says it; then nothing is left behind.
pub async fn run(
    plan: Plan,
    to: protocol::Sink,
    handle: JsValue,
    cancel: &Cancel,
) -> Result<(Done, JsValue)> {
    let began = now();
    let remote = remote::is_open();
    let compose = composable(&plan) && to == protocol::Sink::Download && !remote;
    // How much it takes was agreed to when the plan was.
    let cap = remote::allow(u64::MAX);
    let names: Vec<String> = plan.files.iter().map(|file| file.name.clone()).collect();
    let mut sinks = Sinks { to, compose, handle, begun: Vec::new() };
    let keys = Keys::new(&plan);
    let planned = plan.source.clone();
    let mut job = Job {
        run: Run::new(plan, Options { compose })?,
        remote,
        stream: None,
        cancel,
        began,
        keys,
    };
    let ran = job.all(&mut sinks).await;
    remote::allow(cap);
    match ran {
        Ok(()) => {
            let files = job.run.files().clone();
            let blobs = js_sys::Array::new();
            let mut done = Done {
                names,
                bytes: 0,
                millis: 0.0,
                how: protocol::How::Composed,
                read_back: protocol::ReadBack::default(),
            };
            for sink in sinks.begun {
                let (blob, how) = sink.finish(&files).await?;
                done.bytes += blob.size() as u64;
                done.how = how;
                blobs.push(&blob);
            }
            done.millis = now() - began;
            done.read_back = check::read_back(&planned, &done.names, &blobs);
            Ok((done, blobs.into()))
        }
        Err(error) => {
            for sink in sinks.begun {
                sink.discard().await;
            }
            Err(error)
        }
    }
}

/// The files that were begun, the last of which is being written.
struct Sinks {
    to: protocol::Sink,
    compose: bool,
    handle: JsValue,
    begun: Vec<Sink>,
}

impl Sinks {
    async fn begin(&mut self) -> Result<()> {
        if let Some(last) = self.begun.last_mut() {
            last.flush(true).await?;
        }
        self.begun.push(match self.to {
            protocol::Sink::Download if self.compose => Sink::Composed(Composition::default()),
            protocol::Sink::Download => Sink::private().await?,
            protocol::Sink::Handle if !self.begun.is_empty() => {
                return Err(Error::refused("one name was chosen for several files"));
            }
            protocol::Sink::Handle => Sink::chosen(self.handle.clone()).await?,
        });
        Ok(())
    }

    fn current(&mut self) -> Result<&mut Sink> {
        self.begun.last_mut().ok_or_else(|| Error::io("bytes came before the file they belong to"))
    }
}

struct Job<'a> {
    run: Run,
    /// Files are not the browser's: they are fetched as they are read.
    remote: bool,
    stream: Option<Stream>,
    cancel: &'a Cancel,
    began: f64,
    keys: Keys,
}

impl Job<'_> {
    async fn all(&mut self, sinks: &mut Sinks) -> Result<()> {
        let mut pulse = Pulse::new();
        loop {
            self.cancel.check()?;
            let step = self.run.step();
            if let Step::Begin(_) = step {
                sinks.begin().await?;
                self.run.begun();
                continue;
            }
            if step == Step::Done {
                self.close().await;
                return Ok(());
            }
            let sink = sinks.current()?;
            match step {
                Step::Begin(_) | Step::Done => {}
                Step::Read(span) => {
                    let piece = self.piece(span).await?;
                    self.run.feed(&piece, &mut |bytes| {
                        sink.put(bytes);
                        Ok(())
                    })?;
                }
                Step::Copy(span) if sink.composes() => {
                    sink.span(span);
                    self.run.copied(span.len);
                }
                Step::Copy(span) => {
                    let piece = self.piece(span).await?;
                    sink.put(&piece);
                    self.run.copied(piece.len() as u64);
                }
                Step::Work => self.run.work(&mut |bytes| {
                    sink.put(bytes);
                    Ok(())
                })?,
                Step::Head(head) => {
                    sink.patch_head(&head).await?;
                    self.run.patched();
                }
            }
            sink.flush(false).await?;
            if pulse.beat().await {
                self.tell(now());
                remote::tell();
            }
        }
    }

    fn tell(&self, time: f64) {
        let (done, total) = self.run.progress();
        post(&FromWorker::Running(Running {
            done,
            total,
            millis: time - self.began,
            key: self.keys.at(done),
        }));
    }

    /// The first bytes of a span.
    async fn piece(&mut self, span: Span) -> Result<Vec<u8>> {
        if self.remote {
            return self.run.files().read_vec(span.file, span.offset, span.len.min(FETCH));
        }
        self.stream_at(span).await?.piece(span).await
    }

    /// The stream that gives a span's first byte next; another one if this is elsewhere.
    async fn stream_at(&mut self, span: Span) -> Result<&mut Stream> {
        let fits = self.stream.as_ref().is_some_and(|stream| stream.reaches(span));
        if !fits {
            self.close().await;
        }
        match &mut self.stream {
            Some(stream) => Ok(stream),
            none => Ok(none.insert(Stream::open(self.run.files(), span, 0)?)),
        }
    }

    async fn close(&mut self) {
        if let Some(stream) = self.stream.take() {
            stream.close().await;
        }
    }
}

/// A file being read forwards, from one buffer that goes to the browser and comes back.
pub(super) struct Stream {
    file: FileId,
    reader: ReadableStreamByobReader,
    buffer: Option<ArrayBuffer>,
    /// What was read and not taken yet; `at` is the offset of its first byte in the file.
    held: Vec<u8>,
    taken: usize,
    at: u64,
}

impl Stream {
    /// A stream from the start of a span on; `base` is where in the table the files begin.
    pub(super) fn open(files: &FileSet, span: Span, base: usize) -> Result<Self> {
        let index = blob::index(files, span.file, base)?;
        let end = files.len(span.file);
        let slice = blob::slice(index, span.offset, end.saturating_sub(span.offset))?;
        let options = ReadableStreamGetReaderOptions::new();
        options.set_mode(ReadableStreamReaderMode::Byob);
        let reader = slice.stream().get_reader_with_options(&options).unchecked_into();
        Ok(Self {
            file: span.file,
            reader,
            buffer: Some(ArrayBuffer::new(BUFFER)),
            held: Vec::new(),
            taken: 0,
            at: span.offset,
        })
    }

    /// Whether it gives the first byte of a span before it would pay to open another.
    pub(super) fn reaches(&self, span: Span) -> bool {
        self.file == span.file && (self.at..=self.end() + GAP).contains(&span.offset)
    }

    fn end(&self) -> u64 {
        self.at + (self.held.len() - self.taken) as u64
    }

    /// The first bytes of a span that [`Stream::reaches`] holds, as many as there are at once.
    pub(super) async fn piece(&mut self, span: Span) -> Result<Vec<u8>> {
        while self.end() <= span.offset {
            self.at = self.end();
            self.fill().await?;
        }
        let skip = (span.offset - self.at) as usize;
        self.taken += skip;
        self.at += skip as u64;
        let len = span.len.min((self.held.len() - self.taken) as u64) as usize;
        let piece = self.held[self.taken..self.taken + len].to_vec();
        self.taken += len;
        self.at += len as u64;
        Ok(piece)
    }

    async fn fill(&mut self) -> Result<()> {
        self.held.clear();
        self.taken = 0;
        let buffer = self.buffer.take().unwrap_or_else(|| ArrayBuffer::new(BUFFER));
        let view = Uint8Array::new(&buffer);
        let promise = self.reader.read_with_array_buffer_view(&view);
        let result = JsFuture::from(promise).await.map_err(|_| blob::gone(""))?;
        let view: Uint8Array = get(&result, "value").dyn_into().map_err(|_| blob::gone(""))?;
        self.buffer = Some(view.buffer());
        if view.length() == 0 {
            return Err(Error::io("the file is shorter than it was when it was opened").at(self.at));
        }
        self.held.resize(view.length() as usize, 0);
        view.copy_to(&mut self.held);
        Ok(())
    }

    pub(super) async fn close(self) {
        let _ = JsFuture::from(self.reader.cancel()).await;
    }
}

/// Which key is being written, by how much is done.
struct Keys {
    ends: Vec<(u64, TensorId)>,
    names: HashMap<TensorId, String>,
}

impl Keys {
    fn new(plan: &Plan) -> Self {
        let mut at = 0u64;
        let mut ends = Vec::new();
        for segment in plan.segments() {
            at = at.saturating_add(match segment {
                Segment::Bytes(bytes) => bytes.len() as u64,
                Segment::Zeros(len) => *len,
                Segment::Late { len, .. } => len.unwrap_or(0),
                Segment::Data(data) => plan
                    .source
                    .tensor(data.tensor)
                    .ok()
                    .and_then(|tensor| tensor.nbytes())
                    .unwrap_or(0),
            });
            if let Segment::Data(data) = segment {
                ends.push((at, data.tensor));
            }
        }
        let mut names = HashMap::new();
        for leaf in plan.source.leaves() {
            if let Some((tensor, _)) = plan.source.tensor_of(leaf.id) {
                names.entry(tensor).or_insert_with(|| leaf.flat.to_lossy().into_owned());
            }
        }
        Self { ends, names }
    }

    fn at(&self, done: u64) -> String {
        let index = self.ends.partition_point(|(end, _)| *end <= done);
        self.ends
            .get(index)
            .and_then(|(_, tensor)| self.names.get(tensor))
            .cloned()
            .unwrap_or_default()
    }
}
