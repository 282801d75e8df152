//! A matrix as a picture: the whole of it in blocks, coarse first, and windows of exact values.

pub mod ranked;
pub mod singular;

use std::borrow::Cow;

use statelens_checkpoint::{Error, Layout, Result, Tensor, Unwatched};
use statelens_tensor::{BUDGET, BUFFER, Machine as _, Pour, drain_range};
use statelens_values::picture::BlockMap;
use statelens_values::{Matrix, Overview, element_text};
use wasm_bindgen::JsValue;

use crate::matrix::message::{Cells, MatrixSelection, OverviewRequest, PackedOverview};
use crate::protocol::FromWorker;
use crate::text;
use crate::worker::job::Job;
use crate::worker::opened::OpenCheckpoint;
use crate::worker::port::now;
use crate::worker::reading::{YieldTimer, drive};
use crate::worker::selection::{numbers_of, stored_at, tensor};
use crate::worker::session::SharedSession;
use crate::worker::task::Task;

/// Maximum number of bytes read for a first, coarse picture.
const MAX_COARSE: u64 = 64 << 20;
/// Rows of more bytes are not sampled for it.
const MAX_SAMPLED_ROW: u64 = 512 << 10;
/// A window whose rows are within this many bytes is read at once.
const MAX_WINDOW_SPAN: u64 = 8 << 20;
/// Maximum number of values of a window.
const MAX_CELLS: u64 = 1 << 15;

/// Reads and posts the values of a window.
pub(crate) fn post_cells(
    open: &OpenCheckpoint,
    job: &Job,
    selection: MatrixSelection,
    window: [u64; 4],
) {
    let cells = cells(open, &selection, window).map(Box::new);
    job.post(&FromWorker::Cells(selection, cells.map_err(|error| text::error(&error))));
    open.report_fetched(job);
}

/// Begins reading a whole matrix, reduced to blocks.
pub(crate) fn start(session: &SharedSession, job: Job, request: OverviewRequest, _: &JsValue) {
    let Some(open) = session.borrow().open.clone() else { return };
    let OverviewRequest { selection: of, across, down } = request;
    let work = async move |task: &Task| overview(task, &of, (across, down)).await;
    Task::start(open, job, work);
}

async fn overview(
    task: &Task,
    selection: &MatrixSelection,
    most: (u32, u32),
) -> Result<PackedOverview> {
    let (open, job) = (&task.open, &task.job);
    let (tensor, matrix) = tensor(open, selection)?;
    let new = || {
        Overview::new(&tensor.dtype, matrix, most.0, most.1).ok_or_else(|| {
            Error::unsupported(format!("{} can\u{2019}t be drawn", tensor.dtype.name()))
        })
    };
    let total = tensor.dtype.bytes_of(matrix.len).unwrap_or(0);
    let (all, mut coarse) = (new()?, new()?);
    let packed = |all: &Overview, coarse: &Overview, done: u64| {
        PackedOverview::of(&BlockMap::of(&all.over(coarse)), (done, total))
    };
    if total > MAX_COARSE / 2 && sample(open, &tensor, matrix, &mut coarse, job).await? {
        task.post_partial(packed(&all, &coarse, 0));
        task.progress((0, total));
    }

    let range = matrix.first..matrix.first + matrix.len;
    let mut pour = Pour::new(&open.checkpoint.files, &tensor, range, BUDGET, all)?;
    let ended = drive(&mut pour, &[&open.sources], job, |pour, time| {
        if time {
            let done = pour.progress().0;
            task.post_partial(packed(&pour.into, &coarse, done));
            task.progress((done, total));
        }
    })
    .await;
    // A stopped overview shows the blocks read so far.
    if job.check().is_ok() {
        ended?;
    }
    Ok(packed(&pour.into, &coarse, pour.progress().0))
}

/// Reads a few rows for each row of blocks, where that is quick. Returns whether it did.
async fn sample(
    open: &OpenCheckpoint,
    tensor: &Tensor,
    matrix: Matrix,
    coarse: &mut Overview,
    job: &Job,
) -> Result<bool> {
    let plain = matches!(tensor.layout, Layout::Span(_)) && open.sources.is_local();
    let row = tensor.dtype.bytes_of(matrix.columns).unwrap_or(u64::MAX);
    if !plain || row > MAX_SAMPLED_ROW {
        return Ok(false);
    }
    let (high, down) = (coarse.block().0, coarse.size().0 as u64);
    let rows = (MAX_COARSE / row.max(1) / down.max(1)).clamp(1, 4).min(high);
    let mut yield_timer = YieldTimer::new();
    for at in 0..down {
        for part in 0..rows {
            let first = (at * high + part * (high / rows)) * matrix.columns;
            let len = matrix.columns.min(matrix.len.saturating_sub(first));
            if len == 0 {
                continue;
            }
            coarse.seek(first);
            let range = matrix.first + first..matrix.first + first + len;
            let mut out = |bytes: &[u8]| {
                coarse.feed(bytes);
                Ok(())
            };
            let files = &open.checkpoint.files;
            drain_range(files, tensor, range, BUFFER, &mut Unwatched, &mut out)?;
        }
        job.check()?;
        yield_timer.yield_if_due().await;
    }
    Ok(true)
}

fn cells(open: &OpenCheckpoint, selection: &MatrixSelection, window: [u64; 4]) -> Result<Cells> {
    let began = now();
    let (tensor, matrix) = tensor(open, selection)?;
    let [top, left, rows, columns] = window;
    if rows.saturating_mul(columns) > MAX_CELLS {
        return Err(Error::refused("a window of this many values"));
    }
    let size = tensor.dtype.itemsize().max(1);
    let (rows, columns) = (
        rows.min(matrix.rows().saturating_sub(top)),
        columns.min(matrix.columns.saturating_sub(left)),
    );
    // A slice that is copied has lost its place; the whole tensor has it.
    let whole = numbers_of(open, selection.row)?;
    let first = stored_at(&whole).map(|(first, _)| first);
    let window = [top, left, rows, columns];
    let mut cells = Cells { window, size, first, ..Cells::default() };
    let place = |row: u64| {
        let start = (row * matrix.columns + left).min(matrix.len);
        start..(start + columns).min(matrix.len)
    };
    let read = |range: std::ops::Range<u64>| {
        let mut bytes = Vec::new();
        let range = matrix.first + range.start..matrix.first + range.end;
        let mut take = |piece: &[u8]| {
            bytes.extend_from_slice(piece);
            Ok(())
        };
        let files = &open.checkpoint.files;
        drain_range(files, &tensor, range, BUFFER, &mut Unwatched, &mut take).map(|_| bytes)
    };
    let (start, end) = (place(top).start, place(top + rows.max(1) - 1).end);
    let near = match (end - start).saturating_mul(size) <= MAX_WINDOW_SPAN {
        true => Some(read(start..end)?),
        false => None,
    };
    for row in top..top + rows {
        let range = place(row);
        let bytes = match &near {
            Some(near) => {
                let from = ((range.start - start) * size) as usize;
                let to = ((range.end - start) * size) as usize;
                Cow::Borrowed(near.get(from..to).unwrap_or_default())
            }
            None => Cow::Owned(read(range)?),
        };
        let mut elements = bytes.chunks_exact(size as usize);
        let mut values = numbers(&tensor, &bytes);
        values.resize(columns as usize, f64::NAN);
        cells.numbers.extend(values);
        for _ in 0..columns {
            let element = elements.next().unwrap_or_default();
            cells.texts.push(element_text(&tensor.dtype, element));
            let hex = element.iter().rev().map(|byte| format!("{byte:02x}"));
            cells.bits.push(hex.collect());
        }
    }
    cells.millis = now() - began;
    Ok(cells)
}

/// Returns the values as the overview decodes them.
fn numbers(tensor: &Tensor, elements: &[u8]) -> Vec<f64> {
    let size = tensor.dtype.itemsize().max(1) as usize;
    let values = Overview::values(&tensor.dtype, elements);
    // If an element holds two values, take the first.
    let each = (values.len() / (elements.len() / size).max(1)).max(1);
    values.into_iter().step_by(each).collect()
}
