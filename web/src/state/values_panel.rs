//! The page's state of reading the values of tensors.

use std::rc::Rc;

use crate::protocol::conversion::JobProgress;
use crate::protocol::error::ErrorText;
use crate::protocol::inspected::RowDetails;
use crate::protocol::matrix::MatrixReply;
use crate::protocol::weights::{ScanReport, TensorValues, WeightsReply};
use crate::state::work::OpenWork;

/// Readings of values, running and completed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ValuesPanel {
    /// The scan of all tensors.
    pub scan: ScanState,
    /// The reading of the selected tensor.
    pub one: Option<TensorReading>,
    /// Bytes read per millisecond, once measured.
    pub rate: Option<f64>,
    /// The selected value: its row and its number.
    pub at: Option<(u32, u64)>,
    /// The slice shown of a row, in Python's notation, without the brackets.
    pub slice: Option<(u32, String)>,
    /// The export of a tensor as a file.
    pub export: ExportState,
}

/// State of exporting a tensor as a file.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum ExportState {
    /// Not requested.
    #[default]
    No,
    /// Bytes read, and bytes in total.
    Now(u64, u64),
    /// The export failed.
    Failed(Rc<ErrorText>),
}

/// State of reading all tensors.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum ScanState {
    /// Not requested.
    #[default]
    No,
    /// The worker's last progress; bytes and milliseconds at each repaint; whether it is being
    /// stopped.
    Now(JobProgress, Rc<Vec<(u64, f64)>>, bool),
    /// All were read, or reading was stopped.
    Done(Rc<ScanReport>),
    /// Reading failed.
    Failed(Rc<ErrorText>),
}

/// A tensor being read.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorReading {
    pub row: u32,
    /// Bytes read, and bytes in total.
    pub done: (u64, u64),
    /// The statistics so far.
    pub so_far: Option<Rc<TensorValues>>,
    /// Why it can't be read.
    pub failed: Option<Rc<ErrorText>>,
}

impl ValuesPanel {
    /// Returns the slice of a row; empty for the whole tensor.
    pub fn slice_of(&self, row: u32) -> &str {
        self.slice.as_ref().filter(|(of, _)| *of == row).map_or("", |(_, slice)| slice)
    }

    /// Handles a reply about an export.
    pub fn handle_export_reply(&mut self, reply: &MatrixReply) {
        match reply {
            MatrixReply::Exporting(done, total) => self.export = ExportState::Now(*done, *total),
            MatrixReply::Exported(_) => self.export = ExportState::No,
            MatrixReply::ExportFailed(error) => {
                self.export = ExportState::Failed(Rc::new(error.clone()))
            }
            _ => {}
        }
    }

    /// Handles a reply about values.
    pub fn handle_reply(
        &mut self,
        reply: WeightsReply,
        work: Option<&mut OpenWork>,
        inspected: &mut Option<Rc<RowDetails>>,
    ) {
        match reply {
            WeightsReply::Scanning(now, read) => {
                let end = now.done == now.total;
                if let Some(work) = work {
                    work.add_values(read, end);
                }
                if let ScanState::Now(before, past, stopping) = &mut self.scan {
                    Rc::make_mut(past).push((now.done, now.millis));
                    if now.millis > 500.0 {
                        self.rate = Some(now.done as f64 / now.millis);
                    }
                    (*before, *stopping) = (now, *stopping);
                }
            }
            WeightsReply::Scanned(Ok(mut scanned)) => {
                if let Some(work) = work {
                    work.set_value_findings(std::mem::take(&mut scanned.findings));
                    work.add_values(Vec::new(), true);
                }
                self.scan = ScanState::Done(Rc::new(*scanned));
            }
            WeightsReply::Scanned(Err(error)) => self.scan = ScanState::Failed(Rc::new(error)),
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
                    work.add_values(vec![values.short.clone()], true);
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

    /// Returns whether all tensors are being read.
    pub fn is_scanning(&self) -> bool {
        matches!(self.scan, ScanState::Now(..))
    }
}
