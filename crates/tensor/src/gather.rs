//! A state machine that turns the bytes of files into the logical bytes of a tensor.

use std::ops::Range;

use statelens_checkpoint::{Error, FileId, FileSet, Layout, Part, Result, Span, Tensor, numel};

use crate::blocks::{self, Trim};
use crate::stored::{Context, LayoutMachine};
use crate::transform::Transform;
use crate::view::{dense_span, dense_start};
use crate::{CastReport, Need, Out};

/// The default memory budget of a [`Gather`], in bytes.
pub const BUDGET: usize = 16 << 20;

/// Rows of a matrix that are read together if it is stored by columns: enough for long runs of bytes.
const SWAPPED_ROWS: u64 = 1024;

/// Returns a number of elements: reads that start at multiples of it share no reading or decoding
/// work. `None` if the tensor can only be read as a whole.
pub fn grain(tensor: &Tensor) -> Option<u64> {
    match &tensor.layout {
        Layout::Span(_) => Some(1),
        // All chunks that begin at one index of the first dimension, if a gather can hold them.
        Layout::Chunked(chunked) => {
            let rest =
                tensor.shape.get(1..)?.iter().try_fold(1u64, |len, dim| len.checked_mul(*dim))?;
            let elements = chunked.shape.first()?.checked_mul(rest)?;
            let bytes = elements.checked_mul(tensor.stored.itemsize())?;
            (elements > 0 && bytes <= BUDGET as u64 / 4).then_some(elements)
        }
        Layout::Dequantised(of) => {
            let [_, rows, columns] = of.shape;
            // Codes of several rows share a word if rows are the columns of the stored matrix.
            let elements = if of.swapped { rows.checked_mul(SWAPPED_ROWS)? } else { columns };
            Some(elements).filter(|elements| *elements > 0)
        }
        _ => None,
    }
}

/// Turns the bytes of files into the logical bytes of a tensor, or of a part of it.
///
/// ```
/// # use statelens_checkpoint::*;
/// # use statelens_tensor::*;
/// # let files = FileSet::single("x", Memory::from(vec![0, 0, 0x80, 0x3f]));
/// # let span = Span { file: files.main()?, offset: 0, len: 4 };
/// # let tensor = Tensor::new(DType::F32, vec![1], Layout::Span(span));
/// let mut logical = Vec::new();
/// let mut out = |bytes: &[u8]| { logical.extend_from_slice(bytes); Ok(()) };
/// let mut gather = Gather::new(&files, &tensor, 0..1, BUDGET)?;
/// loop {
///     match gather.need() {
///         Need::Feed(span) => {
///             let piece = files.read_vec(span.file, span.offset, span.len.min(3))?;
///             gather.feed(&piece, &mut out)?;
///         }
///         Need::Step => gather.step(&files, &mut out)?,
///         Need::Done => break,
///     }
/// }
/// assert_eq!(logical, 1f32.to_le_bytes());
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Gather {
    stored: LayoutMachine,
    transform: Transform,
    trim: Option<Trim>,
}

impl Gather {
    /// Creates a machine for the elements `range`, counted in C order.
    ///
    /// Holds about `budget` bytes, plus one chunk if the tensor is chunked. If its elements are
    /// stored in another order and the files have scratch, the elements are reordered there, so
    /// that each byte of the file is requested at most a few times. Fails if the layout does not
    /// fit the tensor or the files, if bytes are missing, if the cast is unknown, or if reordering
    /// would take too much scratch, or too long without scratch.
    pub fn new(files: &FileSet, tensor: &Tensor, range: Range<u64>, budget: usize) -> Result<Self> {
        let (Some(numel), Some(_)) = (tensor.numel(), tensor.nbytes()) else {
            return Err(Error::damaged(format!(
                "a tensor of shape {:?} has more elements than can be counted",
                tensor.shape
            )));
        };
        if range.start > range.end || range.end > numel {
            return Err(Error::io(format!(
                "elements {} to {} were requested from a tensor that has {numel}",
                range.start, range.end
            )));
        }
        let (shape, range, trim) = blocks::units(tensor, range)?;
        let context = Context { files, itemsize: tensor.stored.itemsize(), budget, depth: 0 };
        Ok(Self {
            stored: LayoutMachine::new(&context, &shape, &tensor.layout, range)?,
            transform: Transform::new(tensor)?,
            trim,
        })
    }

    pub fn need(&self) -> Need {
        self.stored.need()
    }

    /// Takes the next bytes of the span from [`Gather::need`], at most as many as its length.
    ///
    /// If the logical bytes equal those of the file, `bytes` is passed to `out` without a copy.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Out<'_>) -> Result<()> {
        match self.stored.need() {
            Need::Feed(span) if bytes.len() as u64 <= span.len => {}
            need => {
                return Err(Error::io(format!(
                    "{} bytes were fed while {need:?} was needed",
                    bytes.len()
                )));
            }
        }
        let Self { stored, transform, trim } = self;
        stored.feed(bytes, &mut |piece| pass_on(transform, trim, piece, out))?;
        self.finish()
    }

    /// Continues if no bytes are needed; passes on a bounded number of bytes, perhaps none.
    pub fn step(&mut self, files: &FileSet, out: &mut Out<'_>) -> Result<()> {
        let Self { stored, transform, trim } = self;
        stored.step(files, &mut |piece| pass_on(transform, trim, piece, out))?;
        self.finish()
    }

    /// Returns the effects of casting on the elements so far; all zero if nothing is cast.
    pub fn cast_report(&self) -> CastReport {
        self.transform.report()
    }

    fn finish(&self) -> Result<()> {
        if self.stored.need() == Need::Done { self.transform.finish() } else { Ok(()) }
    }
}

fn pass_on(
    transform: &mut Transform,
    trim: &mut Option<Trim>,
    piece: &[u8],
    out: &mut Out<'_>,
) -> Result<()> {
    match trim {
        None => transform.feed(piece, out),
        Some(trim) => transform.feed(piece, &mut |logical| match trim.cut(logical) {
            [] => Ok(()),
            wanted => out(wanted),
        }),
    }
}

/// Returns the span of a file that holds exactly the logical bytes, if there is one: such bytes can
/// be copied without decoding. Also finds dense views of a storage.
pub fn verbatim_span(tensor: &Tensor) -> Option<Span> {
    let span = match &tensor.layout {
        Layout::Span(span) => *span,
        Layout::Strided(view) => dense_span(view, &tensor.shape, tensor.stored.itemsize())?,
        _ => return None,
    };
    (is_plain(tensor) && tensor.nbytes() == Some(span.len)).then_some(span)
}

/// Returns whether the logical bytes are those of the file, one after another.
fn is_plain(tensor: &Tensor) -> bool {
    let span = Layout::Span(Span { file: FileId(0), offset: 0, len: 0 });
    Tensor { layout: span, ..tensor.clone() }.is_verbatim()
}

/// Returns the spans of files whose bytes, one span after another, are the logical bytes of the
/// elements `range`. A tensor in pieces of whole rows has such spans. `None` if the tensor has no
/// such spans, or if they are too short to copy one by one.
pub fn verbatim_spans(files: &FileSet, tensor: &Tensor, range: &Range<u64>) -> Option<Vec<Span>> {
    let (start, end) = (tensor.dtype.bytes_of(range.start)?, tensor.dtype.bytes_of(range.end)?);
    if !is_plain(tensor) {
        return None;
    }
    let mut spans = Vec::new();
    let item = tensor.stored.itemsize();
    append(files, &tensor.shape, &tensor.layout, item, MAX_NESTED, &mut spans)?;
    let spans = within(&spans, start..end)?;
    (spans.len() as u64 <= 1 + (end - start) / MIN_SPAN).then_some(spans)
}

/// Nesting of concatenations in which spans are found.
const MAX_NESTED: usize = 8;

/// Average length in bytes of several spans that are worth a step each.
const MIN_SPAN: u64 = 256 << 10;

/// Appends the spans of a layout. Recurses at most `levels` deep.
fn append(
    files: &FileSet,
    shape: &[u64],
    layout: &Layout,
    item: u64,
    levels: usize,
    spans: &mut Vec<Span>,
) -> Option<()> {
    let levels = levels.checked_sub(1)?;
    let bytes = numel(shape)?.checked_mul(item)?;
    match layout {
        Layout::Span(span) => (span.len == bytes).then(|| spans.push(*span)),
        Layout::Deferred(deferred) => {
            // Reading the tensor reports why it can't be located.
            let found = deferred.layout(files, shape).ok()?;
            append(files, shape, found, item, levels, spans)
        }
        Layout::Concat(concat) => {
            // Parts along another axis alternate.
            let before = shape.get(..concat.axis)?;
            let parts = &concat.parts;
            let add = |part: &Part, spans: &mut Vec<Span>| {
                let alike = part.shape.get(..concat.axis)? == before;
                append(files, &part.shape, &part.layout, item, levels, spans).filter(|()| alike)
            };
            if before.iter().any(|len| *len != 1) {
                return None;
            }
            let first = spans.len();
            parts.iter().try_for_each(|part| add(part, spans))?;
            let added = spans.iter().skip(first).try_fold(0u64, |sum, it| sum.checked_add(it.len));
            (added == Some(bytes)).then_some(())
        }
        Layout::Strided(view) => {
            let start = dense_start(view, shape, item)?;
            let end = start.checked_add(bytes)?;
            let mut storage = Vec::new();
            match &*view.storage {
                Layout::Span(span) => storage.push(*span),
                // A storage in parts has one dimension.
                layout @ Layout::Concat(_) => {
                    let len = view.storage_len / item.max(1);
                    append(files, &[len], layout, item, levels, &mut storage)?;
                }
                _ => return None,
            }
            spans.extend(within(&storage, start..end)?);
            Some(())
        }
        _ => None,
    }
}

/// Returns the part of spans that holds a range of their bytes; neighbours in a file become one.
fn within(spans: &[Span], range: Range<u64>) -> Option<Vec<Span>> {
    let mut found: Vec<Span> = Vec::new();
    let mut at = 0u64;
    for span in spans {
        let end = at.checked_add(span.len)?;
        let (from, to) = (range.start.max(at), range.end.min(end));
        if from < to {
            let offset = span.offset.checked_add(from - at)?;
            match found.last_mut() {
                Some(last) if last.file == span.file && last.offset + last.len == offset => {
                    last.len += to - from;
                }
                _ => found.push(Span { file: span.file, offset, len: to - from }),
            }
        }
        at = end;
    }
    (range.end <= at).then_some(found)
}
