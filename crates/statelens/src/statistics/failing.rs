//! Numbers that a caller does not accept.

use std::collections::HashSet;

use serde::Serialize;
use statelens_checkpoint::{Error, Leaf, Result};
use statelens_compare::verify::{NonFiniteTensor, ScaleFault};
use statelens_values::Statistics;

use super::{MeasuredTensors, OtherNumbers};

/// A property of a tensor that a caller does not accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailOn {
    /// A value is NaN.
    Nan,
    /// A value is infinite.
    Inf,
    /// All values are zero.
    Zero,
    /// All values are the same.
    Constant,
    /// A scale of quantised weights is zero or not finite.
    Scales,
}

impl FailOn {
    /// Returns the property with a name: `nan`, `inf`, `zero`, `constant` or `scales`.
    pub fn named(name: &str) -> Result<Self> {
        match name {
            "nan" => Ok(Self::Nan),
            "inf" => Ok(Self::Inf),
            "zero" => Ok(Self::Zero),
            "constant" => Ok(Self::Constant),
            "scales" => Ok(Self::Scales),
            _ => Err(Error::refused(format!("`{name}` is not a property of tensors"))
                .expected("nan, inf, zero, constant or scales")),
        }
    }

    fn holds(self, of: &Statistics) -> bool {
        match self {
            Self::Nan => of.nan > 0,
            Self::Inf => of.pos_inf + of.neg_inf > 0,
            Self::Zero => of.all_zero(),
            Self::Constant => of.all_equal(),
            Self::Scales => false,
        }
    }

    fn holds_without_statistics(self, of: &NonFiniteTensor) -> bool {
        match self {
            Self::Nan => of.nan > 0,
            Self::Inf => of.inf > 0,
            Self::Zero | Self::Constant | Self::Scales => false,
        }
    }

    /// A scale that is zero makes all numbers of its group zero.
    fn holds_for_scales(self, fault: &ScaleFault) -> bool {
        match self {
            Self::Nan => fault.nan > 0,
            Self::Inf => fault.inf > 0,
            Self::Zero => fault.zero > 0,
            Self::Constant => false,
            Self::Scales => true,
        }
    }
}

/// The result of a search for tensors with properties that the caller does not accept.
#[derive(Debug, Default, Serialize)]
pub struct FailedTensors {
    /// Keys of the tensors that have such a property, in file order.
    #[serde(rename = "failed_on")]
    pub keys: Vec<String>,
    /// The numbers of tensors without statistics.
    #[serde(flatten)]
    pub others: OtherNumbers,
}

impl FailedTensors {
    /// Searches the tensors of `leaves` that were measured, and those without statistics.
    pub fn find(
        on: &[FailOn],
        measured: &MeasuredTensors<'_>,
        leaves: &[Leaf],
        others: OtherNumbers,
    ) -> Self {
        let mut seen = HashSet::new();
        let mut keys = Vec::new();
        for leaf in leaves {
            let Some((id, _)) = measured.checkpoint.tensor_of(leaf.target) else { continue };
            let Some(tensor) = measured.tensors.get(&id) else { continue };
            if on.iter().any(|what| what.holds(&tensor.of)) && seen.insert(id) {
                keys.push(leaf.flat.to_lossy().into_owned());
            }
        }
        let holds = |it: &&NonFiniteTensor| on.iter().any(|what| what.holds_without_statistics(it));
        keys.extend(others.not_finite.iter().filter(holds).map(|tensor| tensor.key.clone()));
        let holds = |it: &&ScaleFault| on.iter().any(|what| what.holds_for_scales(it));
        keys.extend(others.scales.iter().filter(holds).map(|fault| fault.key.clone()));
        Self { keys, others }
    }
}
