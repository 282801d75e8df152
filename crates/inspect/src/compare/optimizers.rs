//! Entries of optimizers by their parameters, where two checkpoints are compared.

use statelens_checkpoint::Checkpoint;

use crate::Parameters;

/// What the numbers of the optimizers of both sides stand for.
#[derive(Debug, Clone, Default)]
pub struct Optimizers {
    left: Parameters,
    right: Parameters,
}

impl Optimizers {
    /// Finds out; reads no tensor.
    pub fn of(left: &Checkpoint, right: &Checkpoint) -> Self {
        let of = |side: &Checkpoint| Parameters::of(side, &side.leaves());
        Self { left: of(left), right: of(right) }
    }

    /// The parameter of an entry, in backticks: of both sides, where the entry is not of the same one on
    /// both.
    pub fn of_key(&self, flat: &str) -> Option<String> {
        let (one, other) = self.keys(flat)?;
        Some(match other {
            Some(other) => format!("`{one}` / `{other}`"),
            None => format!("`{one}`"),
        })
    }

    /// The parameter of an entry, and that of the right side where it is another one.
    pub(super) fn keys(&self, flat: &str) -> Option<(&str, Option<&str>)> {
        let left = self.left.of_key(flat).map(|it| it.key.as_str());
        let right = self.right.of_key(flat).map(|it| it.key.as_str());
        Some((left.or(right)?, left.and(right).filter(|right| left != Some(right))))
    }
}
