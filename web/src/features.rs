//! The list of tasks: the requests of the page that take long.
//!
//! The list determines the kind of job of a task, its request and result on the wire, the call that
//! starts it in the worker, where the page keeps its state, and its sheet. A feature adds a line
//! here, and its components implement `TaskSlot` for its result.

/// Calls a macro with the list of tasks. A line has the kind of the task, the types of its request
/// and of its result, the function that starts it in the worker, and its sheet, if it has one that
/// Esc closes.
macro_rules! tasks {
    ($generate:ident) => {
        $generate! {
            /// Running a plan. The finished `Blob`s are sent with the result, in an array. If the
            /// task ends early, no files are left behind.
            Write(crate::convert::message::WriteRequest)
                -> crate::convert::message::ConversionResult,
                starts crate::convert::worker::run;
            /// Reading everything once.
            Verify(crate::verify::message::VerifyRequest)
                -> crate::verify::message::VerifyReport,
                starts crate::verify::worker::start, sheet crate::verify::page::sheet;
            /// Checking the open folder or repository by the rules of `statelens check`.
            CheckFolder(crate::folder_check::message::FolderCheckRequest)
                -> statelens_compare::folder::FolderReport,
                starts crate::folder_check::worker::start;
            /// Reading the values of all tensors that were not read yet. A partial result has only
            /// the statistics of tensors read since the last one. If the scan is stopped, its result
            /// covers the tensors read so far.
            Scan(crate::values::message::ScanRequest)
                -> crate::values::message::ScanReport,
                starts crate::scan::worker::start_scan;
            /// Reading the values of the checkpoints of a run folder. Each message has those read
            /// since the last one.
            RunValues(crate::run_folder::message::RunValuesRequest)
                -> crate::run_folder::message::RunValues,
                starts crate::run_folder::worker::values;
            /// Reading the values of one tensor, given by its row.
            TensorStats(u32)
                -> crate::values::message::TensorValues,
                starts crate::scan::worker::start_read;
            /// Reading the values of a piece of a tensor.
            PieceStats(crate::pieces::message::PieceRequest)
                -> crate::pieces::message::PieceStatistics,
                starts crate::pieces::worker::start;
            /// Reading a matrix as a picture. If reading is stopped, the picture has the blocks read
            /// so far.
            Overview(crate::matrix::message::OverviewRequest)
                -> crate::matrix::message::PackedOverview,
                starts crate::matrix::worker::start;
            /// Computing the singular values of a matrix.
            Singular(crate::matrix::message::singular::SingularRequest)
                -> crate::matrix::message::singular::SingularReport,
                starts crate::matrix::worker::singular::start;
            /// Exporting a tensor as a file, which is sent with the result.
            Export(crate::matrix::message::ExportRequest)
                -> crate::matrix::message::ExportedFile,
                starts crate::export::worker::start;
            /// Ranking the rows of a matrix by norm.
            Rank(crate::matrix::message::ranked::RankedRequest)
                -> crate::matrix::message::ranked::NormRanking,
                starts crate::matrix::worker::ranked::start;
            /// Comparing with a second checkpoint: structure at once, then values. Each message has
            /// the results since the last one.
            Compare(Box<crate::compare::message::CompareOptions>)
                -> crate::compare::message::ComparisonUpdate,
                starts crate::compare::worker::start;
            /// Comparing a pair of tensors closely.
            TensorDiff(crate::compare::message::tensor_diff::TensorDiffRequest)
                -> crate::compare::message::tensor_diff::TensorDiff,
                starts crate::compare::worker::tensor_diff::start;
            /// Searching the second checkpoint for renamed tensors.
            Renames(Box<crate::compare::message::CompareOptions>)
                -> crate::compare::message::tensor_diff::Renames,
                starts crate::compare::worker::tensor_diff::start_renames;
        }
    };
}
