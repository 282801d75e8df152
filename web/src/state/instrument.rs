//! Reading the values of tensors, as far as the page knows of it.

use std::rc::Rc;

use crate::protocol::conversion::Running;
use crate::protocol::error::ErrorText;
use crate::protocol::inspected::Inspected;
use crate::protocol::looking::LookingReply as Looked;
use crate::protocol::weights::{Scanned, TensorValues, WeightsReply};
use crate::state::work::OpenWork;

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
    /// The slice that is shown of a row, as Python has it between brackets.
    pub slice: Option<(u32, String)>,
    /// Making a file of one.
    pub taking: Taking,
}

/// How far a file of a tensor is.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Taking {
    /// Not asked for.
    #[default]
    No,
    /// Bytes that were read, and all of them.
    Now(u64, u64),
    /// It can't be made.
    Failed(Rc<ErrorText>),
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
    /// The slice of a row; nothing of the whole.
    pub fn slice_of(&self, row: u32) -> &str {
        self.slice.as_ref().filter(|(of, _)| *of == row).map_or("", |(_, slice)| slice)
    }

    /// Takes in how far a file of a tensor is.
    pub fn hear_taken(&mut self, told: &Looked) {
        match told {
            Looked::Taking(done, total) => self.taking = Taking::Now(*done, *total),
            Looked::Taken(_) => self.taking = Taking::No,
            Looked::NotTaken(error) => self.taking = Taking::Failed(Rc::new(error.clone())),
            _ => {}
        }
    }

    /// Takes in what the worker said.
    pub fn hear(
        &mut self,
        reply: WeightsReply,
        work: Option<&mut OpenWork>,
        inspected: &mut Option<Rc<Inspected>>,
    ) {
        match reply {
            WeightsReply::Scanning(now, read) => {
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
            WeightsReply::Scanned(Ok(mut scanned)) => {
                if let Some(work) = work {
                    work.take_noticed(std::mem::take(&mut scanned.noticed));
                    work.take_values(Vec::new(), true);
                }
                self.scan = Scan::Done(Rc::new(*scanned));
            }
            WeightsReply::Scanned(Err(error)) => self.scan = Scan::Failed(Rc::new(error)),
            WeightsReply::Reading(done, total, so_far) => {
                if let Some(one) = &mut self.one {
                    one.done = (done, total);
                    one.so_far = so_far.map(|values| Rc::new(*values)).or(one.so_far.take());
                }
            }
            WeightsReply::Read(Ok(values)) => {
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
            WeightsReply::Read(Err(error)) => {
                if let Some(one) = &mut self.one {
                    one.failed = Some(Rc::new(error));
                }
            }
            WeightsReply::Rate(rate) => self.rate = Some(rate),
        }
    }

    /// Whether all tensors are being read.
    pub fn is_scanning(&self) -> bool {
        matches!(self.scan, Scan::Now(..))
    }
}
