//! Writes a checkpoint whose values are objects below a prefix of a bucket.
//!
//! `__METADATA__` is written twice, as the Cerebras library does: before the objects in a form that
//! no loader accepts as a checkpoint, and after them completely. Only objects below the prefix are
//! ever removed: those that this run wrote, if it fails, and those that the replaced checkpoint
//! names.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use statelens_checkpoint::{Error, Plan, Progress, ReadAt, Result};
use statelens_compare::ReadBack;
use statelens_convert::RunReport;
use statelens_formats::cerebras::s3::{self, MAX_KEY, METADATA};

use super::{FileOptions, Finishing, Replace};
use crate::executor;
use crate::remote::bucket::{Bucket, BucketObject};
use crate::sink::Sink;
use crate::threads::{no_thread, thread};

/// Bytes of a part of an object, unless there would be more parts than S3 allows (10,000).
const PART: u64 = 16 << 20;
const MAX_PARTS: u64 = 9_000;
/// Requests that are made at the same time.
const AT_ONCE: usize = 4;

/// Writes the objects of a plan below the address `path`.
pub(super) fn write_prefix(
    path: &Path,
    plan: Plan,
    options: &FileOptions<'_>,
    progress: &mut dyn Progress,
) -> Result<RunReport> {
    plan.bounded(options.limits)?;
    let prefix = Prefix::of(path)?;
    for file in &plan.files {
        let len = prefix.key(&file.name).len();
        if len > MAX_KEY {
            return Err(Error::refused(format!(
                "the key of the object {} would have {len} bytes, and S3 allows {MAX_KEY}",
                file.name
            ))
            .advice("Choose a shorter address, or leave the entry out."));
        }
    }
    let replaces = prefix.is_used()?;
    if replaces && options.replace != Replace::Any {
        return Err(Error::refused("there are objects below this address already")
            .coded("exists")
            .advice("Choose another address, or allow replacing the checkpoint there."));
    }
    let metadata = s3::metadata(&plan)?;
    let old = if replaces { prefix.old_objects()? } else { Vec::new() };
    let new: HashSet<String> = plan.files.iter().map(|file| file.name.clone()).collect();
    let (read_back, source) = (ReadBack::of(&plan), plan.source.clone());
    let headers = s3::headers(&metadata)?;
    let mut written =
        WrittenObjects { prefix: &prefix, names: Vec::new(), replaces, warn: options.warn };
    written.names.push(METADATA.to_owned());
    prefix.bucket.put(&prefix.key(METADATA), None, s3::first_metadata(&metadata)?)?;
    let mut files = Vec::new();
    for file in &plan.files {
        files.push((file.name.clone(), file.size(&plan.source)?.bytes()));
    }
    let mut sink = PrefixSink {
        prefix: &prefix,
        headers,
        files: files.clone(),
        open: None,
        sending: VecDeque::new(),
        written: &mut written.names,
    };
    let report = executor::run(plan, &mut sink, progress)?;
    sink.end()?;
    options.check_run(&source, &report)?;
    prefix.bucket.put(&prefix.key(METADATA), None, metadata)?;
    let opened = files.iter().map(|(name, len)| -> Arc<dyn ReadAt> {
        Arc::new(BucketObject::new(&prefix.bucket, prefix.key(name), Some(*len)))
    });
    let mut progress = Finishing { of: progress, bytes: report.bytes };
    read_back.check(opened.collect(), options.limits, &mut progress)?;
    written.names.clear();
    for name in old.iter().filter(|name| !new.contains(*name)) {
        prefix.bucket.delete(&prefix.key(name))?;
    }
    Ok(report)
}

/// The address of a checkpoint.
struct Prefix {
    bucket: Bucket,
    key: String,
}

impl Prefix {
    fn of(path: &Path) -> Result<Self> {
        let text = path.to_string_lossy();
        let split = s3::split(&text).filter(|(bucket, _)| !bucket.is_empty());
        let (bucket, key) = split.ok_or_else(|| Error::refused("this does not name a bucket"))?;
        Ok(Self { bucket: Bucket::open(bucket)?, key: key.to_owned() })
    }

    /// Returns the key of an object.
    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.key)
    }

    /// Returns whether there is any object below the address.
    fn is_used(&self) -> Result<bool> {
        match self.bucket.has_any(&self.key(""))? {
            Some(used) => Ok(used),
            // Users who may not list the bucket can still see whether a checkpoint is there.
            None => Ok(self.bucket.read_start(&self.key(METADATA), 1)?.is_some()),
        }
    }

    /// Returns the names of the objects of the checkpoint that is there.
    fn old_objects(&self) -> Result<Vec<String>> {
        let metadata = self.bucket.read_start(&self.key(METADATA), 1 << 30)?.unwrap_or_default();
        let address = self.bucket.address(&self.key);
        let objects = s3::objects(&metadata, Some(&address)).unwrap_or_default();
        Ok(objects.into_iter().map(|(name, _)| name).collect())
    }
}

/// The objects that a run has written. Unless the list is cleared, they are removed when dropped.
struct WrittenObjects<'a> {
    prefix: &'a Prefix,
    names: Vec<String>,
    replaces: bool,
    warn: fn(&str),
}

impl Drop for WrittenObjects<'_> {
    fn drop(&mut self) {
        if self.names.is_empty() {
            return;
        }
        let address = self.prefix.bucket.address(&self.prefix.key);
        if self.replaces {
            return (self.warn)(&format!(
                "{address}: the checkpoint that was there is replaced in part and can't be loaded; \
                 write it again"
            ));
        }
        // The metadata is last, so that an incomplete upload never passes for a checkpoint.
        for name in self.names.iter().rev() {
            if let Err(error) = self.prefix.bucket.delete(&self.prefix.key(name)) {
                (self.warn)(&format!(
                    "{address}: the objects of the unfinished checkpoint could not be removed: {error}"
                ));
                return;
            }
        }
    }
}

/// A sink that sends each file of a plan as an object, except for the last one.
struct PrefixSink<'a> {
    prefix: &'a Prefix,
    headers: HashMap<String, String>,
    /// Names and lengths.
    files: Vec<(String, u64)>,
    open: Option<OpenObject>,
    sending: VecDeque<JoinHandle<Result<()>>>,
    written: &'a mut Vec<String>,
}

/// An object whose bytes arrive.
struct OpenObject {
    name: String,
    part: usize,
    buffer: Vec<u8>,
    /// The upload in parts, with the number of parts so far; `None` for an object of one request.
    upload: Option<(String, Vec<JoinHandle<Result<String>>>)>,
}

impl PrefixSink<'_> {
    /// Sends the rest of the open object.
    fn close(&mut self) -> Result<()> {
        let Some(mut object) = self.open.take() else { return Ok(()) };
        let (bucket, key) = (self.prefix.bucket.clone(), self.prefix.key(&object.name));
        let header = self.headers.get(&object.name).cloned();
        if object.upload.is_none() {
            let body = object.buffer;
            while self.sending.len() >= AT_ONCE {
                self.sent()?;
            }
            self.written.push(object.name);
            let send = move || bucket.put(&key, header.as_deref(), body);
            self.sending.push_back(thread()?.spawn(send).map_err(no_thread)?);
            return Ok(());
        }
        if !object.buffer.is_empty() {
            self.part(&mut object)?;
        }
        let Some((id, parts)) = object.upload else { return Ok(()) };
        let tags: Result<Vec<String>> = parts.into_iter().map(joined).collect();
        let done = tags.and_then(|tags| bucket.complete(&key, &id, &tags));
        if done.is_err() {
            let _ = bucket.abort(&key, &id);
        }
        self.written.push(object.name);
        done
    }

    /// Sends the buffer of an object as a part.
    fn part(&mut self, object: &mut OpenObject) -> Result<()> {
        let (bucket, key) = (self.prefix.bucket.clone(), self.prefix.key(&object.name));
        if object.upload.is_none() {
            let header = self.headers.get(&object.name).map(String::as_str);
            object.upload = Some((bucket.begin(&key, header)?, Vec::new()));
        }
        let Some((id, parts)) = &mut object.upload else { return Ok(()) };
        let running = parts.iter().filter(|part| !part.is_finished()).count();
        if running >= AT_ONCE
            && let Some(at) = parts.iter().position(|part| !part.is_finished())
        {
            // Waits for one, and keeps its tag.
            let tag = joined(parts.remove(at));
            parts.insert(at, thread()?.spawn(move || tag).map_err(no_thread)?);
        }
        let (number, id) = (parts.len() + 1, id.clone());
        let body = std::mem::take(&mut object.buffer);
        let send = move || bucket.put_part(&key, &id, number, body);
        parts.push(thread()?.spawn(send).map_err(no_thread)?);
        Ok(())
    }

    fn sent(&mut self) -> Result<()> {
        self.sending.pop_front().map_or(Ok(()), joined)
    }

    /// Waits until all objects are there.
    fn end(mut self) -> Result<()> {
        self.close()?;
        while !self.sending.is_empty() {
            self.sent()?;
        }
        Ok(())
    }
}

fn joined<T>(sending: JoinHandle<Result<T>>) -> Result<T> {
    sending.join().map_err(|_| Error::io("a request ended unexpectedly"))?
}

impl Sink for PrefixSink<'_> {
    fn begin(&mut self, index: usize) -> Result<()> {
        self.close()?;
        let (name, len) = self.files.get(index).cloned().unwrap_or_default();
        // The metadata is sent when everything else is there.
        if name == METADATA {
            return Ok(());
        }
        let part = PART.max(len.div_ceil(MAX_PARTS).next_multiple_of(1 << 20));
        let part = usize::try_from(part)
            .map_err(|_| Error::unsupported("the object is too large to be sent in parts"))?;
        self.open = Some(OpenObject { name, part, buffer: Vec::new(), upload: None });
        Ok(())
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        let Some(mut object) = self.open.take() else { return Ok(()) };
        while !bytes.is_empty() {
            // A full buffer is sent once there is more, since one request is enough for one part.
            if object.buffer.len() == object.part
                && let Err(error) = self.part(&mut object)
            {
                self.open = Some(object);
                return Err(error);
            }
            let len = (object.part - object.buffer.len()).min(bytes.len());
            object.buffer.extend_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
        }
        self.open = Some(object);
        Ok(())
    }

    fn patch_head(&mut self, _: &[u8]) -> Result<()> {
        Err(Error::io("an object has no head that is made last").advice("Please report it."))
    }
}

impl Drop for PrefixSink<'_> {
    fn drop(&mut self) {
        for sending in self.sending.drain(..) {
            let _ = joined(sending);
        }
        let Some(OpenObject { name, upload: Some((id, parts)), .. }) = self.open.take() else {
            return;
        };
        // A part that arrives after the upload is aborted would stay.
        parts.into_iter().for_each(|part| drop(joined(part)));
        let _ = self.prefix.bucket.abort(&self.prefix.key(&name), &id);
    }
}
