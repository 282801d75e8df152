//! Multipart uploads of objects.
//!
//! A part is sent when it is full, several at a time, so memory is bounded however large the
//! checkpoint is. If a plan makes a file's head last, the first parts are kept and sent last.
//! Objects appear only when all are complete; cancelled uploads are aborted, so that the bucket
//! keeps no parts that cost money.

use std::collections::VecDeque;
use std::sync::Arc;

use object_store::multipart::PartId;
use object_store::{MultipartId, PutPayload};
use statelens_checkpoint::{Error, Plan, ReadAt, Result, Segment};
use statelens_tensor::crc;
use tokio::task::JoinHandle;

use super::{Location, exists, runtime, store_error, wait};
use crate::remote::SentPart;
use crate::sink::Sink;

/// Bytes of a part, unless there would be more parts than stores allow (10,000).
const PART: u64 = 16 << 20;
const MAX_PARTS: u64 = 9_000;
/// Parts that are sent at the same time.
const AT_ONCE: usize = 4;

/// A sink that writes new files as objects.
pub(crate) struct ObjectSink {
    uploads: Vec<Upload>,
    current: usize,
    replace: bool,
}

/// One object being written.
struct Upload {
    location: Location,
    warn: fn(&str),
    id: Option<MultipartId>,
    part: usize,
    /// The first bytes of the file, which are kept until the head is made.
    kept: Vec<u8>,
    keep: usize,
    buffer: Vec<u8>,
    parts: Vec<Option<PartId>>,
    /// The number of bytes of each part, and their CRC-32C, if others send the rest.
    sums: Vec<(u64, u32)>,
    sending: VecDeque<(usize, JoinHandle<object_store::Result<PartId>>)>,
    complete: bool,
    /// The number of the first part, if others send the rest of the object.
    shared: Option<usize>,
}

/// The parts of an object that one of several processes sends.
pub(crate) struct PartRange {
    pub(crate) location: Location,
    /// The id of the upload.
    pub(crate) id: String,
    /// Number of the first part.
    pub(crate) first: usize,
    /// Bytes of each part but the last.
    pub(crate) part: u64,
    /// Bytes at the start that are made last.
    pub(crate) head: u64,
}

impl ObjectSink {
    /// Takes the locations of the plan's files, by index. An existing object is replaced only if
    /// `replace` is set, and not before the new one is complete. `warn` reports parts that a store
    /// may have kept.
    pub(crate) fn new(
        plan: &Plan,
        locations: Vec<Location>,
        replace: bool,
        warn: fn(&str),
    ) -> Result<Self> {
        let mut uploads = Vec::new();
        for (file, location) in plan.files.iter().zip(locations) {
            if !replace && location.exists()? {
                return Err(exists().in_file(location.address()));
            }
            let size = file.size(&plan.source)?.bytes();
            let part = PART.max(size.div_ceil(MAX_PARTS).next_multiple_of(1 << 20));
            let head = match file.segments.first() {
                Some(Segment::Late { len: Some(len), .. }) if file.head_last => *len,
                _ => 0,
            };
            uploads.push(Upload::new(location, part, head, warn)?);
        }
        Ok(Self { uploads, current: 0, replace })
    }

    /// Takes the ranges that this process sends, by index of the plan's files.
    pub(crate) fn of_ranges(ranges: Vec<PartRange>, warn: fn(&str)) -> Result<Self> {
        let upload = |range: PartRange| -> Result<Upload> {
            let upload = Upload::new(range.location, range.part, range.head, warn)?;
            Ok(Upload { id: Some(range.id), shared: Some(range.first), ..upload })
        };
        let uploads = ranges.into_iter().map(upload).collect::<Result<_>>()?;
        Ok(Self { uploads, current: 0, replace: true })
    }

    /// Waits until everything is sent; returns the parts of each range.
    pub(crate) fn finish_ranges(mut self) -> Result<Vec<Vec<SentPart>>> {
        if let Some(last) = self.uploads.get_mut(self.current) {
            last.end()?;
        }
        let parts = |upload: &Upload| {
            let parts = upload.parts.iter().zip(&upload.sums).map(|(part, (len, sum))| {
                let name = part.as_ref()?.content_id.clone();
                Some(SentPart { name, len: *len, sum: *sum })
            });
            let parts: Option<Vec<SentPart>> = parts.collect();
            parts
                .filter(|parts| parts.len() == upload.parts.len())
                .ok_or_else(|| Error::io("a part of the new object was not sent"))
        };
        self.uploads.iter().map(parts).collect()
    }

    /// Waits until everything is sent, then completes the objects.
    pub(crate) fn finish(mut self) -> Result<Written> {
        if let Some(last) = self.uploads.get_mut(self.current) {
            last.end()?;
        }
        let mut replaces = Vec::new();
        for upload in &self.uploads {
            replaces.push(upload.location.exists()?);
            if replaces.last() == Some(&true) && !self.replace {
                return Err(exists().in_file(upload.location.address()));
            }
        }
        // If one can't be completed, those that have appeared are removed.
        let mut written = Written::default();
        for (upload, replaces) in self.uploads.iter_mut().zip(replaces) {
            upload.complete()?;
            let Upload { location, warn, .. } = upload;
            let (location, warn) = (location.clone(), *warn);
            written.objects.push(Appeared { location, replaces, warn });
        }
        Ok(written)
    }

    fn upload(&mut self) -> Result<&mut Upload> {
        self.uploads.get_mut(self.current).ok_or_else(|| {
            Error::io("a plan writes to a file that it does not name").advice("Please report it.")
        })
    }
}

/// Objects that have appeared. They are removed when dropped, unless they are kept.
#[derive(Default)]
pub(crate) struct Written {
    objects: Vec<Appeared>,
}

struct Appeared {
    location: Location,
    /// Whether an object with this name existed before.
    replaces: bool,
    warn: fn(&str),
}

impl Written {
    /// Opens the objects to read them back.
    pub(crate) fn open(&self) -> Result<Vec<Arc<dyn ReadAt>>> {
        self.objects.iter().map(|object| object.location.open()?).collect()
    }

    /// Keeps the objects.
    pub(crate) fn keep(&mut self) {
        self.objects.clear();
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        for Appeared { location, replaces, warn } in self.objects.drain(..) {
            let (removed, address) = (location.remove(), location.address());
            if let Err(error) = removed {
                warn(&format!(
                    "{address}: this object could not be removed, do not use it: {error}"
                ));
            }
            if replaces {
                warn(&format!(
                    "{address}: the object that was replaced is gone, unless the bucket keeps versions"
                ));
            }
        }
    }
}

impl Sink for ObjectSink {
    fn begin(&mut self, index: usize) -> Result<()> {
        if index > 0 {
            self.upload()?.end()?;
        }
        self.current = index;
        self.upload()?.begin()
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.upload()?.write(bytes)
    }

    fn patch_head(&mut self, head: &[u8]) -> Result<()> {
        let upload = self.upload()?;
        let kept = upload.kept.get_mut(..head.len()).ok_or_else(|| {
            Error::io("the head of a file is longer than planned").advice("Please report it.")
        })?;
        kept.copy_from_slice(head);
        Ok(())
    }
}

impl Drop for ObjectSink {
    fn drop(&mut self) {
        self.uploads.iter_mut().for_each(Upload::abort);
    }
}

impl Upload {
    /// Returns an upload in parts of `part` bytes, whose first `head` bytes are made last.
    fn new(location: Location, part: u64, head: u64, warn: fn(&str)) -> Result<Self> {
        let keep = head.next_multiple_of(part.max(1));
        let (Ok(part), Ok(keep)) = (usize::try_from(part), usize::try_from(keep)) else {
            return Err(Error::unsupported("the file is too large to be sent in parts"));
        };
        Ok(Self {
            location,
            warn,
            id: None,
            part,
            kept: Vec::new(),
            keep,
            buffer: Vec::new(),
            parts: Vec::new(),
            sums: Vec::new(),
            sending: VecDeque::new(),
            complete: false,
            shared: None,
        })
    }

    fn begin(&mut self) -> Result<()> {
        if self.shared.is_none() {
            self.id = Some(self.location.create_upload()?);
        }
        // Reserves the numbers of the kept parts; the others follow.
        self.parts = vec![None; self.keep / self.part];
        Ok(())
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        let room = (self.keep - self.kept.len()).min(bytes.len());
        self.kept.extend_from_slice(&bytes[..room]);
        bytes = &bytes[room..];
        while !bytes.is_empty() {
            let len = (self.part - self.buffer.len()).min(bytes.len());
            self.buffer.extend_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
            if self.buffer.len() == self.part {
                let full = std::mem::take(&mut self.buffer);
                self.parts.push(None);
                self.send(self.parts.len() - 1, full)?;
            }
        }
        Ok(())
    }

    /// Sends the rest at the end of the file, and the kept parts.
    fn end(&mut self) -> Result<()> {
        let rest = std::mem::take(&mut self.buffer);
        if !rest.is_empty() {
            self.parts.push(None);
            self.send(self.parts.len() - 1, rest)?;
        }
        let kept = std::mem::take(&mut self.kept);
        // A short file may have fewer kept parts than were reserved.
        let count = kept.len().div_ceil(self.part);
        if count < self.keep / self.part {
            self.parts.truncate(count);
        }
        for (at, part) in kept.chunks(self.part).enumerate() {
            self.send(at, part.to_vec())?;
        }
        while !self.sending.is_empty() {
            self.sent()?;
        }
        Ok(())
    }

    fn send(&mut self, at: usize, bytes: Vec<u8>) -> Result<()> {
        let Some(id) = self.id.clone() else {
            return Err(Error::io("bytes came before the file they belong to"));
        };
        while self.sending.len() >= AT_ONCE {
            self.sent()?;
        }
        let Location { parts, path, .. } = self.location.clone();
        let number = self.shared.unwrap_or(0) + at;
        if self.shared.is_some() {
            self.sums.resize(self.sums.len().max(at + 1), (0, 0));
            self.sums[at] = (bytes.len() as u64, crc::crc32c(0, &bytes));
        }
        let send = async move { parts.put_part(&path, &id, number, PutPayload::from(bytes)).await };
        self.sending.push_back((at, runtime()?.spawn(send)));
        Ok(())
    }

    /// Waits for the part that was sent first.
    fn sent(&mut self) -> Result<()> {
        let Some((at, part)) = self.sending.pop_front() else { return Ok(()) };
        let part = wait(part)?.map_err(|_| Error::io("sending a part ended unexpectedly"))?;
        let part = part.map_err(|error| {
            store_error(&error, &self.location.address()).context("a part could not be written")
        })?;
        if let Some(slot) = self.parts.get_mut(at) {
            *slot = Some(part);
        }
        Ok(())
    }

    fn complete(&mut self) -> Result<()> {
        let Some(id) = &self.id else { return Ok(()) };
        let parts: Vec<PartId> = self.parts.iter().flatten().cloned().collect();
        if parts.len() != self.parts.len() {
            return Err(Error::io("a part of the new object was not sent"));
        }
        let Location { parts: store, path, .. } = &self.location;
        wait(store.complete_multipart(path, id, parts))?
            .map_err(|error| store_error(&error, &self.location.address()))?;
        self.complete = true;
        Ok(())
    }

    /// Aborts an incomplete upload, so that the store keeps none of its parts.
    fn abort(&mut self) {
        let Some(id) = self.id.take().filter(|_| !self.complete) else { return };
        // A part that arrives after the upload is aborted would stay.
        for (_, part) in self.sending.drain(..) {
            part.abort();
            let _ = wait(part);
        }
        if self.shared.is_some() {
            // The parts of other processes stay, and those of this one are sent again.
            return;
        }
        let Location { parts, path, .. } = &self.location;
        let aborted = wait(parts.abort_multipart(path, &id));
        if !matches!(aborted, Ok(Ok(()))) {
            (self.warn)(&format!(
                "{}: the store did not confirm that the unfinished upload was removed; look for \
                 incomplete multipart uploads in the bucket",
                self.location.address()
            ));
        }
    }
}
