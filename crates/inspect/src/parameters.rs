//! How many parameters there are: the one number that every summary, listing and page gives.

use statelens_checkpoint::grouped;

/// How many parameters a checkpoint holds. See [`crate::model::parameters`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParameterCount {
    /// Parameters of the model: tied tensors count once, buffers and the optimizer do not count, a
    /// packed tensor counts as what it stands for.
    pub model: u64,
    /// Elements of all tensors that are no links.
    pub all: u64,
    /// The state that is the model, if there are others.
    pub state: Option<String>,
}

impl ParameterCount {
    /// Says it in words: `32,192 in 'model', of 90,400 elements in all tensors`.
    pub fn text(&self) -> String {
        let (model, all) = (grouped(self.model), grouped(self.all));
        match &self.state {
            _ if self.model == self.all => model,
            Some(name) => format!("{model} in `{name}`, of {all} elements in all tensors"),
            None => format!("{model}, of {all} elements in all tensors"),
        }
    }
}
