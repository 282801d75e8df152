//! The number of parameters, as all summaries, listings and pages show it.

use statelens_checkpoint::grouped;

/// The number of parameters of a checkpoint. See [`crate::model::parameters`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParameterCount {
    /// Number of parameters of the model. Tied tensors count once; buffers and the optimizer do not
    /// count; a packed tensor counts as the tensor that it represents.
    pub model: u64,
    /// Number of elements of all tensors that are not links.
    pub all: u64,
    /// The name of the state that is the model, if there are other states.
    pub state: Option<String>,
}

impl ParameterCount {
    /// Formats the counts: `32,192 in 'model', of 90,400 elements in all tensors`.
    pub fn text(&self) -> String {
        let (model, all) = (grouped(self.model), grouped(self.all));
        match &self.state {
            _ if self.model == self.all => model,
            Some(name) => format!("{model} in `{name}`, of {all} elements in all tensors"),
            None => format!("{model}, of {all} elements in all tensors"),
        }
    }
}
