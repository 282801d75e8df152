//! Ranks the rows of a matrix, or the kernels of a convolution, by norm.

use statelens_checkpoint::{Error, Result, Unwatched};
use statelens_tensor::{BUDGET, BUFFER, Machine as _, Pour, drain_range};
use statelens_values::{Matrix, MatrixLines, Overview, Rows};
use wasm_bindgen::JsValue;

use crate::matrix::message::ranked::{NormRanking, RankedRequest};
use crate::worker::job::Job;
use crate::worker::reading::drive;
use crate::worker::selection::{numbers_of, tensor};
use crate::worker::session::SharedSession;
use crate::worker::task::Task;

/// Number of rows listed, and of kernels shown.
const MAX_LISTED: usize = 8;
const MAX_KERNELS: usize = 48;

/// Handles a request of the page.
pub(crate) fn start(session: &SharedSession, job: Job, request: RankedRequest, _: &JsValue) {
    let Some(open) = session.borrow().open.clone() else { return };
    Task::start(open, job, async move |task| rank(task, &request).await);
}

async fn rank(task: &Task, request: &RankedRequest) -> Result<NormRanking> {
    let open = &task.open;
    let (tensor, range, width, size) = match request.kernels {
        true => {
            let tensor = numbers_of(open, request.selection.row)?;
            let leading = vec![0; tensor.shape.len().saturating_sub(2)];
            let matrix = Matrix::of(&tensor.shape, &leading);
            let matrix = matrix.ok_or_else(|| Error::refused("it has no rows"))?;
            let all = 0..tensor.numel().unwrap_or(0);
            (tensor, all, matrix.len, (matrix.rows(), matrix.columns))
        }
        false => {
            let (tensor, matrix) = tensor(open, &request.selection)?;
            let range = matrix.first..matrix.first + matrix.len;
            (tensor, range, matrix.columns, (1, matrix.columns))
        }
    };
    let rows = Rows::new(&tensor.dtype, width).ok_or_else(|| {
        Error::unsupported(format!("values of {} can't be decoded", tensor.dtype))
    })?;
    let mut pour = Pour::new(&open.checkpoint.files, &tensor, range, BUDGET, rows)?;
    drive(&mut pour, &[&open.sources], &task.job, |pour, time| {
        if time {
            task.progress(pour.progress());
        }
    })
    .await?;
    let found = pour.into.finish();
    let lines = &found.rows;
    if lines.is_empty() {
        return Err(Error::unsupported("there are too many rows to rank"));
    }
    let ranked = MatrixLines::ranked(lines);
    let one = |at: usize| (at as u64, lines[at].norm, lines[at].abs_max);
    let from = (request.from as usize).min(lines.len() - 1);
    let shown = if request.kernels { MAX_KERNELS } else { MAX_LISTED };
    let largest: Vec<_> = match request.in_order {
        true => (from..lines.len()).take(shown).map(one).collect(),
        false => ranked.iter().skip(from).take(shown).map(|at| one(*at)).collect(),
    };
    let mut values = Vec::new();
    if request.kernels {
        for (at, ..) in &largest {
            let mut bytes = Vec::new();
            let mut out = |piece: &[u8]| {
                bytes.extend_from_slice(piece);
                Ok(())
            };
            let range = at * width..(at + 1) * width;
            let files = &open.checkpoint.files;
            drain_range(files, &tensor, range, BUFFER, &mut Unwatched, &mut out)?;
            values.extend(Overview::values(&tensor.dtype, &bytes));
        }
    }
    Ok(NormRanking {
        kernels: request.kernels,
        in_order: request.in_order,
        count: lines.len() as u64,
        zero: found.zero_rows,
        copied: found.copied_rows,
        median: MatrixLines::median(lines, &ranked).unwrap_or(0.0),
        largest,
        smallest: ranked.iter().rev().take(MAX_LISTED).map(|at| one(*at)).collect(),
        from: from as u64,
        size,
        values,
    })
}
