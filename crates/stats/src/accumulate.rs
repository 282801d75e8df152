//! The loops over elements. Each block is read twice while it is in the cache: once for work that
//! can be vectorised, once to count.

use statelens_checkpoint::DType;

use crate::Summary;
use crate::begun::Begun;
use crate::block::BlockTally;
use crate::kind::{ElementKind, Int};
use crate::spread::{KEPT, Spread};
use crate::tables::CountTables;

/// Returns whether [`Accumulator`] accepts elements of this dtype: floats, complex numbers,
/// integers and booleans, but not bits, strings, records or quantised blocks.
pub fn has_statistics(dtype: &DType) -> bool {
    ElementKind::of(dtype).is_some()
}

/// Makes a [`Summary`] of logical bytes as they arrive. It uses up to 5 MB of memory and can be
/// reused for further tensors or parts of tensors.
#[derive(Debug, Default)]
pub struct Accumulator {
    kind: Option<ElementKind>,
    summary: Summary,
    tables: CountTables,
    /// The index of the element that is read next.
    at: u64,
    begun: Begun,
    /// All bytes so far, as long as they are few.
    kept: Vec<u8>,
    /// Whether there were too many bytes for `kept`, so that they are counted as they arrive.
    streaming: bool,
    /// Number of elements counted in the tables.
    counted: u64,
}

/// Bytes that are processed at a time.
const BLOCK: usize = 16 << 10;

/// Number of elements that the tables can count before one of their sums may overflow. Tables of codes
/// have no sums, and emptying them takes longer, since they have more entries.
const MAX_ELEMENTS: u64 = 1 << 21;
const MAX_CODES: u64 = 1 << 31;

/// Up to this number of elements, only the table entries that they use are visited when the tables
/// are flushed.
const MAX_SPARSE: usize = 1 << 13;

impl Accumulator {
    /// Returns an accumulator without a tensor.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins with a tensor of this dtype at the element index `start` (in C order). Discards
    /// everything fed before. Returns `false` if the elements are not numeric.
    pub fn begin(&mut self, dtype: &DType, start: u64) -> bool {
        self.finish();
        let kind = ElementKind::of(dtype);
        // An element of two values counts as two.
        self.at = start.saturating_mul(kind.as_ref().map_or(1, ElementKind::values));
        self.kind = kind;
        self.kind.is_some()
    }

    /// Processes the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        let Some(kind) = self.kind.take() else { return };
        if !self.streaming {
            let most = kind.size().saturating_mul(KEPT as usize) / kind.values() as usize;
            if self.kept.len() + bytes.len() <= most {
                self.kept.extend_from_slice(bytes);
                self.kind = Some(kind);
                return;
            }
            self.streaming = true;
            let kept = std::mem::take(&mut self.kept);
            self.count(&kind, &kept);
        }
        self.count(&kind, bytes);
        self.kind = Some(kind);
    }

    /// Returns the summary of the bytes fed since [`Accumulator::begin`]. An incomplete element at
    /// the end is ignored.
    pub fn finish(&mut self) -> Summary {
        if let Some(kind) = self.kind.take() {
            let kept = std::mem::take(&mut self.kept);
            self.count(&kind, &kept);
            let kept = (!self.streaming).then_some(kept.as_slice());
            self.flush(&kind, kept.filter(|kept| kept.len() <= MAX_SPARSE * kind.size()));
            if let (Spread::Binned { kept: values, .. }, Some(kept)) =
                (&mut self.summary.spread, kept)
            {
                *values = Some(kind.doubles(kept));
            }
        }
        self.begun.clear();
        self.kept.clear();
        self.streaming = false;
        std::mem::take(&mut self.summary)
    }

    fn count(&mut self, kind: &ElementKind, bytes: &[u8]) {
        let mut begun = std::mem::take(&mut self.begun);
        begun.feed(kind.size(), bytes, &mut |elements| self.blocks(kind, elements));
        self.begun = begun;
    }

    /// Counts complete elements.
    fn blocks(&mut self, kind: &ElementKind, elements: &[u8]) {
        for block in elements.chunks(BLOCK) {
            let mut into =
                BlockTally { summary: &mut self.summary, tables: &mut self.tables, at: self.at };
            match kind {
                ElementKind::Bytes(codes) => {
                    into.bytes(&codes.values, codes.seconds.as_ref(), block)
                }
                ElementKind::Halves(half) => into.halves(*half, block.as_chunks().0),
                ElementKind::F32 => into.singles(block.as_chunks().0),
                ElementKind::F64 => {
                    let numbers = block.as_chunks().0.iter().map(|it| u64::from_le_bytes(*it));
                    into.doubles(f64::MIN_POSITIVE, numbers);
                }
                ElementKind::Ints(int) => match int {
                    Int::I32 => into.ints(block.as_chunks().0, |it| i32::from_le_bytes(it).into()),
                    Int::U32 => into.ints(block.as_chunks().0, |it| u32::from_le_bytes(it).into()),
                    Int::I64 => into.ints(block.as_chunks().0, |it| i64::from_le_bytes(it).into()),
                    Int::U64 => into.ints(block.as_chunks().0, |it| u64::from_le_bytes(it).into()),
                },
                ElementKind::Complex(part) => {
                    let numbers = block.chunks_exact(kind.size());
                    into.doubles(part.normal(), numbers.map(|it| part.modulus(it).to_bits()));
                }
            }
            let elements = (block.len() / kind.size()) as u64;
            self.at += elements * kind.values();
            self.counted += elements;
            let most = match kind {
                ElementKind::Bytes(_) | ElementKind::Halves(_) => MAX_CODES,
                _ => MAX_ELEMENTS,
            };
            if self.counted >= most {
                self.flush(kind, None);
            }
        }
    }

    /// Moves the contents of the tables into the summary. `few` holds all counted elements if they
    /// are few.
    fn flush(&mut self, kind: &ElementKind, sparse: Option<&[u8]>) {
        self.counted = 0;
        let (summary, tables) = (&mut self.summary, &mut self.tables);
        match kind {
            ElementKind::Bytes(codes) => tables.flush_bytes(codes, summary),
            ElementKind::Halves(half) => tables.flush_halves(*half, sparse, summary),
            ElementKind::F32 => tables.flush_singles(sparse, summary),
            _ => {
                let sparse = sparse.map(|sparse| kind.doubles(sparse));
                let counts = tables.flush_wide(sparse.as_deref(), summary);
                tables.flush_spread(counts, summary);
            }
        }
    }
}
