//! Files that the embedding page offers: ranges of bytes are requested through a message port
//! (docs/embed.md).
//!
//! A worker can't wait for a message, as it waits for a file or a server. A synchronous read fails
//! if its bytes have not arrived, and is recorded with the run of its job. When the run is over,
//! what it missed is requested, and the job's request is run again (`worker/job.rs`). Nothing that
//! such a run posts reaches the page. Sequential reading (`worker/reading.rs`) awaits its bytes.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use js_sys::{ArrayBuffer, Function, Promise, Uint8Array};
use statelens_checkpoint::{Error, ReadAt, Result};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{AbortSignal, MessageEvent, MessagePort};

use crate::messages::{get, set};
use crate::open::message::FileName;
use crate::worker::blob::ReadCounter;

/// Bytes are kept in blocks of this size.
const BLOCK: u64 = 64 << 10;
/// Maximum number of bytes of a request, and of reading ahead.
const MAX_REQUEST: u64 = 4 << 20;
/// Number of blocks of a file above which those of earlier requests of the page are dropped.
const MAX_BLOCKS: usize = 2_048;

thread_local! {
    /// The misses of the current run.
    static TURN: RefCell<Option<Rc<Misses>>> = const { RefCell::new(None) };
    /// The number of requests of the page so far.
    static REQUEST: Cell<u64> = const { Cell::new(0) };
    /// Whether files have been offered to this worker.
    static USED: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether files have been offered to this worker.
pub(crate) fn is_used() -> bool {
    USED.get()
}

/// Begins a request of the page: what could not be read before is requested again.
pub(crate) fn begin_request() {
    REQUEST.set(REQUEST.get() + 1);
}

/// Sets the list that misses are added to, and returns the previous one.
pub(crate) fn take_turn(misses: Option<Rc<Misses>>) -> Option<Rc<Misses>> {
    TURN.replace(misses)
}

/// The bytes that the synchronous reads of a run found missing.
#[derive(Default)]
pub(crate) struct Misses(RefCell<Vec<(OfferedFile, Range<u64>)>>);

impl Misses {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Requests all of them at once, and returns when they have arrived or failed.
    pub(crate) async fn fetch(&self, signal: Option<&AbortSignal>) {
        let mut all = self.0.take();
        all.sort_by_key(|(file, range)| (file.0.index, range.start));
        let mut requests = Vec::new();
        let mut last: Option<(u32, u64)> = None;
        for (file, range) in all {
            let known = last.filter(|(index, _)| *index == file.0.index).map_or(0, |(_, end)| end);
            let mut at = range.start.max(known);
            while at < range.end {
                let end = range.end.min(at + MAX_REQUEST);
                requests.push((file.clone(), at..end, file.request(at, end - at, signal)));
                at = end;
            }
            last = Some((file.0.index, range.end.max(known)));
        }
        for (file, range, promise) in requests {
            match file.arrived(promise, range.end - range.start).await {
                Ok(bytes) => file.lock().insert(range.start, &bytes.to_vec()),
                Err(error) => file.lock().failure = Some((REQUEST.get(), error)),
            }
        }
    }
}

/// A file that the embedding page offers. Clones share it.
#[derive(Debug, Clone)]
pub struct OfferedFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    embedder: Arc<Embedder>,
    index: u32,
    len: u64,
    blocks: Mutex<Blocks>,
    read_counter: Arc<ReadCounter>,
}

/// The bytes of a file that have arrived.
#[derive(Debug, Default)]
struct Blocks {
    /// By number; each with the latest request of the page that used it.
    blocks: BTreeMap<u64, (u64, Vec<u8>)>,
    /// The end and the length of the last request.
    last: (u64, u64),
    /// Why the file could not be read, and the request of the page at that time.
    failure: Option<(u64, Error)>,
}

impl OfferedFile {
    /// Wraps the offered files, which are read through `port`.
    pub(crate) fn all(
        port: MessagePort,
        names: &[FileName],
        counter: &Arc<ReadCounter>,
    ) -> Vec<Self> {
        USED.set(true);
        let embedder = Embedder::new(port);
        let file = |(index, name): (u32, &FileName)| {
            Self(Arc::new(Inner {
                embedder: embedder.clone(),
                index,
                len: name.size,
                blocks: Mutex::default(),
                read_counter: counter.clone(),
            }))
        };
        (0..).zip(names).map(file).collect()
    }

    /// Reads a range asynchronously, past the blocks. An aborted `signal` cancels it.
    ///
    /// # Errors
    /// If the embedding page reports one, sends another number of bytes, or the read is cancelled.
    pub(crate) async fn part(
        &self,
        offset: u64,
        len: u64,
        signal: Option<&AbortSignal>,
    ) -> Result<Uint8Array> {
        let promise = self.request(offset, len, signal);
        self.arrived(promise, len).await
    }

    fn request(&self, offset: u64, len: u64, signal: Option<&AbortSignal>) -> Promise {
        self.0.read_counter.add(len);
        self.0.embedder.read(self.0.index, offset..offset + len, signal)
    }

    async fn arrived(&self, promise: Promise, len: u64) -> Result<Uint8Array> {
        let failed = |reason: JsValue| {
            let reason = reason.as_string().unwrap_or_default();
            Error::io(format!("the page around this one could not read it: {reason}"))
        };
        let bytes = Uint8Array::new(&JsFuture::from(promise).await.map_err(failed)?);
        match u64::from(bytes.length()) {
            sent if sent == len => Ok(bytes),
            sent => Err(Error::io(format!("the page around this one sent {sent} of {len} bytes"))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.0.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadAt for OfferedFile {
    fn len(&self) -> u64 {
        self.0.len
    }

    fn overhead(&self) -> u64 {
        BLOCK
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let mut blocks = self.lock();
        let Some(missing) = blocks.copy(offset, buffer) else { return Ok(()) };
        if let Some((request, error)) = &blocks.failure
            && *request == REQUEST.get()
        {
            return Err(error.clone());
        }
        let range = blocks.with_ahead(missing, self.0.len);
        TURN.with_borrow(|turn| {
            if let Some(misses) = turn {
                misses.0.borrow_mut().push((self.clone(), range));
            }
        });
        Err(Error::io("the page around this one has not sent these bytes yet").at(offset))
    }
}

impl Blocks {
    /// Copies bytes from `offset`. Returns the range of those that are missing, if there are any.
    fn copy(&mut self, offset: u64, buffer: &mut [u8]) -> Option<Range<u64>> {
        let end = offset + buffer.len() as u64;
        let mut missing: Option<Range<u64>> = None;
        let mut at = offset;
        while at < end {
            let (number, from) = (at / BLOCK, (at % BLOCK) as usize);
            let len = (BLOCK - from as u64).min(end - at) as usize;
            let found = self.blocks.get_mut(&number);
            match found.and_then(|(used, block)| {
                *used = REQUEST.get();
                block.get(from..from + len)
            }) {
                Some(bytes) => {
                    let to = (at - offset) as usize;
                    buffer[to..to + len].copy_from_slice(bytes);
                }
                None => {
                    let block = number * BLOCK..(number + 1) * BLOCK;
                    missing = Some(missing.map_or(block.start, |known| known.start)..block.end);
                }
            }
            at += len as u64;
        }
        missing
    }

    /// Returns the range to request for a missing one: whole blocks, and more the longer the file is
    /// read sequentially.
    fn with_ahead(&mut self, missing: Range<u64>, len: u64) -> Range<u64> {
        let (end, before) = self.last;
        let sequential = missing.start == end && end > 0;
        let ahead = if sequential { (before * 2).min(MAX_REQUEST) } else { BLOCK };
        let end = missing.end.max(missing.start + ahead).min(len);
        self.last = (end, end - missing.start);
        missing.start..end
    }

    /// Keeps bytes that begin at a block.
    fn insert(&mut self, offset: u64, bytes: &[u8]) {
        let now = REQUEST.get();
        if self.blocks.len() > MAX_BLOCKS {
            self.blocks.retain(|_, (used, _)| *used >= now);
        }
        for (number, block) in (offset / BLOCK..).zip(bytes.chunks(BLOCK as usize)) {
            self.blocks.insert(number, (now, block.to_vec()));
        }
    }
}

/// The port to the embedding page, and the requests that it has not answered.
#[derive(Debug)]
struct Embedder {
    port: MessagePort,
    /// The functions that resolve and reject the promises of requests.
    waiting: Mutex<HashMap<u32, (Function, Function)>>,
    last: AtomicU32,
}

impl Embedder {
    fn new(port: MessagePort) -> Arc<Self> {
        let embedder = Arc::new(Self { port, waiting: Mutex::default(), last: AtomicU32::new(0) });
        let weak = Arc::downgrade(&embedder);
        let receive = Closure::<dyn FnMut(MessageEvent)>::new(move |event: MessageEvent| {
            if let Some(embedder) = weak.upgrade() {
                embedder.receive(&event.data());
            }
        });
        embedder.port.set_onmessage(Some(receive.into_js_value().unchecked_ref()));
        embedder
    }

    /// Requests a range. The promise resolves to an `ArrayBuffer`, or is rejected with a text.
    fn read(
        self: &Arc<Self>,
        file: u32,
        range: Range<u64>,
        signal: Option<&AbortSignal>,
    ) -> Promise {
        let id = self.last.fetch_add(1, Relaxed);
        let promise = Promise::new(&mut |resolve, reject| {
            self.lock().insert(id, (resolve, reject));
        });
        let request = js_sys::Object::new();
        set(&request, "type", &"read".into());
        set(&request, "id", &id.into());
        set(&request, "file", &file.into());
        set(&request, "offset", &(range.start as f64).into());
        set(&request, "length", &((range.end - range.start) as f64).into());
        // A plain object can always be posted.
        let _ = self.port.post_message(&request);
        if let Some(signal) = signal {
            let weak = Arc::downgrade(self);
            let cancel = Closure::once_into_js(move || {
                if let Some(embedder) = weak.upgrade() {
                    embedder.cancel(id);
                }
            });
            let _ = signal.add_event_listener_with_callback("abort", cancel.unchecked_ref());
        }
        promise
    }

    fn receive(&self, data: &JsValue) {
        let id = get(data, "id").as_f64().map(|id| id as u32);
        let request = id.and_then(|id| self.lock().remove(&id));
        let Some((resolve, reject)) = request else { return };
        let bytes = get(data, "bytes");
        let _ = match bytes.is_instance_of::<ArrayBuffer>() {
            true => resolve.call1(&JsValue::UNDEFINED, &bytes),
            false => reject.call1(&JsValue::UNDEFINED, &get(data, "message")),
        };
    }

    /// Cancels a request, if it is not answered yet.
    fn cancel(&self, id: u32) {
        let request = self.lock().remove(&id);
        let Some((_, reject)) = request else { return };
        let cancel = js_sys::Object::new();
        set(&cancel, "type", &"cancel".into());
        set(&cancel, "id", &id.into());
        let _ = self.port.post_message(&cancel);
        let _ = reject.call1(&JsValue::UNDEFINED, &"the read was cancelled".into());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, (Function, Function)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Embedder {
    fn drop(&mut self) {
        self.port.close();
    }
}
