//! The parameters of optimizer entries when two checkpoints are compared.

use statelens_checkpoint::Checkpoint;
use statelens_describe::Parameters;

/// The parameters that the optimizer entries of both sides belong to.
#[derive(Debug, Clone, Default)]
pub struct Optimizers {
    left: Parameters,
    right: Parameters,
}

impl Optimizers {
    /// Finds the parameters; does not read tensors.
    pub fn of(left: &Checkpoint, right: &Checkpoint) -> Self {
        let of = |side: &Checkpoint| Parameters::of(side, &side.leaves());
        Self { left: of(left), right: of(right) }
    }

    /// Returns the parameter of an entry in backticks; both parameters if those of the two sides
    /// differ.
    pub fn of_key(&self, flat: &str) -> Option<String> {
        let (one, other) = self.keys(flat)?;
        Some(match other {
            Some(other) => format!("`{one}` / `{other}`"),
            None => format!("`{one}`"),
        })
    }

    /// Returns the parameter of an entry, and that of the right side if it is a different one.
    pub(super) fn keys(&self, flat: &str) -> Option<(&str, Option<&str>)> {
        let left = self.left.of_key(flat).map(|it| it.key.as_str());
        let right = self.right.of_key(flat).map(|it| it.key.as_str());
        Some((left.or(right)?, left.and(right).filter(|right| left != Some(right))))
    }
}
