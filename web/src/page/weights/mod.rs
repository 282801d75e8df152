//! The values of tensors: all of them are read on demand, those of one while it is looked at.

mod cells;
mod finding;
mod gauge;
mod goto;
mod histogram;
mod statistics;

use std::rc::Rc;

use yew::prelude::*;

use crate::page::actor::Actor;
use crate::page::model::{Action, Model};
use crate::protocol::weights::{Ask, Scanned, TensorValues, Told};
use crate::protocol::{ErrorText, Inspected, Running, ToWorker};
use crate::state::work::Work;

pub use cells::{cells, columns, folded, values_line};
pub use finding::{article, nothing};
pub use gauge::{scan_button, status};
pub use goto::GoTo;
pub use statistics::{StatisticsProps, StatisticsSection};

/// A tensor of so many bytes is read while it is looked at; a larger one on demand.
const BY_ITSELF: u64 = 1_000_000_000;

/// What is read of values, and what was.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Instrument {
    /// Reading all tensors.
    pub scan: Scan,
    /// Reading the one that is looked at.
    pub one: Option<One>,
    /// Bytes that are read in a millisecond, once that was measured.
    pub rate: Option<f64>,
    /// The value that is stood before: its row and its number.
    pub at: Option<(u32, u64)>,
}

/// How far reading all tensors is.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Scan {
    /// Not asked for.
    #[default]
    No,
    /// The last that the worker said; bytes and milliseconds at each repaint; whether it is to stop.
    Now(Running, Rc<Vec<(u64, f64)>>, bool),
    /// They were read, or it was stopped.
    Done(Rc<Scanned>),
    /// It could not go on.
    Failed(Rc<ErrorText>),
}

/// A tensor that is being read.
#[derive(Debug, Clone, PartialEq)]
pub struct One {
    /// The row.
    pub row: u32,
    /// Bytes that were read, and all of them.
    pub done: (u64, u64),
    /// What its values are like so far.
    pub so_far: Option<Rc<TensorValues>>,
    /// Why it can't be read.
    pub failed: Option<Rc<ErrorText>>,
}

impl Instrument {
    /// Takes in what the worker said.
    pub fn hear(
        &mut self,
        told: Told,
        work: Option<&mut Work>,
        inspected: &mut Option<Rc<Inspected>>,
    ) {
        match told {
            Told::Scanning(now, read) => {
                let end = now.done == now.total;
                if let Some(work) = work {
                    work.take_values(read, end);
                }
                if let Scan::Now(before, past, stopping) = &mut self.scan {
                    Rc::make_mut(past).push((now.done, now.millis));
                    if now.millis > 500.0 {
                        self.rate = Some(now.done as f64 / now.millis);
                    }
                    (*before, *stopping) = (now, *stopping);
                }
            }
            Told::Scanned(Ok(mut scanned)) => {
                if let Some(work) = work {
                    work.take_noticed(std::mem::take(&mut scanned.noticed));
                    work.take_values(Vec::new(), true);
                }
                self.scan = Scan::Done(Rc::new(*scanned));
            }
            Told::Scanned(Err(error)) => self.scan = Scan::Failed(Rc::new(error)),
            Told::Reading(done, total, so_far) => {
                if let Some(one) = &mut self.one {
                    one.done = (done, total);
                    one.so_far = so_far.map(|values| Rc::new(*values)).or(one.so_far.take());
                }
            }
            Told::Read(Ok(values)) => {
                if values.millis > 50.0 {
                    self.rate = Some(values.bytes as f64 / values.millis);
                }
                self.one = None;
                if let Some(work) = work.filter(|work| work.view.weights.any()) {
                    work.take_values(vec![values.short.clone()], true);
                }
                if let Some(inspected) = inspected.as_mut().filter(|it| it.row == values.short.row)
                {
                    let inspected = Rc::make_mut(inspected);
                    (inspected.values, inspected.unread) = (Some(values), None);
                }
            }
            Told::Read(Err(error)) => {
                if let Some(one) = &mut self.one {
                    one.failed = Some(Rc::new(error));
                }
            }
            Told::Rate(rate) => self.rate = Some(rate),
        }
    }

    /// Whether all tensors are being read.
    pub fn is_scanning(&self) -> bool {
        matches!(self.scan, Scan::Now(..))
    }
}

impl Actor {
    fn instrument(&self, change: impl FnOnce(&mut Instrument) + 'static) {
        self.act(Action::Instrument(Box::new(change)));
    }

    /// Reads all tensors that were not read yet.
    pub fn scan(&self) {
        self.ask(&ToWorker::Weights(Ask::Scan(true)));
        self.instrument(|instrument| {
            let now = Running { done: 0, total: 0, millis: 0.0, key: String::new() };
            instrument.scan = Scan::Now(now, Rc::default(), false);
        });
    }

    /// Stops that. The worker answers with what was read.
    pub fn stop_scan(&self) {
        self.ask(&ToWorker::Weights(Ask::Scan(false)));
        self.instrument(|instrument| {
            if let Scan::Now(_, _, stopping) = &mut instrument.scan {
                *stopping = true;
            }
        });
    }

    /// Reads a tensor.
    pub fn read_values(&self, row: u32) {
        self.ask(&ToWorker::Weights(Ask::Read(Some(row))));
        self.instrument(move |instrument| {
            instrument.one = Some(One { row, done: (0, 0), so_far: None, failed: None });
        });
    }

    /// Stops that.
    pub fn stop_reading(&self) {
        self.ask(&ToWorker::Weights(Ask::Read(None)));
        self.instrument(|instrument| instrument.one = None);
    }

    /// Goes to a value and stands before it.
    pub fn go_to(&self, row: u32, number: u64) {
        self.act(Action::GoTo(row, number));
    }
}

/// Reads what is looked at, if that takes no long time; leaves it when something else is looked at.
#[hook]
pub fn use_instrument(model: &UseReducerHandle<Model>, actor: &Actor) {
    let work = model.work.as_ref();
    let row = work.and_then(Work::row);
    let inspected = model.inspected.as_ref().filter(|inspected| Some(inspected.row) == row);
    let known =
        row.is_some_and(|row| work.is_some_and(|work| work.view.weights.get(row).is_some()));
    let unread = inspected.and_then(|inspected| inspected.unread);
    let remote = inspected.is_some_and(|inspected| inspected.remote);
    let scanning = model.instrument.is_scanning();
    {
        let (actor, model) = (actor.clone(), model.clone());
        use_effect_with((row, unread, known, scanning), move |(row, unread, known, scanning)| {
            let one = model.instrument.one.as_ref();
            if one.is_some_and(|one| Some(one.row) != *row) {
                actor.stop_reading();
            }
            let (Some(row), Some(unread)) = (*row, *unread) else { return };
            if *known {
                // It was read with the others meanwhile.
                actor.ask(&ToWorker::Inspect { row });
            } else if unread <= BY_ITSELF && !remote && !scanning {
                if one.is_none_or(|one| one.row != row) {
                    actor.read_values(row);
                }
            } else if model.instrument.rate.is_none() && !remote && !scanning {
                actor.ask(&ToWorker::Weights(Ask::Rate(row)));
            }
        });
    }
    let shown = model.values.as_ref().map(|values| (values.row, values.start));
    use_effect_with((model.instrument.at, shown), |_| {
        let document = web_sys::window().and_then(|window| window.document());
        let here = document.and_then(|it| it.query_selector(".vals .here").ok().flatten());
        if let Some(here) = here {
            here.scroll_into_view_with_bool(false);
        }
    });
}
