//! Stored bytes: elements in C order, still in the file's dtype and byte order. Layouts can be
//! nested; each is read by a [`LayoutMachine`], which may contain further ones.

mod cells;
mod chunked;
mod computed;
mod concat;
mod crosswise;
mod dequantised;
mod spread;
mod staged;
mod strided;
mod sweep;
mod table;
mod tiles;

use std::ops::Range;
use std::sync::Arc;

use statelens_checkpoint::{Area, Error, FileSet, Layout, Result, Span, size_text};

use self::chunked::Chunked;
use self::computed::Computed;
use self::concat::Concat;
use self::dequantised::Dequantised;
use self::spread::Spread;
use self::staged::Staged;
use self::strided::Strided;
use self::sweep::Sweep;
use self::tiles::Tiles;
use crate::shape::count;
use crate::unpack::Unpack;
use crate::view::dense_start;
use crate::{Need, Out};

/// Maximum nesting of concatenations, which is more than any reader creates.
const MAX_DEPTH: u32 = 8;

/// How many times the size of the result may be read without scratch, however large the result.
const MAX_TIMES: u64 = 16;

/// Bytes of a constant that are passed on at once, and in one step.
const FILL_PIECE: usize = 64 << 10;
const FILL_STEP: u64 = 4 << 20;

/// Bytes of scratch that are read at once.
const AREA_STEP: u64 = 1 << 20;

/// Data that all layouts of a tensor need.
pub(crate) struct Context<'a> {
    pub(crate) files: &'a FileSet,
    pub(crate) itemsize: u64,
    pub(crate) budget: usize,
    pub(crate) depth: u32,
}

impl Context<'_> {
    /// Fails if reading the same bytes repeatedly would take too long. `times` is the number of
    /// passes, `work` the total bytes to read.
    pub(crate) fn bearable(&self, times: u64, work: u64, wanted: u64) -> Result<()> {
        if self.files.scratch().is_some()
            || work <= self.files.limits().reread
            || work <= wanted.saturating_mul(MAX_TIMES)
        {
            return Ok(());
        }
        let (wanted, work) = (size_text(wanted), size_text(work));
        Err(Error::limit(format!(
            "the file stores the elements of a tensor in another order: to reorder its {wanted}, \
             the same bytes would be read {times} times here, {work} in all"
        ))
        .advice("The command `statelens` reads them once, with scratch space on disk."))
    }
}

#[derive(Debug)]
pub(crate) enum LayoutMachine {
    Done,
    Span(Span),
    Inline {
        bytes: Arc<[u8]>,
        range: Range<usize>,
    },
    Fill {
        piece: Vec<u8>,
        left: u64,
    },
    Unpack(Box<Unpack>),
    Strided(Box<Strided>),
    Chunked(Box<Chunked>),
    Concat(Box<Concat>),
    /// A range of bytes in scratch.
    Area {
        area: Arc<dyn Area>,
        range: Range<u64>,
    },
    Staged(Box<Staged>),
    Spread(Box<Spread>),
    Sweep(Box<Sweep>),
    Tiles(Box<Tiles>),
    Computed(Box<Computed>),
    Dequantised(Box<Dequantised>),
}

impl LayoutMachine {
    /// Creates the machine for the elements `range` of an array of `shape`; the size of both in
    /// bytes is known to fit in 64 bits.
    pub(crate) fn new(
        context: &Context<'_>,
        shape: &[u64],
        layout: &Layout,
        range: Range<u64>,
    ) -> Result<Self> {
        let itemsize = context.itemsize;
        if itemsize > context.files.limits().chunk {
            return Err(Error::limit(format!("one element has {itemsize} bytes")));
        }
        let total = count(shape)?
            .checked_mul(itemsize)
            .ok_or_else(|| Error::damaged("a tensor has more bytes than fit 64 bits"))?;
        let bytes = range.start * itemsize..range.end * itemsize;
        if bytes.is_empty() {
            return match layout {
                Layout::Missing(why) if total > 0 => Err(missing(why)),
                _ => Ok(Self::Done),
            };
        }
        match layout {
            Layout::Missing(why) => Err(missing(why)),
            Layout::Fill(item) => Self::fill(item, itemsize, range.end - range.start),
            Layout::Strided(view) => {
                if let Layout::Fill(item) = &*view.storage {
                    return Self::fill(item, itemsize, range.end - range.start);
                }
                match dense_start(view, shape, itemsize) {
                    Some(start) => {
                        let range = shifted(&bytes, start)?;
                        Self::storage(context, &view.storage, view.storage_len, range)
                    }
                    None => crosswise::start(context, shape, view, range),
                }
            }
            Layout::Chunked(chunked) => Chunked::start(context, shape, chunked, range),
            Layout::Concat(_)
            | Layout::Deferred(_)
            | Layout::Computed(_)
            | Layout::Dequantised(_)
                if context.depth == MAX_DEPTH =>
            {
                Err(Error::limit("parts of parts of a tensor, nested too deep"))
            }
            Layout::Deferred(deferred) => {
                let layout = deferred.layout(context.files, shape)?;
                let context = Context { depth: context.depth + 1, ..*context };
                Self::new(&context, shape, layout, range)
            }
            Layout::Computed(computed) => {
                let context = Context { depth: context.depth + 1, ..*context };
                Ok(Self::Computed(Box::new(Computed::new(&context, shape, computed, range)?)))
            }
            Layout::Dequantised(of) => {
                let context = Context { depth: context.depth + 1, ..*context };
                Ok(Self::Dequantised(Box::new(Dequantised::new(&context, shape, of, range)?)))
            }
            Layout::Concat(concat) => {
                Ok(Self::Concat(Box::new(Concat::new(context, shape, concat, range)?)))
            }
            Layout::Span(Span { len, .. })
            | Layout::Packed(statelens_checkpoint::Packed { len, .. })
                if *len != total =>
            {
                Err(wrong_length(*len, total))
            }
            Layout::Inline(inline) if inline.len() as u64 != total => {
                Err(wrong_length(inline.len() as u64, total))
            }
            Layout::Span(_) | Layout::Packed(_) | Layout::Inline(_) => {
                Self::storage(context, layout, total, bytes)
            }
        }
    }

    /// Creates the machine for the bytes `range` of a storage of `len` bytes; both ends are element
    /// boundaries.
    pub(crate) fn storage(
        context: &Context<'_>,
        layout: &Layout,
        len: u64,
        range: Range<u64>,
    ) -> Result<Self> {
        if range.is_empty() {
            return Ok(Self::Done);
        }
        let (files, itemsize) = (context.files, context.itemsize);
        let there = match layout {
            Layout::Concat(parts) => count(&concat::shape(parts)?)?.saturating_mul(itemsize),
            Layout::Span(span) => span.len,
            Layout::Packed(packed) => packed.len,
            Layout::Inline(bytes) => bytes.len() as u64,
            Layout::Missing(why) => return Err(missing(why)),
            _ => {
                return Err(Error::unsupported(
                    "a view of a storage that is itself in parts can't be read",
                ));
            }
        };
        if len > there || range.end > len {
            return Err(Error::damaged(format!(
                "a tensor needs bytes {} to {} of a storage of {}",
                range.start,
                range.end,
                len.min(there)
            )));
        }
        match layout {
            Layout::Packed(packed) => {
                check_span(files, &packed.span)?;
                Ok(Self::Unpack(Box::new(Unpack::new(packed, range)?)))
            }
            Layout::Inline(bytes) => {
                // Both ends are at most the length of a slice, so they fit in a `usize`.
                let range = range.start as usize..range.end as usize;
                Ok(Self::Inline { bytes: bytes.clone(), range })
            }
            Layout::Span(span) => {
                check_span(files, span)?;
                let offset = span.offset + range.start;
                Ok(Self::Span(Span { file: span.file, offset, len: range.end - range.start }))
            }
            Layout::Concat(parts) => {
                let shape = concat::shape(parts)?;
                Self::new(context, &shape, layout, range.start / itemsize..range.end / itemsize)
            }
            _ => Ok(Self::Done),
        }
    }

    /// Creates the machine for `count` copies of the element `item`.
    pub(crate) fn fill(item: &[u8], itemsize: u64, count: u64) -> Result<Self> {
        if item.len() as u64 != itemsize || item.is_empty() {
            return Err(Error::damaged(format!(
                "a constant of {} bytes fills a tensor whose elements have {itemsize}",
                item.len()
            )));
        }
        let copies = (FILL_PIECE / item.len()).max(1) as u64;
        let piece = item.repeat(copies.min(count) as usize);
        Ok(Self::Fill { piece, left: count * itemsize })
    }

    pub(crate) fn need(&self) -> Need {
        match self {
            Self::Done => Need::Done,
            Self::Span(span) => Need::Feed(*span),
            Self::Inline { .. } | Self::Fill { .. } | Self::Area { .. } => Need::Step,
            Self::Staged(staged) => staged.need(),
            Self::Spread(spread) => spread.need(),
            Self::Sweep(sweep) => sweep.need(),
            Self::Tiles(tiles) => tiles.need(),
            Self::Unpack(unpack) => unpack.need(),
            Self::Strided(strided) => strided.need(),
            Self::Chunked(chunked) => chunked.need(),
            Self::Concat(concat) => concat.need(),
            Self::Computed(computed) => computed.need(),
            Self::Dequantised(machine) => machine.need(),
        }
    }

    /// Takes the next bytes; at most as many as `need` returned.
    pub(crate) fn feed(&mut self, bytes: &[u8], out: &mut Out<'_>) -> Result<()> {
        match self {
            Self::Span(span) => {
                span.offset += bytes.len() as u64;
                span.len -= bytes.len() as u64;
                if span.len == 0 {
                    *self = Self::Done;
                }
                out(bytes)
            }
            Self::Unpack(unpack) => unpack.feed(bytes, out),
            Self::Strided(strided) => strided.feed(bytes, out),
            Self::Chunked(chunked) => chunked.feed(bytes, out),
            Self::Concat(concat) => concat.feed(bytes, out),
            Self::Computed(computed) => computed.feed(bytes, out),
            Self::Dequantised(machine) => machine.feed(bytes, out),
            Self::Staged(staged) => staged.feed(bytes, out),
            Self::Spread(spread) => spread.feed(bytes, out),
            Self::Sweep(sweep) => sweep.feed(bytes, out),
            Self::Done
            | Self::Inline { .. }
            | Self::Fill { .. }
            | Self::Area { .. }
            | Self::Tiles(_) => Ok(()),
        }
    }

    pub(crate) fn step(&mut self, files: &FileSet, out: &mut Out<'_>) -> Result<()> {
        match self {
            Self::Inline { bytes, range } => {
                let bytes = bytes.clone();
                let range = range.clone();
                *self = Self::Done;
                out(&bytes[range])
            }
            Self::Fill { piece, left } => {
                let mut now = (*left).min(FILL_STEP);
                while now > 0 {
                    let take = now.min(piece.len() as u64);
                    out(&piece[..take as usize])?;
                    now -= take;
                    *left -= take;
                }
                if *left == 0 {
                    *self = Self::Done;
                }
                Ok(())
            }
            Self::Strided(strided) => strided.step(files, out),
            Self::Chunked(chunked) => chunked.step(out),
            Self::Concat(concat) => concat.step(files, out),
            Self::Computed(computed) => computed.step(files, out),
            Self::Dequantised(machine) => machine.step(files, out),
            Self::Area { area, range } => {
                let len = (range.end - range.start).min(AREA_STEP);
                let mut bytes = vec![0; len as usize];
                area.read_at(range.start, &mut bytes)?;
                range.start += len;
                if range.is_empty() {
                    *self = Self::Done;
                }
                out(&bytes)
            }
            Self::Staged(staged) => staged.step(files, out),
            Self::Spread(spread) => spread.step(out),
            Self::Sweep(sweep) => sweep.step(files, out),
            Self::Tiles(tiles) => tiles.step(out),
            Self::Done | Self::Span(_) | Self::Unpack(_) => Ok(()),
        }
    }
}

/// Fails if the span is not within its file.
pub(crate) fn check_span(files: &FileSet, span: &Span) -> Result<()> {
    files.source(span.file)?;
    let len = files.len(span.file);
    if span.offset.checked_add(span.len).is_some_and(|end| end <= len) {
        return Ok(());
    }
    Err(Error::damaged(format!(
        "a tensor's {} bytes should be there, but the file ends at byte {len}",
        span.len
    ))
    .at(span.offset)
    .in_file(files.name(span.file))
    .advice("The file may be cut short: compare its size with the original."))
}

fn shifted(range: &Range<u64>, by: u64) -> Result<Range<u64>> {
    match (range.start.checked_add(by), range.end.checked_add(by)) {
        (Some(start), Some(end)) => Ok(start..end),
        _ => Err(Error::damaged("a view starts further in its storage than 64 bits can count")),
    }
}

fn wrong_length(found: u64, expected: u64) -> Error {
    Error::damaged(format!("a tensor has {found} bytes"))
        .expected(format!("{expected} for its shape and dtype"))
}

fn missing(why: &statelens_checkpoint::Text) -> Error {
    Error::unsupported(format!("the tensor has no bytes: {why}"))
}
