//! Describes one leaf: what it is, where it is stored, its values.

use statelens_checkpoint::{
    Checkpoint, DType, Error, Field, FileSet, Layout, Leaf, Result, Tensor, Value, listed, visible,
};
use statelens_describe::{layout_text, type_name, value_text};
use statelens_formats::{indexed, snippets};
use statelens_tensor::{ElementPlaces, Slice};
use statelens_values::Overview;
use statelens_values::element_text;

use crate::inspector::message::{Fact, FormattedValues, RowDetails, TensorLine};
use crate::quantised::message::ShownAs;
use crate::state::fmt::{exact, shape as shape_text};
use crate::worker::opened::OpenCheckpoint;
use crate::worker::selection::stored_at;
use crate::{pieces, quantised, text};

/// Strings longer than this are truncated even in the inspector.
const MAX_TEXT: usize = 64 << 10;
/// Fields of a record that are named.
const MAX_FIELDS: usize = 12;
/// Chunk tables longer than this are not read to describe a tensor.
const MAX_CHUNKS: u64 = 100_000;

/// Describes a row; `None` if the row does not exist.
pub fn inspect(open: &OpenCheckpoint, row: u32) -> Option<RowDetails> {
    let leaf = open.leaves.get(row as usize)?;
    let checkpoint = &open.checkpoint;
    let mut facts = Vec::new();
    if let Some(name) = type_name(checkpoint, leaf.id) {
        facts.push(fact("type", name, ""));
    }
    let tensor = checkpoint.tensor_of(leaf.id).map(|(_, tensor)| tensor);
    if let Some(tensor) = tensor {
        layout_facts(&checkpoint.files, tensor, &mut facts);
    }
    if let Value::Sparse(sparse) = checkpoint.value(leaf.target) {
        facts.push(fact("layout", sparse.layout.clone(), ""));
    }
    if let Some(stored) = checkpoint.stored_key(leaf.id).filter(|stored| **stored != leaf.flat) {
        facts.push(fact("stored as", visible(&stored.to_lossy()), ""));
    }
    if leaf.outside_state {
        let what = match checkpoint.format.traits.further_states {
            true => "a further state",
            false => "an attribute of a module",
        };
        facts.push(fact("state dict", "not part of it".into(), what));
    }
    let own = checkpoint.raw_attributes(leaf.id);
    let raw = if own.is_empty() { checkpoint.raw_attributes(leaf.target) } else { own };
    let attributes = raw
        .iter()
        .map(|(name, value)| (visible(&name.to_lossy()), visible(&cut(&value.to_lossy()))))
        .collect();
    let has_values = tensor.is_some_and(|tensor| statelens_values::missing(tensor).is_none());
    Some(RowDetails {
        row,
        path: indexed(&leaf.key).map(|path| format!("state{path}")).unwrap_or_default(),
        parameter: open.parameter(leaf).map(|of| (of.key.clone(), of.basis.clone())),
        code: code(checkpoint, leaf, None),
        facts,
        text: full_text(checkpoint, leaf),
        attributes,
        pieces: pieces::worker::pieces_of(open, row),
        quantised: quantised::worker::details(open, &leaf.flat.to_lossy()),
        has_values,
        ..RowDetails::default()
    })
}

/// Returns Python code that reads a leaf, or a slice of it: library and code.
fn code(checkpoint: &Checkpoint, leaf: &Leaf, slice: Option<&Slice>) -> Vec<(String, String)> {
    let place = |file| checkpoint.files.name(file).to_owned();
    let found = snippets(checkpoint, leaf, slice, &place).into_iter();
    found.map(|snippet| (snippet.library.to_owned(), snippet.code)).collect()
}

fn fact(label: &str, value: String, note: &str) -> Fact {
    Fact { label: label.to_owned(), value, note: note.to_owned() }
}

/// Adds facts on where a tensor is stored.
fn layout_facts(files: &FileSet, tensor: &Tensor, facts: &mut Vec<Fact>) {
    match &tensor.layout {
        Layout::Span(span) => {
            facts.push(fact("stored in", visible(files.name(span.file)), "(contiguous)"));
            facts.push(fact("at byte", exact(span.offset), ""));
        }
        Layout::Packed(packed) => {
            facts.push(fact(
                "stored in",
                visible(files.name(packed.span.file)),
                packed.packing.past(),
            ));
            facts.push(fact("at byte", exact(packed.span.offset), ""));
            facts.push(fact("stored", exact(packed.span.len), &share(packed.span.len, packed.len)));
        }
        Layout::Chunked(chunked) => {
            let grid: Vec<u64> = tensor
                .shape
                .iter()
                .zip(&chunked.shape)
                .map(|(dim, chunk)| dim.div_ceil((*chunk).max(1)))
                .collect();
            let count = grid.iter().fold(1u64, |product, dim| product.saturating_mul(*dim));
            let of = format!("{} of {}", plural(count, "chunk"), shape_text(&chunked.shape));
            facts.push(fact("stored in", of, ""));
            let filters = chunked.chunks.describe();
            let table = if count <= MAX_CHUNKS { chunked.chunks.table(files).ok() } else { None };
            if let Some(table) = table {
                let stored =
                    table.iter().fold(0u64, |sum, chunk| sum.saturating_add(chunk.span.len));
                let note = format!("{filters} {}", share(stored, tensor.nbytes().unwrap_or(0)));
                facts.push(fact("stored", exact(stored), note.trim()));
                if let Some(first) = table.iter().map(|chunk| chunk.span.offset).min() {
                    facts.push(fact("first chunk", format!("at {}", exact(first)), ""));
                }
            } else if !filters.is_empty() {
                facts.push(fact("filters", filters, ""));
            }
        }
        _ => facts.push(fact("stored in", layout_text(files, tensor), "")),
    }
    if let DType::Numpy(numpy) = &tensor.dtype
        && !numpy.fields.is_empty()
    {
        let field = |field: &Field| format!("{} {}", visible(&field.name), field.dtype);
        let fields: Vec<String> = numpy.fields.iter().map(field).collect();
        facts.push(fact("fields", listed(&fields, MAX_FIELDS), ""));
    }
    if tensor.stored != tensor.dtype {
        facts.push(fact("stored as", tensor.stored.name().to_owned(), ""));
    }
    if tensor.requires_grad {
        facts.push(fact("requires grad", "True".into(), ""));
    }
}

fn plural(count: u64, noun: &str) -> String {
    crate::state::fmt::plural(count, noun)
}

fn share(stored: u64, logical: u64) -> String {
    if logical == 0 {
        String::new()
    } else {
        format!("{:.1} %", stored as f64 / logical as f64 * 100.0)
    }
}

/// Returns the whole value if the row truncates it.
fn full_text(checkpoint: &Checkpoint, leaf: &Leaf) -> Option<String> {
    let shown = value_text(checkpoint, &Leaf { alias_of: None, ..leaf.clone() });
    if !shown.contains('\u{2026}') {
        return None;
    }
    match checkpoint.value(leaf.target) {
        Value::Str(text) => Some(cut(&text.to_lossy())),
        Value::Bytes { data, .. } => {
            Some(cut(&data[..data.len().min(MAX_TEXT)].escape_ascii().to_string()))
        }
        Value::Int(int) => Some(cut(&int.to_string())),
        _ => None,
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((at, _)) => format!("{}\u{2026}", &text[..at]),
        None => text.to_owned(),
    }
}

/// Reads values of a tensor, or of a slice of it; `None` if the row does not exist or is not a
/// tensor.
pub fn values(
    open: &OpenCheckpoint,
    row: u32,
    slice: String,
    start: u64,
    count: u32,
    shown: Option<ShownAs>,
) -> Option<FormattedValues> {
    let leaf = open.leaves.get(row as usize)?;
    let (_, tensor) = open.checkpoint.tensor_of(leaf.id)?;
    let read = shown.as_ref().map(|shown| quantised::worker::shown_as(open, leaf, shown));
    let (tensor, refused) = match &read {
        Some(Ok(read)) => (read, None),
        Some(Err(error)) => (tensor, Some(error.clone())),
        None => (tensor, None),
    };
    let of = slice.parse::<Slice>().ok().filter(|_| !slice.is_empty());
    let code = of.map(|of| code(&open.checkpoint, leaf, Some(&of))).unwrap_or_default();
    let values = match (refused, statelens_tensor::numbers(tensor)) {
        (Some(error), _) => Err(error),
        (None, Some(tensor)) => {
            elements(&open.checkpoint.files, &tensor, &slice, start, u64::from(count))
        }
        (None, None) => {
            Err(Error::unsupported(format!("Statelens can\u{2019}t decode {} yet", tensor.dtype)))
        }
    };
    let (values, bits) = match values {
        Ok((values, bits)) => (Ok(values), bits),
        Err(error) => (Err(text::error(&error)), Vec::new()),
    };
    let stored = stored_at(tensor);
    let (dtype, shape) = (tensor.dtype.name().to_owned(), tensor.shape.clone());
    Some(FormattedValues { row, slice, start, values, bits, stored, code, shown, dtype, shape })
}

/// Maximum number of points of a line; more are drawn as ranges.
const MAX_POINTS: u64 = 600;

/// Reads the values of a slice of one dimension.
pub fn line(open: &OpenCheckpoint, row: u32, slice: String) -> Option<TensorLine> {
    let leaf = open.leaves.get(row as usize)?;
    let (_, tensor) = open.checkpoint.tensor_of(leaf.id)?;
    let points = points(&open.checkpoint.files, tensor, &slice);
    Some(TensorLine { row, slice, points: points.map_err(|error| text::error(&error)) })
}

fn points(files: &FileSet, tensor: &Tensor, slice: &str) -> Result<Vec<(u64, f64, f64)>> {
    let numbers = statelens_tensor::numbers(tensor)
        .ok_or_else(|| Error::unsupported(format!("{} is not a number", tensor.dtype)))?;
    let places = ElementPlaces::new(&slice.parse()?, &numbers.shape)?;
    let each = places.count().div_ceil(MAX_POINTS).max(1);
    let mut points: Vec<(u64, f64, f64)> = Vec::new();
    places.each(files, &numbers, 0..u64::MAX, |at, element| {
        let value = Overview::values(&numbers.dtype, element).first().copied();
        let value = value.filter(|value| value.is_finite()).unwrap_or(f64::NAN);
        if at.is_multiple_of(each) {
            points.push((at, value, value));
        } else if let Some((_, low, high)) = points.last_mut() {
            // The minimum and the maximum ignore NaN.
            (*low, *high) = (low.min(value), high.max(value));
        }
        Ok::<(), Error>(())
    })?;
    Ok(points)
}

fn elements(
    files: &FileSet,
    tensor: &Tensor,
    slice: &str,
    start: u64,
    count: u64,
) -> Result<(Vec<String>, Vec<String>)> {
    let places = ElementPlaces::new(&slice.parse()?, &tensor.shape)?;
    let (mut texts, mut bits) = (Vec::new(), Vec::new());
    places.each(files, tensor, start..start.saturating_add(count), |_, element| {
        texts.push(element_text(&tensor.dtype, element));
        bits.push(element.iter().rev().map(|byte| format!("{byte:02x}")).collect());
        Ok::<(), Error>(())
    })?;
    Ok((texts, bits))
}
