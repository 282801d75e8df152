//! The page's state of reading the values of tensors.

use std::rc::Rc;

use crate::inspector::message::TensorLine;
use crate::matrix::message::ExportedFile;
use crate::pieces::message::{PieceRequest, PieceStatistics};
use crate::quantised::message::ShownAs;
use crate::state::task::Task;
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
    /// The selected piece, and its statistics.
    pub piece: Option<(PieceRequest, Task<PieceStatistics>)>,
    /// The reading of the stored bytes of a row, if it is not the usual one.
    pub shown_as: Option<(u32, ShownAs)>,
    /// The values along one dimension that are drawn.
    pub line: Option<Rc<TensorLine>>,
    /// The export of a tensor as a file.
    pub export: Task<ExportedFile>,
}

impl ValuesPanel {
    /// Returns the reading of the stored bytes of a row; `None` for the usual one.
    pub fn shown_of(&self, row: u32) -> Option<&ShownAs> {
        self.shown_as.as_ref().filter(|(of, _)| *of == row).map(|(_, shown)| shown)
    }

    /// Returns whether a scan has read all values. One that was stopped is done, too.
    pub fn has_all_values(&self) -> bool {
        matches!(&self.scan, Task::Done(scan) if scan.unread_bytes == 0)
    }

    /// Returns the slice of a row; empty for the whole tensor.
    pub fn slice_of(&self, row: u32) -> &str {
        self.slice.as_ref().filter(|(of, _)| *of == row).map_or("", |(_, slice)| slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopped_scan_has_not_all_values() {
        let mut panel = ValuesPanel::default();
        assert!(!panel.has_all_values());
        for (unread_bytes, has_all) in [(1, false), (0, true)] {
            let scan = ScanReport { unread_bytes, ..ScanReport::default() };
            panel.scan = Task::Done(Rc::new(scan));
            assert_eq!(panel.has_all_values(), has_all);
        }
    }
}
