//! The locations of tensors: finds tensors that are outside of their file or overlap.

use statelens_checkpoint::{Checkpoint, FileId, Layout, Result, Span, Tensor, TensorId, order};

use super::report::{Problem, Trouble, count};
use super::table::PerTensor;

/// The filters of HDF5 with a checksum, and their names in reports.
const WITH_CHECKSUM: [(&str, &str); 3] = [
    ("fletcher32", "Fletcher-32 (chunks)"),
    ("gzip", "Adler-32 (gzip chunks)"),
    (ZSTD, "XXH64 (zstd chunks)"),
];

/// Has a checksum only if the writer requested it.
const ZSTD: &str = "zstd";

/// The offset and mask of that flag in a frame header (RFC 8878, 3.1.1.1.1).
const FRAME_CHECKSUM: (u64, u8) = (4, 1 << 2);

/// The locations of all tensors.
pub(super) struct Places {
    pub(super) problems: Vec<Problem>,
    /// Number of checksums that are compared when chunks are decoded, by kind.
    pub(super) in_chunks: Vec<(String, u64)>,
    /// Tensors whose chunks have a checksum.
    pub(super) checked: PerTensor<()>,
    /// Tensors whose bytes are not available, and why.
    pub(super) missing: PerTensor<String>,
    /// The location of the first byte of each tensor.
    pub(super) starts: PerTensor<(FileId, u64)>,
}

/// A range of a file that belongs to a tensor.
#[derive(Debug, Clone, Copy)]
struct TensorRun {
    span: Span,
    tensor: u32,
}

/// Locates all tensors; reads the indexes of chunks, but no weights.
pub(super) fn places(checkpoint: &Checkpoint, keys: &PerTensor<String>) -> Places {
    let mut places = Places {
        problems: Vec::new(),
        in_chunks: Vec::new(),
        checked: PerTensor::of(checkpoint),
        missing: PerTensor::of(checkpoint),
        starts: PerTensor::of(checkpoint),
    };
    let mut all: Vec<TensorRun> = Vec::new();
    for (number, tensor) in (0..).zip(checkpoint.tensors()) {
        let id = TensorId(number);
        // Tensors without a key are not in the tree.
        let Some(key) = keys.get(id) else { continue };
        let start = all.len();
        if let Err(error) = places.tensor(checkpoint, id, tensor, &mut all) {
            places.problems.push(Problem::of_error(Trouble::Damaged, key, &error));
            all.truncate(start);
            continue;
        }
        let runs = merged(&mut all, start);
        for (one, other) in runs {
            places.problems.push(overlap(checkpoint, key, key, one, other));
        }
        if let Some(first) = all.get(start) {
            places.starts.set(id, (first.span.file, first.span.offset));
        }
        for run in &all[start..] {
            let len = checkpoint.files.len(run.span.file);
            if run.span.offset.checked_add(run.span.len).is_none_or(|end| end > len) {
                places.problems.push(past_end(checkpoint, key, run.span, len));
            }
        }
    }
    places.between(checkpoint, keys, all);
    places
}

/// Returns the location of the first bytes of a layout, or of the archive with them.
pub(super) fn start(layout: &Layout) -> Option<(FileId, u64)> {
    let span = match layout {
        Layout::Span(span) => *span,
        Layout::Packed(packed) => packed.span,
        Layout::Deferred(deferred) => deferred.span(),
        Layout::Strided(strided) => return start(&strided.storage),
        Layout::Concat(concat) => return start(&concat.parts.first()?.layout),
        _ => return None,
    };
    Some((span.file, span.offset))
}

impl Places {
    /// Adds the ranges of one tensor.
    fn tensor(
        &mut self,
        checkpoint: &Checkpoint,
        id: TensorId,
        tensor: &Tensor,
        all: &mut Vec<TensorRun>,
    ) -> Result<()> {
        let mut open = vec![(&tensor.layout, &tensor.shape)];
        while let Some((layout, shape)) = open.pop() {
            let mut push = |span: Span| {
                if span.len > 0 {
                    all.push(TensorRun { span, tensor: id.0 });
                }
            };
            match layout {
                Layout::Span(span) => push(*span),
                Layout::Packed(packed) => push(packed.span),
                Layout::Strided(strided) => open.push((&strided.storage, shape)),
                Layout::Concat(concat) => {
                    open.extend(concat.parts.iter().map(|part| (&part.layout, &part.shape)));
                }
                Layout::Computed(computed) => {
                    open.push((&computed.of.layout, &computed.of.shape));
                    if let Some(product) = &computed.product {
                        let factors = [&product.left, &product.right];
                        open.extend(factors.map(|factor| (&factor.layout, &factor.shape)));
                    }
                }
                Layout::Dequantised(parts) => {
                    open.extend(parts.parts().map(|part| (&part.layout, &part.shape)));
                }
                Layout::Deferred(deferred) => {
                    open.push((deferred.layout(&checkpoint.files, shape)?, shape));
                }
                Layout::Chunked(chunked) => {
                    let table = chunked.chunks.table(&checkpoint.files)?;
                    table.iter().for_each(|chunk| push(chunk.span));
                    let filters = chunked.chunks.describe();
                    for (filter, kind) in WITH_CHECKSUM {
                        // Filters are listed in the order of application; a bit in the mask means
                        // that one was skipped.
                        let place = filters.split(", ").position(|name| name.starts_with(filter));
                        let Some(place) = place else { continue };
                        let mut with = table.iter().filter(|chunk| chunk.mask >> place & 1 == 0);
                        if filter == ZSTD {
                            // All chunks of a dataset are written in the same way, so the first one
                            // is representative. If another filter was applied afterwards, the
                            // frame header is not accessible.
                            let last = place + 1 == filters.split(", ").count();
                            let first = with.clone().next().filter(|_| last);
                            let Some(first) = first else { continue };
                            let at = first.span.offset.saturating_add(FRAME_CHECKSUM.0);
                            let head = checkpoint.files.read_vec(first.span.file, at, 1)?;
                            if head[0] & FRAME_CHECKSUM.1 == 0 {
                                continue;
                            }
                        }
                        count(&mut self.in_chunks, kind, with.by_ref().count() as u64);
                        self.checked.set(id, ());
                    }
                }
                Layout::Missing(why) => self.missing.set(id, why.to_lossy().into_owned()),
                Layout::Fill(_) | Layout::Inline(_) => {}
            }
        }
        Ok(())
    }

    /// Finds ranges of different tensors that overlap. Tensors that share a storage may overlap,
    /// and so may those with identical ranges.
    fn between(
        &mut self,
        checkpoint: &Checkpoint,
        keys: &PerTensor<String>,
        mut all: Vec<TensorRun>,
    ) {
        order::by_key(&mut all, |run| (run.span.file, run.span.offset, run.span.len, run.tensor));
        let storage = |run: &TensorRun| {
            checkpoint.tensors().get(run.tensor as usize).and_then(|tensor| tensor.storage)
        };
        let name = |run: &TensorRun| keys.get(TensorId(run.tensor)).map_or("", String::as_str);
        // The earlier range with the highest end.
        let mut last: Option<TensorRun> = None;
        for run in all {
            if let Some(before) = last
                && overlaps(before.span, run.span)
            {
                let shared = storage(&before).is_some() && storage(&before) == storage(&run);
                if before.tensor != run.tensor && before.span != run.span && !shared {
                    let (one, other) = (name(&before), name(&run));
                    self.problems.push(overlap(checkpoint, other, one, run.span, before.span));
                }
                if end(before.span) >= end(run.span) {
                    continue;
                }
            }
            last = Some(run);
        }
    }
}

/// Joins adjacent ranges from `start` on, so that a tensor of a million chunks needs only a few.
/// Returns those that overlap.
fn merged(all: &mut Vec<TensorRun>, start: usize) -> Vec<(Span, Span)> {
    let mut runs = all.split_off(start);
    order::by_key(&mut runs, |run| (run.span.file, run.span.offset, run.span.len));
    let mut found = Vec::new();
    for run in runs {
        match all[start..].last_mut() {
            // Parts may be identical: a constant, or a repeated storage.
            Some(last) if last.span == run.span => {}
            Some(last) if overlaps(last.span, run.span) => {
                found.push((run.span, last.span));
                let end = end(last.span).max(end(run.span));
                last.span.len = end - last.span.offset;
            }
            Some(last) if last.span.file == run.span.file && end(last.span) == run.span.offset => {
                last.span.len = last.span.len.saturating_add(run.span.len);
            }
            _ => all.push(run),
        }
    }
    found
}

fn end(span: Span) -> u64 {
    span.offset.saturating_add(span.len)
}

/// Returns whether `other`, which must not begin before `one`, begins before the end of `one`.
fn overlaps(one: Span, other: Span) -> bool {
    one.file == other.file && other.offset < end(one)
}

fn file_name(checkpoint: &Checkpoint, file: FileId) -> String {
    checkpoint.files.name(file).to_owned()
}

fn overlap(checkpoint: &Checkpoint, key: &str, other: &str, span: Span, with: Span) -> Problem {
    let text = match key == other {
        true => "two parts of it overlap in the file".to_owned(),
        false => format!("it overlaps `{other}` in the file"),
    };
    Problem {
        trouble: Trouble::Overlap,
        key: key.to_owned(),
        file: file_name(checkpoint, span.file),
        offset: Some(span.offset),
        text,
        expected: format!("a beginning at byte {} or later", end(with)),
        found: format!("bytes {} to {}", span.offset, end(span)),
    }
}

fn past_end(checkpoint: &Checkpoint, key: &str, span: Span, len: u64) -> Problem {
    Problem {
        trouble: Trouble::PastEnd,
        key: key.to_owned(),
        file: file_name(checkpoint, span.file),
        offset: Some(span.offset),
        text: "it runs past the end of the file".to_owned(),
        expected: format!("an end at byte {len} or before"),
        found: format!("an end at byte {}", end(span)),
    }
}
