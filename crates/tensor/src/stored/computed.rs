//! Elements that are computed one by one from those of another tensor.

use std::ops::Range;

use statelens_checkpoint as checkpoint;
use statelens_checkpoint::{Arithmetic, DType, Error, FileSet, Limits, Result, Rounding, Tensor};

use super::{Context, LayoutMachine};
use crate::cast::Cast;
use crate::transform::Transform;
use crate::{Need, Out};

/// Reads the other tensor's logical elements and computes with them.
#[derive(Debug)]
pub(crate) struct Computed {
    /// The factors of a product, which are read first.
    factors: Vec<Factor>,
    stored: LayoutMachine,
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
        let mut factors = Vec::new();
        let mut arithmetic = Compute::new(of, &computed.steps, computed.product.is_some(), first)?;
        if let Some(product) = &computed.product {
            arithmetic.product = Some(MatrixProduct::new(of, product)?);
            for factor in [&product.left, &product.right] {
                factors.push(Factor::new(context, factor)?);
            }
        }
        let mut this = Self {
            factors,
            stored: LayoutMachine::new(&inner, shape, &of.layout, range)?,
            transform: Transform::new(of)?,
            arithmetic,
        };
        this.settle()?;
        Ok(this)
    }

    pub(crate) fn need(&self) -> Need {
        let factor = self.factors.iter().map(|factor| factor.stored.need());
        let mut waiting = factor.filter(|need| *need != Need::Done);
        waiting.next().unwrap_or_else(|| self.stored.need())
    }

    /// Returns the factor that is being read.
    fn factor(&mut self) -> Option<&mut Factor> {
        self.factors.iter_mut().find(|factor| factor.stored.need() != Need::Done)
    }

    /// Passes the factors to the product once both are complete.
    fn settle(&mut self) -> Result<()> {
        if self.factors.is_empty() || self.factor().is_some() {
            return Ok(());
        }
        let numbers: Result<Vec<Vec<f32>>> =
            self.factors.drain(..).map(|factor| factor.numbers()).collect();
        if let (Some(sum), [left, right]) = (&mut self.arithmetic.product, &mut numbers?[..]) {
            sum.left = std::mem::take(left);
            sum.right = std::mem::take(right);
        }
        Ok(())
    }

    pub(crate) fn feed(&mut self, bytes: &[u8], out: &mut Out<'_>) -> Result<()> {
        if let Some(factor) = self.factor() {
            factor.call(|stored, out| stored.feed(bytes, out))?;
            return self.settle();
        }
        let Self { stored, transform, arithmetic, .. } = self;
        stored.feed(bytes, &mut |piece| {
            transform.feed(piece, &mut |elements| arithmetic.run(elements, out))
        })?;
        self.finish()
    }

    pub(crate) fn step(&mut self, files: &FileSet, out: &mut Out<'_>) -> Result<()> {
        if let Some(factor) = self.factor() {
            factor.call(|stored, out| stored.step(files, out))?;
            return self.settle();
        }
        let Self { stored, transform, arithmetic, .. } = self;
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

/// A factor of a product, while it is read.
#[derive(Debug)]
struct Factor {
    stored: LayoutMachine,
    transform: Transform,
    cast: Option<Cast>,
    bytes: Vec<u8>,
}

impl Factor {
    fn new(context: &Context<'_>, tensor: &Tensor) -> Result<Self> {
        let [rows, columns] = tensor.shape[..] else {
            return Err(Error::damaged("a factor of a product is not a matrix"));
        };
        let numel = rows.saturating_mul(columns);
        let bytes = numel.saturating_mul(4);
        Limits::check("bytes of a factor of a product", bytes, context.files.limits().chunk)?;
        let inner = Context { itemsize: tensor.stored.itemsize(), ..*context };
        Ok(Self {
            stored: LayoutMachine::new(&inner, &tensor.shape, &tensor.layout, 0..numel)?,
            transform: Transform::new(tensor)?,
            cast: match &tensor.dtype {
                DType::F32 => None,
                other => Some(Cast::new(other, &DType::F32)?),
            },
            bytes: Vec::new(),
        })
    }

    fn call(
        &mut self,
        call: impl FnOnce(&mut LayoutMachine, &mut Out<'_>) -> Result<()>,
    ) -> Result<()> {
        let Self { stored, transform, bytes, .. } = self;
        call(stored, &mut |piece| {
            transform.feed(piece, &mut |elements| {
                bytes.extend_from_slice(elements);
                Ok(())
            })
        })
    }

    fn numbers(mut self) -> Result<Vec<f32>> {
        self.transform.finish()?;
        if let Some(cast) = &mut self.cast {
            let mut wide = Vec::new();
            cast.run(&self.bytes, &mut wide);
            self.bytes = wide;
        }
        let elements = self.bytes.as_chunks::<4>().0.iter();
        Ok(elements.map(|element| f32::from_le_bytes(*element)).collect())
    }
}

/// The product of two matrices, computed one element at a time.
#[derive(Debug)]
struct MatrixProduct {
    left: Vec<f32>,
    right: Vec<f32>,
    rank: usize,
    columns: usize,
    scale: f32,
    rounding: Rounding,
}

impl MatrixProduct {
    fn new(of: &Tensor, product: &checkpoint::Product) -> Result<Self> {
        let bad = || {
            Error::damaged(format!(
                "matrices of shapes {:?} and {:?} don't make one of {:?}",
                product.left.shape, product.right.shape, of.shape
            ))
        };
        let ([rows, rank], [inner, columns]) = (&product.left.shape[..], &product.right.shape[..])
        else {
            return Err(bad());
        };
        if rank != inner || of.shape != [*rows, *columns] {
            return Err(bad());
        }
        let size = |len: &u64| usize::try_from(*len).map_err(|_| bad());
        Ok(Self {
            left: Vec::new(),
            right: Vec::new(),
            rank: size(rank)?,
            columns: size(columns)?,
            scale: product.scale as f32,
            rounding: product.rounding,
        })
    }

    /// Returns the element before scaling.
    fn at(&self, index: u64) -> f32 {
        let columns = self.columns.max(1) as u64;
        let (row, column) = ((index / columns) as usize, (index % columns) as usize);
        let left = self.left.get(row * self.rank..(row + 1) * self.rank).unwrap_or(&[]);
        let right = self.right.get(column..).unwrap_or(&[]).iter().step_by(self.columns.max(1));
        left.iter().zip(right).fold(0.0, |sum, (left, right)| left.mul_add(*right, sum))
    }
}

/// The operations on little-endian elements of one dtype.
#[derive(Debug)]
struct Compute {
    product: Option<MatrixProduct>,
    steps: Vec<Arithmetic>,
    precision: Precision,
    /// The position of the next element in the tensor.
    index: u64,
    /// The start of an incomplete element.
    part: Vec<u8>,
    bytes: Vec<u8>,
}

/// The precision of computations with the dtype: torch computes with small floats in 32 bits and
/// rounds after each operation.
#[derive(Debug)]
enum Precision {
    /// There are no operations.
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
    fn new(of: &Tensor, steps: &[Arithmetic], adds: bool, index: u64) -> Result<Self> {
        let precision = match &of.dtype {
            _ if steps.is_empty() && !adds => Precision::As,
            DType::F32 => Precision::F32,
            DType::F64 => Precision::F64,
            small @ (DType::F16 | DType::BF16) => Precision::Small {
                widen: Box::new(Cast::new(small, &DType::F32)?),
                narrow: Box::new(Cast::new(&DType::F32, small)?),
                wide: Vec::new(),
                one: Vec::new(),
            },
            other => {
                return Err(Error::unsupported(format!(
                    "elements of dtype {other} can't be computed with"
                ))
                .expected("float16, bfloat16, float32 or float64"));
            }
        };
        Ok(Self {
            product: None,
            steps: steps.to_vec(),
            precision,
            index,
            part: Vec::new(),
            bytes: Vec::new(),
        })
    }

    fn run(&mut self, piece: &[u8], out: &mut Out<'_>) -> Result<()> {
        let size = match &self.precision {
            Precision::As => return out(piece),
            Precision::F64 => 8,
            Precision::F32 => 4,
            Precision::Small { .. } => 2,
        };
        self.part.extend_from_slice(piece);
        let whole = self.part.len() - self.part.len() % size;
        self.bytes.clear();
        self.bytes.extend_from_slice(&self.part[..whole]);
        self.part.drain(..whole);
        let Self { product, steps, precision, index, bytes, .. } = self;
        for step in steps.iter() {
            match precision {
                Precision::As => {}
                Precision::F32 => each_f32(bytes, *step, *index),
                Precision::F64 => each_f64(bytes, *step, *index),
                Precision::Small { widen, narrow, wide, one } => {
                    widen.run(bytes, wide);
                    each_f32(wide, *step, *index);
                    narrow.run(wide, one);
                    std::mem::swap(bytes, one);
                }
            }
        }
        if let Some(product) = product {
            match precision {
                Precision::As => {}
                Precision::F32 => add_f32(bytes, product, *index),
                Precision::F64 => add_f64(bytes, product, *index),
                Precision::Small { widen, narrow, wide, one }
                    if product.rounding == Rounding::Sum =>
                {
                    widen.run(bytes, wide);
                    add_f32(wide, product, *index);
                    narrow.run(wide, one);
                    std::mem::swap(bytes, one);
                }
                Precision::Small { widen, narrow, wide, one } => {
                    // Each of the three operations is rounded.
                    let numbers = (0..whole / size).map(|at| product.at(*index + at as u64));
                    let mut round = |numbers: Vec<f32>| -> Vec<f32> {
                        let bytes: Vec<u8> =
                            numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                        narrow.run(&bytes, one);
                        widen.run(one, wide);
                        let numbers = wide.as_chunks::<4>().0.iter();
                        numbers.map(|number| f32::from_le_bytes(*number)).collect()
                    };
                    let product_alone = match product.rounding {
                        Rounding::Each => round(numbers.collect()),
                        Rounding::Scaled | Rounding::Sum => numbers.collect(),
                    };
                    let scale = product.scale;
                    let scaled = round(product_alone.iter().map(|number| number * scale).collect());
                    widen.run(bytes, wide);
                    for (number, scaled) in wide.as_chunks_mut::<4>().0.iter_mut().zip(scaled) {
                        *number = (f32::from_le_bytes(*number) + scaled).to_le_bytes();
                    }
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
    for (index, element) in (first..).zip(bytes.as_chunks_mut::<4>().0.iter_mut()) {
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
    }
}

fn each_f64(bytes: &mut [u8], step: Arithmetic, first: u64) {
    for (index, element) in (first..).zip(bytes.as_chunks_mut::<8>().0.iter_mut()) {
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
    }
}

fn add_f32(bytes: &mut [u8], product: &MatrixProduct, first: u64) {
    for (index, element) in (first..).zip(bytes.as_chunks_mut::<4>().0.iter_mut()) {
        let number = f32::from_le_bytes(*element) + product.at(index) * product.scale;
        *element = number.to_le_bytes();
    }
}

fn add_f64(bytes: &mut [u8], product: &MatrixProduct, first: u64) {
    for (index, element) in (first..).zip(bytes.as_chunks_mut::<8>().0.iter_mut()) {
        let added = f64::from(product.at(index)) * f64::from(product.scale);
        *element = (f64::from_le_bytes(*element) + added).to_le_bytes();
    }
}

/// Returns the random number for a position: a hash of it, so that parts can be read in any order.
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

/// Returns a number in [0, 1), by SplitMix64.
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
        let computed = checkpoint::Computed { of, steps: steps.to_vec(), product: None };
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
    fn rounds_small_floats_after_each_step() {
        // 1.0078125 + 1 is not representable as bfloat16 and is rounded to even.
        let (files, of) = source(DType::BF16, vec![0x81, 0x3f, 0x83, 0x3f], 2);
        let added = computed(of, &[Arithmetic::Add(1.0)]);
        assert_eq!(elements(&files, &added, 0..2).unwrap(), [0x00, 0x40, 0x02, 0x40]);
        assert_eq!(elements(&files, &added, 1..2).unwrap(), [0x02, 0x40]);
    }

    #[test]
    fn computes_parts_and_other_byte_orders() {
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
    fn random_numbers_do_not_depend_on_the_start() {
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
    fn adds_a_product_of_two_matrices() {
        let numbers: Vec<f32> = vec![1., 2., 3., 4., 5., 6., 10., 20., 30., 1., 2.];
        let bytes = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let (files, _) = source(DType::F32, bytes, 11);
        let file = files.main().unwrap();
        let matrix = |offset: u64, rows: u64, columns: u64| {
            let span = Span { file, offset: offset * 4, len: rows * columns * 4 };
            Tensor::new(DType::F32, vec![rows, columns], Layout::Span(span))
        };
        let (of, left, right) = (matrix(0, 2, 3), matrix(9, 2, 1), matrix(6, 1, 3));
        let product = checkpoint::Product { left, right, scale: 0.5, rounding: Rounding::Each };
        let computed = checkpoint::Computed { of, steps: Vec::new(), product: Some(product) };
        let layout = Layout::Computed(Arc::new(computed));
        let tensor = Tensor::new(DType::F32, vec![2, 3], layout);
        let expected: Vec<u8> =
            [12f32, 18., 14., 25., 36.].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(elements(&files, &tensor, 1..6).unwrap(), expected);
    }

    #[test]
    fn refuses_integers() {
        let (files, of) = source(DType::I64, vec![0; 8], 1);
        let added = computed(of, &[Arithmetic::Add(1.0)]);
        assert!(elements(&files, &added, 0..1).is_err());
    }
}
