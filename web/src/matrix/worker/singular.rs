//! The singular values of a matrix.

use statelens_checkpoint::{Error, Result};
use statelens_tensor::Machine as _;
use statelens_values::singular::{
    Singular, SingularPlan, Spectrum, USUALLY_LARGEST, Which, plan_text, practise, spectrum_chart,
    spectrum_csv, spectrum_facts,
};
use wasm_bindgen::JsValue;

use crate::matrix::message::MatrixSelection;
use crate::matrix::message::singular::{SingularOffer, SingularReport, SingularRequest};
use crate::worker::job::Job;
use crate::worker::opened::OpenCheckpoint;
use crate::worker::port::now;
use crate::worker::reading::drive;
use crate::worker::selection::tensor;
use crate::worker::session::SharedSession;
use crate::worker::task::Task;

/// Maximum number of bytes of memory to use: a page does not have much.
const MEMORY: u64 = 400 << 20;
/// Milliseconds spent on measuring the speed.
const SPEED_TEST: f64 = 8.0;

/// Size of the picture, which is as wide as the panel next to the matrix.
const WIDTH: u32 = 268;
const HEIGHT: u32 = 210;

/// Computes the singular values of a matrix: all, or only the largest.
pub(crate) fn start(session: &SharedSession, job: Job, request: SingularRequest, _: &JsValue) {
    let Some(open) = session.borrow().open.clone() else { return };
    let SingularRequest { selection, all } = request;
    Task::start(open, job, async move |task| find(task, &selection, all).await);
}

/// Offers all singular values if possible, and the largest if those are fewer.
pub(crate) fn offers(open: &OpenCheckpoint, selection: &MatrixSelection) -> Vec<SingularOffer> {
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

async fn find(task: &Task, selection: &MatrixSelection, all: bool) -> Result<SingularReport> {
    let open = &task.open;
    let (tensor, matrix) = tensor(open, selection)?;
    let which = match all {
        true => Which::All,
        false => Which::Largest(USUALLY_LARGEST),
    };
    let plan = SingularPlan::new(&tensor.dtype, matrix, which, MEMORY)?;
    let mut machine = Singular::new(&open.checkpoint.files, &tensor, matrix, plan)?;
    let title = title(open, selection);
    let mut passes = 0;
    drive(&mut machine, &[&open.sources], &task.job, |machine, time| {
        let found = machine.found().filter(|found| found.passes != passes);
        passes = found.map_or(passes, |found| found.passes);
        if time || found.is_some() {
            if let Some(found) = found {
                task.post_partial(report(found, &title));
            }
            task.progress(machine.progress());
        }
    })
    .await?;
    let found = machine.found().map(|found| report(found, &title));
    found.ok_or_else(|| Error::refused("there are no singular values"))
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
