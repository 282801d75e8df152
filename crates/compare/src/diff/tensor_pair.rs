//! The comparison of a pair of tensors.

use std::ops::Range;

use statelens_checkpoint::{Checkpoint, DType, Error, Result, Tensor};
use statelens_tensor::Cast;

use super::common_type::{self, CommonType};
use super::lockstep::{Both, Taker};
use super::{DiffOptions, Numbers};

/// One of the two checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// The comparison of a pair of tensors.
pub struct Current {
    common: CommonType,
    options: DiffOptions,
    numbers: Numbers,
    rounding: Option<Rounding>,
}

/// The comparison with the finer side rounded to the dtype of the coarser one.
struct Rounding {
    side: Side,
    /// The casts to the coarser dtype and back to the dtype in which both are compared.
    there: Cast,
    back: Cast,
    numbers: Numbers,
}

/// The numeric results for a pair: exact, and with the finer side rounded to the named dtype.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct PairNumbers {
    pub(super) numbers: Numbers,
    pub(super) rounded: Option<(String, Numbers)>,
}

impl PairNumbers {
    /// Adds the results of the elements that follow.
    pub(super) fn merge(&mut self, next: Self) {
        self.numbers.merge(next.numbers);
        if let (Some((_, all)), Some((_, next))) = (&mut self.rounded, next.rounded) {
            all.merge(next);
        }
    }
}

impl Current {
    /// Prepares the comparison of a range of elements of two tensors. With `dtypes_count`,
    /// different dtypes are a difference, and the elements are also compared rounded.
    pub(super) fn new(
        ((left_of, left), (right_of, right)): ((&Checkpoint, &Tensor), (&Checkpoint, &Tensor)),
        range: Range<u64>,
        dtypes_count: bool,
        options: DiffOptions,
    ) -> Result<Both<Self>> {
        let (common, left_as, right_as) = common_type::common_type(&left.dtype, &right.dtype)
            .ok_or_else(|| {
                Error::unsupported(format!("{} and {} can't be compared", left.dtype, right.dtype))
            })?;
        let rounding = match dtypes_count {
            true => Rounding::new(&left.dtype, &right.dtype, &left_as),
            false => None,
        };
        let numbers = Numbers::new(common.is_numeric());
        let current = Self { common, options, numbers, rounding };
        Both::new((left_of, left, &left_as), (right_of, right, &right_as), range, current)
    }

    pub(super) fn outcome(self) -> PairNumbers {
        let rounded = self.rounding.map(|rounding| {
            let Rounding { there, numbers, .. } = rounding;
            (there.target().name().to_owned(), numbers)
        });
        PairNumbers { numbers: self.numbers, rounded }
    }
}

impl Taker for Current {
    fn take(&mut self, left: &[u8], right: &[u8]) {
        let Self { common, options, numbers, rounding } = self;
        common.compare(left, right, options.equality(), numbers);
        if let Some(rounding) = rounding {
            rounding.compare(common, (left, right), options);
        }
    }
}

impl Rounding {
    /// Prepares the rounding for two dtypes that are compared as `both`; `None` if neither is
    /// coarser.
    fn new(left: &DType, right: &DType, both: &DType) -> Option<Self> {
        let coarser = common_type::coarser(left, right)?;
        let side = if coarser == left { Side::Right } else { Side::Left };
        let (there, back) = (Cast::new(both, coarser).ok()?, Cast::new(coarser, both).ok()?);
        Some(Self { side, there, back, numbers: Numbers::new(true) })
    }

    fn compare(
        &mut self,
        common: &CommonType,
        (left, right): (&[u8], &[u8]),
        options: &DiffOptions,
    ) {
        let (mut coarse, mut rounded) = (Vec::new(), Vec::new());
        self.there.run(if self.side == Side::Left { left } else { right }, &mut coarse);
        self.back.run(&coarse, &mut rounded);
        match self.side {
            Side::Left => common.compare(&rounded, right, options.equality(), &mut self.numbers),
            Side::Right => common.compare(left, &rounded, options.equality(), &mut self.numbers),
        }
    }
}
