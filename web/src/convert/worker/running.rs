//! Runs a plan: feeds it from streams, writes its output, reports progress, and stops on request.

use std::collections::HashMap;

use statelens_checkpoint::{Error, Plan, Result, Segment, Span, TensorId};
use statelens_compare::ReadBack;
use statelens_convert::{Making, Run, Step, TensorWriter, composable};
use statelens_tensor::{Machine as _, Pour};
use wasm_bindgen::prelude::*;

use crate::convert::message::{self, ConversionResult};
use crate::convert::worker::sink::{OutputSink, check_room};
use crate::protocol::task::JobProgress;
use crate::worker::port::now;
use crate::worker::private;
use crate::worker::reading::Driver;
use crate::worker::task::Task;
use crate::{convert, plan, text};

/// Runs a plan that reads the checkpoint of a task. Returns a report, and the finished files.
///
/// # Errors
/// Errors of the core or the browser, cancellation by the user, and, unless `falsify`, casts that
/// did more than round. Then no files are left behind.
pub(crate) async fn run(
    plan: Plan,
    task: &Task,
    to: message::SaveTo,
    handle: JsValue,
    falsify: bool,
) -> Result<(ConversionResult, js_sys::Array)> {
    let (sources, job, limits) = (&task.open.sources, &task.job, &task.open.limits);
    let began = now();
    let local = sources.server().is_none();
    let compose = composable(&plan) && to == message::SaveTo::Download && local;
    let names: Vec<String> = plan.files.iter().map(|file| file.name.clone()).collect();
    let mut sinks = OutputFiles { to, compose, handle, sinks: Vec::new() };
    let keys = KeysByProgress::new(&plan);
    let size = plan.size()?.bytes();
    let planned = plan.source.clone();
    let expected = ReadBack::of(&plan);
    let mut writing = WritingRun {
        run: Run::new(plan, compose)?,
        driver: Driver::new(&[sources], job),
        updates: WriteUpdates { task, began, keys },
    };
    // Written pieces of a download are private files.
    let room = match to {
        message::SaveTo::Download if !compose => check_room(size).await,
        _ => Ok(()),
    };
    let ran = match room {
        Ok(()) => writing.all(&mut sinks).await,
        Err(error) => Err(error),
    };
    writing.driver.close().await;
    let ran = ran.and_then(|()| match falsify {
        true => Ok(()),
        false => plan::worker::casts::refuse_lossy(&planned, writing.run.report()),
    });
    let blobs = js_sys::Array::new();
    let mut done = ConversionResult {
        names,
        texts: Vec::new(),
        bytes: 0,
        millis: 0.0,
        method: message::WriteMethod::Composed,
        casts: plan::worker::casts::lines(writing.run.report()),
        read_back: None,
    };
    let kept: Vec<String> = sinks.sinks.iter().filter_map(OutputSink::private_name).collect();
    let mut ended = ran;
    for sink in sinks.sinks {
        // If one file can't be finished, none is kept.
        if ended.is_err() {
            sink.discard().await;
            continue;
        }
        ended = sink.finish(sources).await.map(|(blob, method)| {
            done.bytes += blob.size() as u64;
            done.method = method;
            blobs.push(&blob);
        });
    }
    if ended.is_ok() {
        done.millis = now() - began;
        // The limits are those that the source was opened with.
        ended = convert::worker::check::read_back(&expected, &blobs, limits);
        if let (Err(error), message::WriteMethod::Saved) = (&ended, done.method) {
            // The browser has already saved the file where the user chose, so the error can only be
            // reported.
            done.read_back = Some(text::error(error));
            ended = Ok(());
        }
        // If the job was stopped meanwhile, nothing may be left behind.
        ended = ended.and_then(|()| job.check());
    }
    match ended {
        Ok(()) => Ok((done, blobs)),
        Err(error) => {
            for name in kept {
                private::remove(&name).await;
            }
            Err(error)
        }
    }
}

/// The files begun so far; the last one is being written.
struct OutputFiles {
    to: message::SaveTo,
    compose: bool,
    handle: JsValue,
    sinks: Vec<OutputSink>,
}

impl OutputFiles {
    async fn begin(&mut self) -> Result<()> {
        if let Some(last) = self.sinks.last_mut() {
            last.flush(true).await?;
        }
        self.sinks.push(match self.to {
            message::SaveTo::Download if self.compose => OutputSink::composed(),
            message::SaveTo::Download => OutputSink::private().await?,
            message::SaveTo::Handle if !self.sinks.is_empty() => {
                return Err(Error::refused("several files have the same name"));
            }
            message::SaveTo::Handle => OutputSink::chosen(self.handle.clone()).await?,
        });
        Ok(())
    }

    fn current(&mut self) -> Result<&mut OutputSink> {
        self.sinks
            .last_mut()
            .ok_or_else(|| Error::io("bytes arrived before their file was created"))
    }
}

struct WritingRun<'a> {
    run: Run,
    driver: Driver<'a>,
    updates: WriteUpdates<'a>,
}

impl WritingRun<'_> {
    async fn all(&mut self, sinks: &mut OutputFiles) -> Result<()> {
        let Self { run, driver, updates } = self;
        while let Some(step) = run.next_step()? {
            updates.task.job.check()?;
            let (done, total) = run.progress();
            updates.post_progress(done, total, driver.yield_if_due().await);
            match step {
                Step::Begin(_) => sinks.begin().await?,
                Step::Bytes(bytes) => sinks.current()?.write(&bytes),
                Step::Copy(span) if sinks.current()?.add_slice(span) => {}
                Step::Copy(span) => {
                    let sink = sinks.current()?;
                    let mut copied = 0;
                    while copied < span.len {
                        let (offset, len) = (span.offset + copied, span.len - copied);
                        let rest = Span { offset, len, ..span };
                        let piece = driver.piece(0, run.files(), rest).await?;
                        sink.write(&piece);
                        copied += piece.len() as u64;
                        sink.flush(false).await?;
                        updates.task.job.check()?;
                        updates.post_progress(done + copied, total, driver.yield_if_due().await);
                    }
                }
                Step::Make(make) => {
                    let mut machine = make.all(TensorWriter { run, file: sinks.current()? })?;
                    let each = async |making: &mut Pour<Making<TensorWriter<'_, OutputSink>>>,
                                      is_due: bool| {
                        making.into.to.file.flush(false).await?;
                        updates.post_progress(done + making.progress().0, total, is_due);
                        Ok(())
                    };
                    driver.drive(&mut machine, each).await?;
                    let cast = machine.cast_report();
                    machine.into.end()?.run.made(cast);
                }
                Step::Head(head) => sinks.current()?.patch_head(&head).await?,
            }
            sinks.current()?.flush(false).await?;
        }
        Ok(())
    }
}

/// Reports progress, with the key being written.
struct WriteUpdates<'a> {
    task: &'a Task,
    began: f64,
    keys: KeysByProgress,
}

impl WriteUpdates<'_> {
    fn post_progress(&self, done: u64, total: u64, now_is_the_time: bool) {
        if !now_is_the_time {
            return;
        }
        let (millis, key) = (now() - self.began, self.keys.at(done));
        self.task.post_progress(JobProgress { done, total, millis, key });
    }
}

/// Looks up the key being written by the number of bytes done.
struct KeysByProgress {
    ends: Vec<(u64, TensorId)>,
    names: HashMap<TensorId, String>,
}

impl KeysByProgress {
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
