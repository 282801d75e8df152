//! The parameters of optimizer entries when two checkpoints are compared.

use statelens_describe::Parameters;

use super::Side;

/// The parameters that the optimizer entries of both sides belong to.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Optimizers {
    left: Parameters,
    right: Parameters,
}

impl Optimizers {
    /// Finds the parameters; does not read tensors.
    pub(super) fn of(sides: [Side<'_>; 2]) -> Self {
        let [left, right] = sides.map(|(side, leaves)| Parameters::of(side, leaves));
        Self { left, right }
    }

    /// Returns the parameters of an entry of the left and the right side.
    pub(super) fn parameters(&self, flat: &str) -> [Option<&String>; 2] {
        [&self.left, &self.right].map(|side| side.of_key(flat).map(|it| &it.key))
    }
}
