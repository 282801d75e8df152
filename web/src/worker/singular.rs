//! The singular values of a matrix.

use statelens_checkpoint::Result;
use statelens_inspect::singular::{plan_text, spectrum_chart, spectrum_csv, spectrum_facts};
use statelens_stats::singular::{
    Singular, SingularPlan, Spectrum, USUALLY_LARGEST, Which, practise,
};
use statelens_tensor::Machine as _;

use crate::protocol::FromWorker;
use crate::protocol::job::JobKind;
use crate::protocol::matrix::{MatrixReply, MatrixSelection};
use crate::protocol::singular::{SingularOffer, SingularReply, SingularReport, SingularRequest};
use crate::text;
use crate::worker::job::Job;
use crate::worker::now;
use crate::worker::opened::OpenCheckpoint;
use crate::worker::reading::drive;
use crate::worker::selection::tensor;
use crate::worker::session::SharedSession;

/// Maximum number of bytes of memory to use: a page does not have much.
const MEMORY: u64 = 400 << 20;
/// Milliseconds spent on measuring the speed.
const SPEED_TEST: f64 = 8.0;

/// Size of the picture, which is as wide as the panel next to the matrix.
const WIDTH: u32 = 268;
const HEIGHT: u32 = 210;

/// Handles a request of the page.
pub(super) fn handle_request(session: &SharedSession, job: Job, request: SingularRequest) {
    if request == SingularRequest::Find(None) {
        return session.borrow().jobs.stop(JobKind::Singular);
    }
    let Some(open) = session.borrow().open.clone() else { return };
    match request {
        SingularRequest::Find(None) => {}
        SingularRequest::Offers(selection) => {
            let offers = offers(&open, &selection);
            post_reply(&job, &selection, SingularReply::Offers(offers));
        }
        SingularRequest::Find(Some((selection, all))) => job.clone().spawn(async move {
            let reply = match find(&open, &selection, all, &job).await {
                Ok(()) => Some(SingularReply::Ended),
                Err(error) => {
                    text::failure(&error).map(SingularReply::Failed).or(Some(SingularReply::Ended))
                }
            };
            if let Some(reply) = reply {
                post_reply(&job, &selection, reply);
            }
            open.report_fetched(&job);
        }),
    }
}

fn post_reply(job: &Job, selection: &MatrixSelection, reply: SingularReply) {
    job.post(&FromWorker::Matrix(MatrixReply::Singular(selection.clone(), reply)));
}

/// Offers all singular values if possible, and the largest if those are fewer.
fn offers(open: &OpenCheckpoint, selection: &MatrixSelection) -> Vec<SingularOffer> {
    let Ok((tensor, matrix)) = tensor(open, selection) else { return Vec::new() };
    if matrix.rows().min(matrix.columns) < 2 || selection.fold.is_some() {
        return Vec::new();
    }
    let speed = speed();
    let offers = [Which::All, Which::Largest(USUALLY_LARGEST)];
    let mut offers: Vec<SingularOffer> = offers
        .into_iter()
        .filter_map(|which| SingularPlan::new(&tensor.dtype, matrix, which, MEMORY).ok())
        .map(|plan| SingularOffer {
            all: plan.largest.is_none(),
            count: plan.largest.map_or(plan.rows.min(plan.columns), u64::from),
            text: plan_text(&plan),
            seconds: plan.operations as f64 / speed / 1000.0,
        })
        .collect();
    offers.dedup_by_key(|offer| offer.all);
    offers
}

/// Measures the number of operations per millisecond.
fn speed() -> f64 {
    let (began, mut done) = (now(), 0u64);
    loop {
        done += practise();
        let spent = now() - began;
        if spent >= SPEED_TEST {
            return done as f64 / spent;
        }
    }
}

async fn find(
    open: &OpenCheckpoint,
    selection: &MatrixSelection,
    all: bool,
    job: &Job,
) -> Result<()> {
    let (tensor, matrix) = tensor(open, selection)?;
    let which = match all {
        true => Which::All,
        false => Which::Largest(USUALLY_LARGEST),
    };
    let plan = SingularPlan::new(&tensor.dtype, matrix, which, MEMORY)?;
    let mut machine = Singular::new(&open.checkpoint.files, &tensor, matrix, plan)?;
    let title = title(open, selection);
    let mut passes = 0;
    drive(&mut machine, &[&open.sources], job, |machine, time| {
        let found = machine.found().filter(|found| found.passes != passes);
        if let Some(found) = found {
            passes = found.passes;
            post_reply(job, selection, SingularReply::Found(Box::new(report(found, &title))));
        }
        if time {
            let (done, total) = machine.progress();
            post_reply(job, selection, SingularReply::Progress(done as f64 / total.max(1) as f64));
            open.report_fetched(job);
        }
    })
    .await
}

fn title(open: &OpenCheckpoint, selection: &MatrixSelection) -> String {
    let key = open.leaves.get(selection.row as usize).map(|leaf| leaf.flat.to_lossy().into_owned());
    let (key, slice) = (key.unwrap_or_default(), &selection.slice);
    if slice.is_empty() { key } else { format!("{key}[{slice}]") }
}

fn report(of: &Spectrum, title: &str) -> SingularReport {
    let facts = spectrum_facts(of).into_iter();
    let line = spectrum_chart(of, title);
    SingularReport {
        facts: facts.map(|(name, text)| (name.to_owned(), text)).collect(),
        svg: line.svg(WIDTH, HEIGHT),
        csv: spectrum_csv(of),
    }
}
