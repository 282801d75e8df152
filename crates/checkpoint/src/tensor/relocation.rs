//! Tensors of one set of files as tensors of another one.

use std::sync::Arc;

use super::{Chunk, Chunked, Chunks, Computed, Concat, Deferred, Layout, Locate, Packed, Part};
use super::{Product, Strided, Tensor};
use crate::{FileId, FileSet, Result, Span};

/// The files of a set that were added to another one.
#[derive(Debug, Clone)]
pub struct Relocation {
    files: FileSet,
    /// The id of the first file in the other set.
    first: u32,
}

impl Relocation {
    /// Adds the files of `from` to `to`.
    pub fn new(from: &FileSet, to: &mut FileSet) -> Self {
        let first = to.count() as u32;
        for (_, file) in from.iter() {
            to.push_file(file.clone());
        }
        Self { files: from.clone(), first }
    }

    /// Returns a tensor of the first set as a tensor of the other one. Its storage and quantizer are
    /// those of the first set.
    pub fn tensor(&self, tensor: &Tensor) -> Tensor {
        Tensor { layout: self.layout(&tensor.layout), ..tensor.clone() }
    }

    fn layout(&self, layout: &Layout) -> Layout {
        match layout {
            Layout::Span(span) => Layout::Span(self.span(*span)),
            Layout::Strided(strided) => Layout::Strided(Strided {
                storage: Arc::new(self.layout(&strided.storage)),
                ..strided.clone()
            }),
            Layout::Chunked(chunked) => Layout::Chunked(Chunked {
                shape: chunked.shape.clone(),
                chunks: Arc::new(Relocated { of: chunked.chunks.clone(), by: self.clone() }),
            }),
            Layout::Packed(packed) => {
                Layout::Packed(Packed { span: self.span(packed.span), ..*packed })
            }
            Layout::Concat(concat) => {
                let part = |part: &Part| Part {
                    shape: part.shape.clone(),
                    layout: self.layout(&part.layout),
                };
                let parts = concat.parts.iter().map(part).collect();
                Layout::Concat(Concat { axis: concat.axis, parts })
            }
            Layout::Deferred(deferred) => {
                let locate = Relocated { of: deferred.clone(), by: self.clone() };
                Layout::Deferred(Deferred::new(self.span(deferred.span()), Arc::new(locate)))
            }
            Layout::Computed(computed) => Layout::Computed(Arc::new(Computed {
                of: self.tensor(&computed.of),
                steps: computed.steps.clone(),
                product: computed.product.as_ref().map(|product| Product {
                    left: self.tensor(&product.left),
                    right: self.tensor(&product.right),
                    ..product.clone()
                }),
            })),
            Layout::Dequantised(dequantised) => {
                let moved = dequantised.with_parts(|part| self.tensor(part));
                Layout::Dequantised(Arc::new(moved))
            }
            Layout::Fill(_) | Layout::Inline(_) | Layout::Missing(_) => layout.clone(),
        }
    }

    fn span(&self, span: Span) -> Span {
        Span { file: FileId(span.file.0.saturating_add(self.first)), ..span }
    }
}

/// What a layout looks up in the first set.
#[derive(Debug)]
struct Relocated<T> {
    of: T,
    by: Relocation,
}

impl Chunks for Relocated<Arc<dyn Chunks>> {
    fn table(&self, _: &FileSet) -> Result<Vec<Chunk>> {
        let mut table = self.of.table(&self.by.files)?;
        for chunk in &mut table {
            chunk.span = self.by.span(chunk.span);
        }
        Ok(table)
    }

    fn decode(&self, chunk: &Chunk, stored: &[u8], out: &mut Vec<u8>) -> Result<()> {
        self.of.decode(chunk, stored, out)
    }

    fn fill(&self) -> &[u8] {
        self.of.fill()
    }

    fn describe(&self) -> String {
        self.of.describe()
    }
}

impl Locate for Relocated<Deferred> {
    fn locate(&self, _: &FileSet, _: Span, shape: &[u64]) -> Result<Layout> {
        Ok(self.by.layout(self.of.layout(&self.by.files, shape)?))
    }
}
