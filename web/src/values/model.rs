//! The page's state of reading the values of tensors.

use std::rc::Rc;

use crate::inspector::message::RowDetails;
use crate::state::task::Task;
use crate::state::work::OpenWork;
use crate::values::message::{ScanReport, TensorValues};

/// Readings of values, running and completed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ValuesPanel {
    /// The scan of all tensors.
    pub scan: Task<ScanReport>,
    /// Whether the scan is being stopped.
    pub stopping: bool,
    /// The row of the tensor being read, and its statistics so far.
    pub one: Option<(u32, Task<TensorValues>)>,
    /// Bytes read per millisecond, once measured.
    pub rate: Option<f64>,
    /// The selected value: its row and its number.
    pub at: Option<(u32, u64)>,
    /// The slice shown of a row, in Python's notation, without the brackets.
    pub slice: Option<(u32, String)>,
    /// The export of a tensor as a file.
    pub export: Task<String>,
}

impl ValuesPanel {
    /// Returns the slice of a row; empty for the whole tensor.
    pub fn slice_of(&self, row: u32) -> &str {
        self.slice.as_ref().filter(|(of, _)| *of == row).map_or("", |(_, slice)| slice)
    }

    /// Stores results of the scan of all tensors.
    pub fn set_scan(
        &mut self,
        mut scanned: Box<ScanReport>,
        done: bool,
        work: Option<&mut OpenWork>,
    ) {
        if let Some(work) = work {
            if done {
                work.set_value_findings(std::mem::take(&mut scanned.findings));
            }
            work.add_values(std::mem::take(&mut scanned.rows), done);
        }
        if !done {
            return;
        }
        // Verifying reads all values, too.
        self.scan.start();
        self.scan.set(scanned, true);
    }

    /// Stores the statistics of the tensor being read.
    pub fn set_statistics(
        &mut self,
        values: Box<TensorValues>,
        work: Option<&mut OpenWork>,
        inspected: &mut Option<Rc<RowDetails>>,
    ) {
        if values.millis > 50.0 {
            self.rate = Some(values.bytes as f64 / values.millis);
        }
        self.one = None;
        if let Some(work) = work.filter(|work| work.view.weights.any()) {
            work.add_values(vec![(values.row, (&values.measured.statistics).into())], true);
        }
        if let Some(inspected) = inspected.as_mut().filter(|it| it.row == values.row) {
            let inspected = Rc::make_mut(inspected);
            (inspected.values, inspected.unread) = (Some(values), None);
        }
    }
}
