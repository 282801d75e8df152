//! Collects what a bundle can't hold, by kind of loss.

use statelens_checkpoint::{Checkpoint, Loss, Text};

use crate::tensorflow::dtype;

/// The save counter. Every `tf.train.Checkpoint` has one, and without it in the file, restoring is
/// incomplete.
pub(super) const COUNTER: &str = "save_counter";

/// Returns the loss of a TensorFlow checkpoint in any other format: the original dtype of integers
/// that are quantised or have fewer than eight bits.
pub(crate) fn dtypes(source: &Checkpoint) -> Option<Loss> {
    let mut keys = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for leaf in source.leaves() {
        let Some((_, tensor)) = source.tensor_of(leaf.id) else { continue };
        let Some((_, name)) = dtype::original(source, leaf.target, tensor) else { continue };
        keys.push(leaf.flat.to_string());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    (!keys.is_empty()).then(|| Loss {
        keys,
        what: format!("{} tensors become plain integers", names.join(", ")),
        why: "The target has no such dtype. The values are the same.".into(),
        harmless: false,
    })
}

/// Losses found so far.
#[derive(Default)]
pub(super) struct Losses(Vec<(&'static LossKind, Vec<String>)>);

/// The kind of a loss: what happens to a value, and why.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LossKind {
    what: &'static str,
    why: &'static str,
    harmless: bool,
}

const TENSORS: &str = "A TensorFlow checkpoint holds nothing but tensors.";

const fn lost(what: &'static str, why: &'static str) -> LossKind {
    LossKind { what, why, harmless: false }
}

const fn harmless(what: &'static str, why: &'static str) -> LossKind {
    LossKind { what, why, harmless: true }
}

pub(super) const SCALAR: LossKind =
    harmless("numbers and strings become tensors without dimensions", TENSORS);
pub(super) const MUTABLE: LossKind = harmless("bytearrays become byte strings", TENSORS);
pub(super) const UNICODE: LossKind =
    harmless("arrays of strings become UTF-8", "Strings are bytes to TensorFlow.");
pub(super) const TIED: LossKind = harmless(
    "tied tensors are stored once and restored separately",
    "TensorFlow does not tie variables through a checkpoint.",
);
pub(super) const SPARSE: LossKind = lost("sparse tensors become their parts", TENSORS);
pub(super) const BITS: LossKind = lost(
    "elements become unsigned integers of the same bits",
    "TensorFlow has no such dtype, or can't save it.",
);
pub(super) const HALVES: LossKind = lost(
    "complex numbers become two real ones, in one more dimension",
    "TensorFlow has no complex dtype of that size.",
);
pub(super) const RECORDS: LossKind =
    lost("elements become their bytes", "TensorFlow has no such dtype.");
pub(super) const SCALE: LossKind = lost(
    "quantised tensors lose the scale and zero point",
    "TensorFlow keeps them in separate tensors, if at all.",
);
pub(super) const NONE: LossKind = lost("None is left out", TENSORS);
pub(super) const EMPTY: LossKind = lost("empty dicts, lists and sets are left out", TENSORS);
pub(super) const BIG_INT: LossKind =
    lost("integers of more than 64 bits become strings of their digits", TENSORS);
pub(super) const TEXT: LossKind = lost("dtypes and devices become their names", TENSORS);
pub(super) const OBJECT: LossKind =
    lost("objects become the text that Python prints for them", TENSORS);

/// Returns the loss for a checkpoint that is a single value and is given a name.
pub(super) fn named() -> Loss {
    Loss {
        keys: vec![String::new()],
        what: "a value without a name is called `value`".into(),
        why: "TensorFlow identifies tensors by name only.".into(),
        harmless: true,
    }
}

/// Returns the loss for a save counter that was added.
pub(super) fn counter_added() -> Loss {
    Loss {
        keys: vec![COUNTER.into()],
        what: "a counter of saves is added, at 1".into(),
        why: "`tf.train.Checkpoint` has one, and expects it when it restores.".into(),
        harmless: true,
    }
}

impl Losses {
    /// Adds the loss `kind` for the value at `key`.
    pub(super) fn add(&mut self, kind: &'static LossKind, key: &Text) {
        let key = key.to_lossy().into_owned();
        match self.0.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, keys)) => keys.push(key),
            None => self.0.push((kind, vec![key])),
        }
    }

    pub(super) fn finish(self) -> Vec<Loss> {
        let loss = |(kind, keys): (&LossKind, Vec<String>)| Loss {
            keys,
            what: kind.what.into(),
            why: kind.why.into(),
            harmless: kind.harmless,
        };
        self.0.into_iter().map(loss).collect()
    }
}
