//! Losses of an edit in any format: digits that a narrower dtype lacks, and an optimizer that is
//! left out.

use statelens_checkpoint::{Checkpoint, DType, Loss, LossCode, Tensor};
use statelens_tensor::Narrowing;

use crate::Change;

/// Returns the possible losses of narrowing casts, for each pair of dtypes. They were requested, so
/// they are harmless; the actual effects are counted during writing.
pub(crate) fn of_casts(source: &Checkpoint) -> Vec<Loss> {
    let mut pairs: Vec<(&DType, &DType, Narrowing, Vec<String>)> = Vec::new();
    if !narrows(source) {
        return Vec::new();
    }
    for leaf in source.leaves() {
        let Some((_, tensor)) = source.tensor_of(leaf.id) else { continue };
        let Some(narrowing) = narrowed(tensor) else { continue };
        let key = leaf.flat.to_lossy().into_owned();
        let (from, to) = (&tensor.stored, &tensor.dtype);
        match pairs.iter_mut().find(|(one, other, ..)| (*one, *other) == (from, to)) {
            Some((.., keys)) => keys.push(key),
            None => pairs.push((from, to, narrowing, vec![key])),
        }
    }
    let loss = |(from, to, narrowing, keys): (&DType, &DType, Narrowing, Vec<String>)| Loss {
        code: LossCode::Cast,
        keys,
        what: format!("{from} becomes {to}: {}", narrowing.text()),
        why:
            "They are counted while the file is written. If a number does not fit, or more than 1 \
              % of a tensor's numbers become 0, the file is discarded unless you accept that."
                .into(),
        harmless: true,
    };
    pairs.into_iter().map(loss).collect()
}

/// Returns whether a cast gives some tensor a dtype that holds fewer numbers.
pub fn narrows(source: &Checkpoint) -> bool {
    source.tensors().iter().any(|tensor| narrowed(tensor).is_some())
}

fn narrowed(tensor: &Tensor) -> Option<Narrowing> {
    let cast = tensor.stored != tensor.dtype;
    cast.then(|| Narrowing::of(&tensor.stored, &tensor.dtype)).flatten()
}

/// Warns that training can't continue without the optimizer's tensors, if the edit or the target
/// leaves them out.
pub(crate) fn of_optimizer(changes: &[Change], losses: &[Loss]) -> Option<Loss> {
    let dropped = |change: &&Change| {
        change.new.is_none() && change.old_dtype.is_some() && is_optimizer(&change.old)
    };
    let mut keys: Vec<String> =
        changes.iter().filter(dropped).map(|change| change.old.clone()).collect();
    let left_out = losses.iter().filter(|loss| loss.code == LossCode::UnsupportedDtype);
    keys.extend(left_out.flat_map(|loss| &loss.keys).filter(|key| is_optimizer(key)).cloned());
    (!keys.is_empty()).then(|| Loss {
        code: LossCode::Optimizer,
        keys,
        what: "the optimizer's state is left out, so training can't resume from this".into(),
        why: "The weights can be used and fine-tuned.".into(),
        harmless: true,
    })
}

/// Returns whether a key belongs to an optimizer: to a state of that name, as written by the
/// trainers of Cerebras, PyTorch Lightning, Keras and Flax, or to a slot of TensorFlow's.
fn is_optimizer(key: &str) -> bool {
    let state = key.split(['.', '/']).next().unwrap_or_default().to_ascii_lowercase();
    state.contains("optim") || state == "opt_state" || key.contains(".OPTIMIZER_SLOT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_optimizer_keys() {
        for key in [
            "optimizer.state.0.exp_avg",
            "optimizer_states.0.state.1.exp_avg",
            "optimizer_state_dict.state.0.step",
            "opt_state.0.mu.params.kernel",
            "optimizer/vars/3",
            "model/w/.OPTIMIZER_SLOT/optimizer/m/.ATTRIBUTES/VARIABLE_VALUE",
        ] {
            assert!(is_optimizer(key), "{key}");
        }
        for key in ["model.optimizer_head.w", "model.w", "opt.w", "lr_schedulers.0.last_epoch"] {
            assert!(!is_optimizer(key), "{key}");
        }
    }
}
