//! Elements that are computed from those of another tensor, one by one.

use std::ops::Range;

use statelens_checkpoint as checkpoint;
use statelens_checkpoint::{Arithmetic, DType, Error, FileSet, Result, Tensor};

use crate::cast::Cast;
use crate::stored::{Context, Stored};
use crate::transform::Transform;
use crate::{Need, Out};

/// Reads the other tensor's logical elements and computes with them.
#[derive(Debug)]
pub(crate) struct Computed {
    stored: Stored,
    transform: Transform,
    arithmetic: Compute,
}

impl Computed {
    pub(crate) fn new(
        context: &Context<'_>,
        shape: &[u64],
        computed: &checkpoint::Computed,
        range: Range<u64>,
    ) -> Result<Self> {
        let of = &computed.of;
        let plain = !matches!(of.stored, DType::Blocks(_)) && !matches!(of.dtype, DType::Blocks(_));
        if of.shape != shape || of.dtype.itemsize() != context.itemsize || !plain {
            return Err(Error::damaged(format!(
                "what a tensor of shape {shape:?} is computed from has shape {:?} and dtype {}",
                of.shape, of.dtype
            )));
        }
        let first = range.start;
        let inner = Context { itemsize: of.stored.itemsize(), ..*context };
        Ok(Self {
            stored: Stored::new(&inner, shape, &of.layout, range)?,
            transform: Transform::new(of)?,
            arithmetic: Compute::new(of, &computed.steps, first)?,
        })
    }

    pub(crate) fn need(&self) -> Need {
        self.stored.need()
    }

    pub(crate) fn feed(&mut self, bytes: &[u8], out: &mut Out<'_>) -> Result<()> {
        let Self { stored, transform, arithmetic } = self;
        stored.feed(bytes, &mut |piece| {
            transform.feed(piece, &mut |elements| arithmetic.run(elements, out))
        })?;
        self.finish()
    }

    pub(crate) fn step(&mut self, files: &FileSet, out: &mut Out<'_>) -> Result<()> {
        let Self { stored, transform, arithmetic } = self;
        stored.step(files, &mut |piece| {
            transform.feed(piece, &mut |elements| arithmetic.run(elements, out))
        })?;
        self.finish()
    }

    fn finish(&self) -> Result<()> {
        match self.need() {
            Need::Done if !self.arithmetic.part.is_empty() => {
                Err(Error::damaged("the last element of a tensor is cut off"))
            }
            Need::Done => self.transform.finish(),
            _ => Ok(()),
        }
    }
}

/// What is done to little-endian elements of one dtype.
#[derive(Debug)]
struct Compute {
    steps: Vec<Arithmetic>,
    kind: Kind,
    /// The place of the next element in the tensor.
    index: u64,
    /// The start of an element that is not complete.
    part: Vec<u8>,
    bytes: Vec<u8>,
}

/// How numbers of the dtype are computed with: torch computes with small floats in 32 bits and
/// rounds after each operation.
#[derive(Debug)]
enum Kind {
    /// Nothing is computed.
    As,
    F32,
    F64,
    Small {
        widen: Box<Cast>,
        narrow: Box<Cast>,
        wide: Vec<u8>,
        one: Vec<u8>,
    },
}

impl Compute {
    fn new(of: &Tensor, steps: &[Arithmetic], index: u64) -> Result<Self> {
        let kind = match &of.dtype {
            _ if steps.is_empty() => Kind::As,
            DType::F32 => Kind::F32,
            DType::F64 => Kind::F64,
            small @ (DType::F16 | DType::BF16) => Kind::Small {
                widen: Box::new(Cast::new(small, &DType::F32)?),
                narrow: Box::new(Cast::new(&DType::F32, small)?),
                wide: Vec::new(),
                one: Vec::new(),
            },
            other => {
                return Err(Error::unsupported(format!(
                    "computing with elements of dtype {other}"
                ))
                .expected("float16, bfloat16, float32 or float64"));
            }
        };
        Ok(Self { steps: steps.to_vec(), kind, index, part: Vec::new(), bytes: Vec::new() })
    }

    fn run(&mut self, piece: &[u8], out: &mut Out<'_>) -> Result<()> {
        let size = match &self.kind {
            Kind::As => return out(piece),
            Kind::F64 => 8,
            Kind::F32 => 4,
            Kind::Small { .. } => 2,
        };
        self.part.extend_from_slice(piece);
        let whole = self.part.len() - self.part.len() % size;
        self.bytes.clear();
        self.bytes.extend_from_slice(&self.part[..whole]);
        self.part.drain(..whole);
        let Self { steps, kind, index, bytes, .. } = self;
        for step in steps.iter() {
            match kind {
                Kind::As => {}
                Kind::F32 => each_f32(bytes, *step, *index),
                Kind::F64 => each_f64(bytes, *step, *index),
                Kind::Small { widen, narrow, wide, one } => {
                    widen.run(bytes, wide);
                    each_f32(wide, *step, *index);
                    narrow.run(wide, one);
                    std::mem::swap(bytes, one);
                }
            }
        }
        *index += (whole / size) as u64;
        if bytes.is_empty() { Ok(()) } else { out(bytes) }
    }
}

fn each_f32(bytes: &mut [u8], step: Arithmetic, first: u64) {
    let mut index = first;
    for element in bytes.as_chunks_mut::<4>().0 {
        let number = f32::from_le_bytes(*element);
        let number = match step {
            Arithmetic::Add(by) => number + by as f32,
            Arithmetic::Multiply(by) => number * by as f32,
            Arithmetic::Divide(by) => number / by as f32,
            Arithmetic::NanToZero if number.is_nan() => 0.0,
            Arithmetic::NanToZero => number,
            Arithmetic::Normal { .. } | Arithmetic::Uniform { .. } => random(step, index) as f32,
        };
        *element = number.to_le_bytes();
        index += 1;
    }
}

fn each_f64(bytes: &mut [u8], step: Arithmetic, first: u64) {
    let mut index = first;
    for element in bytes.as_chunks_mut::<8>().0 {
        let number = f64::from_le_bytes(*element);
        let number = match step {
            Arithmetic::Add(by) => number + by,
            Arithmetic::Multiply(by) => number * by,
            Arithmetic::Divide(by) => number / by,
            Arithmetic::NanToZero if number.is_nan() => 0.0,
            Arithmetic::NanToZero => number,
            Arithmetic::Normal { .. } | Arithmetic::Uniform { .. } => random(step, index),
        };
        *element = number.to_le_bytes();
        index += 1;
    }
}

/// The random number of a place: a hash of it, so that parts can be read in any order.
fn random(step: Arithmetic, index: u64) -> f64 {
    match step {
        Arithmetic::Normal { deviation, seed } => {
            let (radius, angle) = (unit(seed, 2 * index), unit(seed, 2 * index + 1));
            // 1 - u is never 0.
            let radius = (-2.0 * (1.0 - radius).ln()).sqrt();
            deviation * radius * (std::f64::consts::TAU * angle).cos()
        }
        Arithmetic::Uniform { bound, seed } => bound * (2.0 * unit(seed, index) - 1.0),
        _ => 0.0,
    }
}

/// A number from 0 up to but not 1, by SplitMix64.
fn unit(seed: u64, index: u64) -> f64 {
    let mut bits = seed ^ index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use statelens_checkpoint::{ByteOrder, Concat, Layout, Memory, Part, Span};

    use super::*;
    use crate::elements;

    fn computed(of: Tensor, steps: &[Arithmetic]) -> Tensor {
        let (dtype, shape) = (of.dtype.clone(), of.shape.clone());
        let computed = checkpoint::Computed { of, steps: steps.to_vec() };
        Tensor::new(dtype, shape, Layout::Computed(Arc::new(computed)))
    }

    fn source(dtype: DType, bytes: Vec<u8>, len: u64) -> (FileSet, Tensor) {
        let span_len = bytes.len() as u64;
        let files = FileSet::single("x", Memory::from(bytes));
        let file = files.main().unwrap();
        let span = Span { file, offset: 0, len: span_len };
        (files, Tensor::new(dtype, vec![len], Layout::Span(span)))
    }

    #[test]
    fn small_floats_are_rounded_after_each_step() {
        // 1.0078125 + 1 is not a bfloat16: it is rounded to even.
        let (files, of) = source(DType::BF16, vec![0x81, 0x3f, 0x83, 0x3f], 2);
        let added = computed(of, &[Arithmetic::Add(1.0)]);
        assert_eq!(elements(&files, &added, 0..2).unwrap(), [0x00, 0x40, 0x02, 0x40]);
        assert_eq!(elements(&files, &added, 1..2).unwrap(), [0x02, 0x40]);
    }

    #[test]
    fn elements_are_computed_in_parts_and_other_byte_orders() {
        let bytes = [1f32, f32::NAN, 3.0].iter().flat_map(|x| x.to_be_bytes()).collect();
        let (files, mut of) = source(DType::F32, bytes, 3);
        of.byte_order = ByteOrder::Big;
        let steps = [Arithmetic::NanToZero, Arithmetic::Multiply(6.0), Arithmetic::Divide(4.0)];
        let part = computed(of, &steps);
        let parts = vec![Part { shape: vec![3], layout: part.layout.clone() }; 2];
        let both = Layout::Concat(Concat { axis: 0, parts });
        let both = Tensor::new(DType::F32, vec![6], both);
        let expected: Vec<u8> = [0f32, 4.5, 1.5].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(elements(&files, &both, 1..4).unwrap(), expected);
    }

    #[test]
    fn random_numbers_are_the_same_wherever_one_begins() {
        let fill = Layout::Fill([0; 4].into());
        let of = Tensor::new(DType::F32, vec![10_000], fill);
        let normal = computed(of, &[Arithmetic::Normal { deviation: 0.02, seed: 7 }]);
        let files = FileSet::default();
        let all = elements(&files, &normal, 0..10_000).unwrap();
        assert_eq!(all[4 * 5000..], elements(&files, &normal, 5000..10_000).unwrap());
        let numbers: Vec<f32> =
            all.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
        let mean = numbers.iter().sum::<f32>() / 1e4;
        let deviation = (numbers.iter().map(|x| x * x).sum::<f32>() / 1e4).sqrt();
        assert!(mean.abs() < 1e-3 && (deviation - 0.02).abs() < 1e-3, "{mean} {deviation}");
    }

    #[test]
    fn whole_numbers_are_refused() {
        let (files, of) = source(DType::I64, vec![0; 8], 1);
        let added = computed(of, &[Arithmetic::Add(1.0)]);
        assert!(elements(&files, &added, 0..1).is_err());
    }
}
