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

/// Formats a number with three digits: `6.74 B`.
pub(crate) fn short_count(number: u64) -> String {
    let mut value = number as f64;
    let mut unit = "";
    for next in [" k", " M", " B", " T"] {
        if value < 999.5 {
            break;
        }
        (value, unit) = (value / 1000.0, next);
    }
    match unit {
        "" => number.to_string(),
        _ if value < 9.995 => format!("{value:.2}{unit}"),
        _ if value < 99.95 => format!("{value:.1}{unit}"),
        _ => format!("{value:.0}{unit}"),
    }
}
