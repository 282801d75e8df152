//! An assistant: a worker that processes parts of the passes of the worker of the page
//! (`worker/pool.rs`).

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use serde_bytes::ByteBuf;
use statelens_checkpoint::{Error, Result, TensorId};
use statelens_compare::diff::Comparison;
use statelens_compare::verify::Verification;
use statelens_tensor::{InOrder, Machine as _};
use statelens_values::weights::Survey;
use wasm_bindgen::prelude::*;
use web_sys::{File, MessageEvent};

use crate::messages::{envelope, message};
use crate::protocol::assist::{AssistedPass, AssistedSide, FromAssistant, ToAssistant};
use crate::protocol::job::JobKind;
use crate::worker::job::{Job, Jobs};
use crate::worker::native_hashes::{MAX_WAITING, NativeHashes};
use crate::worker::opened::OpenCheckpoint;
use crate::worker::port::{files_of, scope};
use crate::worker::reading::Driver;
use crate::worker::shared_work::SharedWork;
use crate::{compare, open, scan, verify};

/// A pass, and the checkpoints that it reads.
struct Assistant {
    sides: Vec<OpenCheckpoint>,
    pass: Pass,
    job: Job,
    /// Dropping it would stop the job.
    _jobs: Jobs,
}

enum Pass {
    Scan(Box<Survey>),
    Verify(Box<Verification>),
    Compare(Box<Comparison>),
}

/// Starts the assistant.
pub(crate) fn start() {
    let current: Rc<RefCell<Option<Rc<Assistant>>>> = Rc::default();
    let receive = Closure::<dyn FnMut(MessageEvent)>::new(move |event: MessageEvent| {
        let data = event.data();
        match message(&data) {
            Ok(ToAssistant::Begin { sides, pass }) => {
                let begun = Assistant::begin(&sides, pass, files_of(&data));
                current.replace(begun.ok().map(Rc::new));
            }
            Ok(ToAssistant::Parts(from, end)) => match current.borrow().clone() {
                Some(assistant) => {
                    let parts = from as usize..end as usize;
                    assistant.job.clone().spawn(async move {
                        post(&assistant.process(parts).await.unwrap_or(FromAssistant::Failed));
                    });
                }
                None => post(&FromAssistant::Failed),
            },
            Err(error) => wasm_bindgen::throw_val(error),
        }
    });
    scope().set_onmessage(Some(receive.as_ref().unchecked_ref()));
    // The listener lives as long as the assistant.
    receive.forget();
    post(&FromAssistant::Loaded);
}

fn post(message: &FromAssistant) {
    match envelope(message) {
        // Messages are plain values, so cloning them can't fail.
        Ok(envelope) => drop(scope().post_message(&envelope)),
        Err(error) => wasm_bindgen::throw_val(error),
    }
}

impl Assistant {
    fn begin(sides: &[AssistedSide], pass: AssistedPass, files: Vec<File>) -> Result<Self> {
        let mut files = files.into_iter();
        let sides = sides
            .iter()
            .map(|side| open::worker::reopen(side, files.by_ref().take(side.files.len()).collect()))
            .collect::<Result<Vec<_>>>()?;
        let pass = match (pass, sides.as_slice()) {
            (AssistedPass::Scan(tensors), [open, ..]) => Pass::Scan(Box::new(
                scan::worker::survey(open, tensors.into_iter().map(TensorId).collect()),
            )),
            (AssistedPass::Verify, [open, ..]) => {
                Pass::Verify(Box::new(verify::worker::verification(&open.stored())?))
            }
            (AssistedPass::Compare(options), [left, right]) => {
                Pass::Compare(Box::new(compare::worker::comparison(left, right, &options)?))
            }
            _ => return Err(Error::refused("a pass reads a checkpoint")),
        };
        let mut jobs = Jobs::of(0);
        let job = jobs.begin(0, JobKind::Scan);
        Ok(Self { sides, pass, job, _jobs: jobs })
    }

    /// Processes parts; `None` if the result of one can't be sent.
    async fn process(&self, parts: Range<usize>) -> Option<FromAssistant> {
        let from = parts.start as u32;
        let progress = |bytes| post(&FromAssistant::Progress { from, bytes });
        let sources: Vec<_> = self.sides.iter().map(|side| &side.sources).collect();
        let mut driver = Driver::new(&sources, &self.job);
        let mut native = None;
        let found = match &self.pass {
            Pass::Scan(survey) => {
                results(survey, parts, &mut driver, progress, &mut native, |_| None).await
            }
            Pass::Verify(verification) => {
                native = NativeHashes::new();
                let hashed = |part| verification.work().hashed_outside(part);
                results(verification, parts, &mut driver, progress, &mut native, hashed).await
            }
            Pass::Compare(comparison) => {
                results(comparison, parts, &mut driver, progress, &mut native, |_| None).await
            }
        };
        driver.close().await;
        let (found, mut hashes) = found?;
        if let Some(native) = &mut native {
            hashes.extend(native.settle(0).await.ok()?);
        }
        let hashes = hashes.into_iter().map(|(TensorId(id), hash)| (id, hash)).collect();
        Some(FromAssistant::Parts { from, found, hashes })
    }
}

/// The packed results of parts, and hashes that the browser has computed.
type Results = (Vec<ByteBuf>, Vec<(TensorId, String)>);

/// Processes parts. `progress` is called four times a second with the number of bytes processed.
/// `native` computes the SHA-256 of the tensors that `hashed` returns for a part.
async fn results<W: SharedWork>(
    machine: &InOrder<W>,
    parts: Range<usize>,
    driver: &mut Driver<'_>,
    progress: impl Fn(u64),
    native: &mut Option<NativeHashes>,
    hashed: impl Fn(usize) -> Option<(TensorId, u64)>,
) -> Option<Results> {
    let work = machine.work();
    let (mut found, mut hashes, mut done) = (Vec::new(), Vec::new(), 0_u64);
    for part in parts {
        let mut begun = work.begin(part).ok()?;
        if let Some(machine) = &mut begun {
            let tap = async |_: &mut W::Part, bytes: &[u8]| {
                let Some((native, (tensor, size))) = native.as_mut().zip(hashed(part)) else {
                    return Ok(());
                };
                native.feed(tensor, size, bytes)?;
                hashes.extend(native.settle(MAX_WAITING).await?);
                Ok(())
            };
            let each = async |machine: &mut W::Part, is_due: bool| {
                if is_due {
                    progress(done.saturating_add(machine.progress().0.min(work.size(part))));
                }
                Ok(())
            };
            driver.drive_tapped(machine, tap, each).await.ok()?;
        }
        found.push(ByteBuf::from(W::pack(work.end(part, begun, Ok(())))?));
        done = done.saturating_add(work.size(part));
    }
    Some((found, hashes))
}
