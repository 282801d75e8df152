//! Plans conversions and runs them.

pub mod check;
pub mod running;
pub mod sink;

use std::rc::Rc;

use statelens_checkpoint::Error;
use wasm_bindgen::JsValue;

use crate::convert::message::{ConversionResult, ConvertOptions, WriteMethod, WriteRequest};
use crate::family::message::{FamilyReply, NamedText};
use crate::family::worker::FamilyState;
use crate::messages::get;
use crate::protocol::{FromWorker, HANDLE};
use crate::worker::job::Job;
use crate::worker::session::SharedSession;
use crate::worker::task::Task;
use crate::worker::{outputs, private, remote};
use crate::{convert, family, plan, quantised, repair, text};

/// The number of keys above which planning waits for [`DEBOUNCE`].
const DEBOUNCE_ABOVE: u64 = 20_000;
/// Milliseconds to wait for the next edit before planning a file with very many keys.
const DEBOUNCE: u32 = 1_000;

/// The last plan, and the request that it answers.
#[derive(Default)]
struct LatestPlan(Option<(u32, plan::worker::PlannedOutput)>);

/// Plans a conversion and posts the plan. For a remote model it fetches the config next to it
/// first.
pub(crate) fn plan(session: &SharedSession, job: &Job, request: u32, options: Box<ConvertOptions>) {
    let Some(shown) = session.borrow().open.clone() else { return };
    let open = shown.stored();
    let wanted = match options.rewrite {
        None => session
            .borrow_mut()
            .kept(|model: &mut FamilyState| model.config_to_fetch(&open, &options.family)),
        Some(_) => None,
    };
    if let (Some(name), Some(server)) = (wanted, open.sources.server().cloned()) {
        let waiting = (request, options);
        let first =
            session.borrow_mut().kept(|model: &mut FamilyState| model.defer_plan(job, waiting));
        if !first {
            return;
        }
        let (weak, job) = (Rc::downgrade(session), job.clone());
        return job.clone().spawn(async move {
            let bytes =
                remote::fetch_sibling(&server, name, family::worker::MAX_CONFIG_SIZE, &job).await;
            let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
            if let Some(session) = weak.upgrade() {
                let config = text.map(|text| NamedText { name: name.to_owned(), text });
                let waiting =
                    session.borrow_mut().kept(|model: &mut FamilyState| model.take_config(config));
                if let Some((job, (request, options))) = waiting {
                    plan(&session, &job, request, options);
                }
            }
        });
    }
    let found = match options.rewrite {
        None => match session
            .borrow_mut()
            .kept(|model: &mut FamilyState| model.recognise(&open, &options.family))
        {
            Ok(found) => Some(found),
            Err(wanted) => return job.post(&FromWorker::FilesNeeded(wanted)),
        },
        Some(_) => None,
    };
    // Only conversions that keep the names split stacked layers and write numbers.
    let is_plain = options.family.target.is_none() && options.rewrite.is_none();
    let (unstack, dtype) = (options.unstack && is_plain, options.dequantize.clone());
    let dtype = dtype.filter(|_| is_plain);
    let prepared = quantised::worker::prepared(&shown, unstack, dtype.as_deref());
    let (open, done) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            let plan = Err(text::error(&error));
            return job.post(&FromWorker::Planned { request, plan });
        }
    };
    let mut options = options;
    if dtype.is_none() {
        // A weight is written as the tensors that it is stored as.
        let keys = options.select.iter().flat_map(|key| shown.weights.stored_keys(key));
        options.select = keys.collect();
    }
    let target = options.family.target.as_ref();
    let (ready, shown) = match found.as_ref().zip(target) {
        Some((found, target)) => {
            let (ready, shown) = family::worker::table(&options, target, found);
            (Some(ready), Some(shown))
        }
        None => (None, None),
    };
    let reply = |found: &Rc<family::worker::ConversionInputs>| {
        Box::new(FamilyReply { recognised: found.recognised.clone(), shown })
    };
    job.post(&FromWorker::Family { request, family: found.as_ref().map(reply) });
    let large = matches!(&ready, Some(Ok(ready)) if ready.keys() > DEBOUNCE_ABOVE);
    let (weak, own) = (Rc::downgrade(session), job.clone());
    let values = session.borrow().found.clone();
    let make = move || {
        let mut output = match (ready, &found, &options.rewrite) {
            (_, _, Some(rewrite)) => repair::worker::plan(&open, rewrite, &options, &own)
                .map(|(plan, planned)| (plan.into(), planned)),
            (Some(ready), Some(found), None) => {
                ready.and_then(|ready| family::worker::plan(&open, &options, ready, found, &own))
            }
            _ => family::worker::plain(&open, &options, found.as_deref(), &own),
        };
        if let Ok((output, planned)) = &mut output {
            planned.notes.extend(done);
            if dtype.is_some() {
                output.texts.extend(quantised::worker::config(&open.checkpoint.files));
            }
            planned.notes.extend(plan::worker::casts::ranges(
                &open.checkpoint,
                output,
                &values.borrow(),
            ));
        }
        let (output, plan) = match output {
            Ok((output, planned)) => (Some((request, output)), Ok(planned)),
            Err(error) => (None, Err(text::error(&error))),
        };
        if let Some(session) = weak.upgrade() {
            session.borrow_mut().kept(|latest: &mut LatestPlan| latest.0 = output);
            own.post(&FromWorker::Planned { request, plan });
        }
    };
    if !large {
        return make();
    }
    // Planning a file with very many keys takes seconds, in which the worker receives no messages.
    // The page has the table of rules meanwhile; if a rule is edited during the pause, the next
    // request replaces this one.
    session.borrow_mut().kept(|latest: &mut LatestPlan| latest.0 = None);
    let job = job.clone();
    job.clone().spawn(async move {
        gloo_timers::future::TimeoutFuture::new(DEBOUNCE).await;
        if job.check().is_ok() {
            make();
        }
    });
}

/// Writes the files of the plan that was made for `request`.
pub(crate) fn run(session: &SharedSession, job: Job, request: WriteRequest, data: &JsValue) {
    let WriteRequest { request, sink, falsify } = request;
    let plan = session.borrow_mut().kept(|latest: &mut LatestPlan| latest.0.clone());
    let plan = plan.filter(|(output, _)| *output == request);
    let Some(((_, output), open)) = plan.zip(session.borrow().open.clone()) else {
        let error = Error::refused("a newer plan has replaced this one");
        return job.post(&FromWorker::Failed(job.kind(), Some(text::error(&error))));
    };
    let handle = get(data, HANDLE);
    // The user agreed to the number of bytes with the plan.
    job.agrees_to_all();
    Task::start(open, job, async move |task: &Task| {
        let plan::worker::PlannedOutput { plan, more, texts } = output;
        let run = |plan| convert::worker::running::run(plan, task, sink, handle.clone(), falsify);
        let mut ran = run(plan).await;
        for plan in more {
            let Ok((done, files)) = &mut ran else { break };
            match run(plan).await {
                Ok((more, own)) => {
                    done.names.extend(more.names);
                    done.bytes += more.bytes;
                    done.casts.extend(more.casts);
                    done.millis += more.millis;
                    own.iter().for_each(|file| _ = files.push(&file));
                }
                Err(error) => {
                    // The files written so far are not handed over: remove them here.
                    private::remove_all(files).await;
                    ran = Err(error);
                }
            }
        }
        let (done, files) = ran?;
        if done.method == WriteMethod::Private {
            let bytes = outputs::add(&files, &done.names);
            task.job.post(&FromWorker::KeptOutputs(bytes));
        }
        task.attach(files);
        Ok(ConversionResult { texts, ..done })
    });
}
