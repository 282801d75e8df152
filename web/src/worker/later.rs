//! Answers what is asked of a checkpoint only once it has been opened and looked at: what this takes of
//! the program comes in a second file, when the page has started already (xtask/src/split). Nobody but
//! [`super::held`] may let a message through to here.

use std::rc::Rc;

use statelens_checkpoint::Error;
use wasm_bindgen::JsValue;

use crate::messages::get;
use crate::protocol::conversion::Done;
use crate::protocol::family::{FamilyReply, NamedText};
use crate::protocol::job::JobKind;
use crate::protocol::{FromWorker, HANDLE, ToWorker};
use crate::text;
use crate::worker::job::Job;
use crate::worker::session::SharedSession;
use crate::worker::{
    casts, compare, family, looking, planning, private, remote, run, running, share, understanding,
    verify, weights,
};

/// Keys beyond which files are not planned at once.
const AT_ONCE: u64 = 20_000;
/// Milliseconds that planning the files of so many keys waits for the next edit.
const PAUSE: u32 = 1_000;

/// Answers a message that is not among the first.
#[inline(never)]
pub(super) fn answer(session: &SharedSession, job: &Job, message: ToWorker, data: &JsValue) {
    match message {
        ToWorker::OpenLink { fragment } => match share::open(&fragment) {
            Ok((summary, opened)) => {
                session.borrow_mut().share(summary);
                job.post(&FromWorker::Opened(Box::new(opened)));
            }
            Err(error) => job.post(&FromWorker::OpenFailed(*error)),
        },
        ToWorker::Share { options } => {
            if let Some(summary) = session.borrow_mut().summary() {
                job.post(&FromWorker::Shared(Box::new(summary.shared(options))));
            }
        }
        ToWorker::Measure { go: false } => session.borrow().jobs.stop(JobKind::Measure),
        ToWorker::Measure { go: true } => measure(session, job.clone()),
        ToWorker::Summarize { kind } => {
            if let Some(summary) = session.borrow_mut().summary() {
                let (name, text) = summary.file(kind);
                job.post(&FromWorker::Summary { name, text });
            }
        }
        ToWorker::Plan { request, options } => {
            let Some(open) = session.borrow().open.clone() else { return };
            let wanted = match options.rewrite {
                None => session.borrow().wants_config(&open, &options.family),
                Some(_) => None,
            };
            if let (Some(name), Some(server)) = (wanted, open.sources.server().cloned()) {
                let plan = ToWorker::Plan { request, options };
                if !session.borrow_mut().awaits_config(job, plan) {
                    return;
                }
                let (weak, job) = (Rc::downgrade(session), job.clone());
                return job.clone().spawn(async move {
                    let bytes = remote::beside(&server, name, family::MOST_CONFIG, &job).await;
                    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
                    if let Some(session) = weak.upgrade() {
                        let config = text.map(|text| NamedText { name: name.to_owned(), text });
                        let waiting = session.borrow_mut().take_config(config);
                        if let Some((job, plan)) = waiting.map(|waiting| *waiting) {
                            answer(&session, &job, plan, &JsValue::NULL);
                        }
                    }
                });
            }
            let found = match options.rewrite {
                None => match session.borrow_mut().family(&open, &options.family) {
                    Ok(found) => Some(found),
                    Err(wanted) => return job.post(&FromWorker::Wants(wanted)),
                },
                Some(_) => None,
            };
            let target = options.family.target.as_ref();
            let (ready, shown) = match found.as_ref().zip(target) {
                Some((found, target)) => {
                    let (ready, shown) = family::table(&options, target, found);
                    (Some(ready), Some(shown))
                }
                None => (None, None),
            };
            let told = |found: &Rc<family::ConversionInputs>| {
                Box::new(FamilyReply { looks: found.looks.clone(), shown })
            };
            job.post(&FromWorker::Family { request, family: found.as_ref().map(told) });
            let large = matches!(&ready, Some(Ok(ready)) if ready.keys() > AT_ONCE);
            let (weak, own) = (Rc::downgrade(session), job.clone());
            let values = session.borrow().found.clone();
            let plan = move || {
                let mut made = match (ready, &found) {
                    (Some(ready), Some(found)) => {
                        ready.and_then(|ready| family::plan(&open, &options, ready, found, &own))
                    }
                    _ => family::plain(&open, &options, found.as_deref(), &own),
                };
                if let Ok((made, planned)) = &mut made {
                    planned.notes.extend(casts::ranges(&open.checkpoint, made, &values.borrow()));
                }
                let (made, plan) = match made {
                    Ok((made, planned)) => (Some((request, made)), Ok(planned)),
                    Err(error) => (None, Err(text::error(&error))),
                };
                if let Some(session) = weak.upgrade() {
                    session.borrow_mut().plan = made;
                    own.post(&FromWorker::Planned { request, plan });
                }
            };
            if !large {
                return plan();
            }
            // Planning files of very many keys takes seconds in which no message is heard: whoever
            // edits a rule sees the table meanwhile, and the next edit takes the place of this one.
            session.borrow_mut().plan = None;
            let job = job.clone();
            job.clone().spawn(async move {
                gloo_timers::future::TimeoutFuture::new(PAUSE).await;
                if job.check().is_ok() {
                    plan();
                }
            });
        }
        ToWorker::Run { request, sink, falsify } => {
            let session = session.borrow();
            let plan = session.plan.clone().filter(|(made, _)| *made == request);
            let Some(((_, made), open)) = plan.zip(session.open.clone()) else {
                let error = Error::refused("another plan was made since");
                return job.post(&FromWorker::Stopped { error: Some(text::error(&error)) });
            };
            let (job, handle) = (job.clone(), get(data, HANDLE));
            // How much it takes was agreed to when the plan was.
            job.agrees_to_all();
            job.clone().spawn(async move {
                let planning::PlannedOutput { plan, more, texts } = made;
                let run = |plan| {
                    let handle = handle.clone();
                    let tell: running::TellRunning = |job, now| job.post(&FromWorker::Running(now));
                    let job = (&job, tell);
                    running::run(plan, &open.sources, sink, handle, falsify, &open.limits, job)
                };
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
                            // What was written before it is not handed over, and nobody else removes it.
                            private::remove_all(files).await;
                            ran = Err(error);
                        }
                    }
                }
                match ran {
                    Ok((done, files)) => {
                        job.post_with(&FromWorker::Done(Done { texts, ..done }), &files);
                    }
                    Err(error) => job.post(&FromWorker::Stopped { error: text::failure(&error) }),
                }
            });
        }
        ToWorker::Cancel => session.borrow().jobs.stop(JobKind::Write),
        ToWorker::Compare(ask) => compare::answer(session, job.clone(), ask, data),
        ToWorker::Verify(finite) => verify::answer(session, job.clone(), finite, data),
        ToWorker::Weights(ask) => weights::answer(session, job.clone(), ask),
        ToWorker::Looking(ask) => looking::answer(session, job.clone(), ask),
        ToWorker::Understand(fetch) => understanding::answer(session, job.clone(), fetch),
        ToWorker::RunValues { asked, .. } if asked.is_empty() => {
            session.borrow().jobs.stop(JobKind::Scan);
        }
        ToWorker::RunValues { files, asked } => run::values(job.clone(), files, asked, data),
        ToWorker::Provide(files) => session.borrow_mut().provide(files),
        ToWorker::OpenAddress { .. }
        | ToWorker::Allow { .. }
        | ToWorker::Open { .. }
        | ToWorker::Inspect { .. }
        | ToWorker::Values { .. }
        | ToWorker::Look { .. }
        | ToWorker::Close => {}
    }
}

/// Reads all values, beside messages.
fn measure(session: &SharedSession, job: Job) {
    let Some(open) = session.borrow().open.clone() else { return };
    let session = Rc::downgrade(session);
    job.clone().spawn(async move {
        let measured = share::MadeSummary::measured(&open, &job).await;
        job.post(&FromWorker::Measured(match measured {
            Ok(summary) => {
                // Else another one is open by now.
                if let Some(session) = session.upgrade() {
                    session.borrow_mut().share(summary);
                }
                Ok(true)
            }
            Err(error) => text::failure(&error).map_or(Ok(false), Err),
        }));
        open.tell_fetched(&job);
    });
}
