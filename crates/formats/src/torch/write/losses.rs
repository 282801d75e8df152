//! Collects what the pickle can't hold, by kind of loss.

use std::collections::HashSet;

use statelens_checkpoint::{Checkpoint, Loss, ValueId};

/// Losses found so far. Holds value IDs, since computing keys requires a walk of the tree.
#[derive(Default)]
pub(super) struct Losses(Vec<(LossKind, Vec<ValueId>)>);

/// The kind of a loss: what happens to a value, and why.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct LossKind {
    pub(super) what: &'static str,
    pub(super) why: &'static str,
    pub(super) harmless: bool,
}

const NUMPY: &str = "`torch.load(weights_only=True)` refuses every numpy class.";
const CLASS: &str = "`torch.load(weights_only=True)` refuses the class.";

const fn lost(what: &'static str, why: &'static str) -> LossKind {
    LossKind { what, why, harmless: false }
}

const fn harmless(what: &'static str, why: &'static str) -> LossKind {
    LossKind { what, why, harmless: true }
}

pub(super) const ARRAY: LossKind =
    harmless("numpy arrays become tensors of the same values", NUMPY);
pub(super) const SCALAR: LossKind =
    harmless("numpy scalars become tensors without dimensions, of the same value", NUMPY);
pub(super) const PATH: LossKind = harmless("paths become strings", CLASS);
pub(super) const NUMPY_ONLY: LossKind = lost(
    "arrays of strings, records, dates or numbers of odd sizes become None",
    "Torch has no such dtype.",
);
pub(super) const NUMPY_DTYPE: LossKind = lost("numpy dtypes become their names", NUMPY);
pub(super) const DEQUE: LossKind = lost("deques become lists", CLASS);
pub(super) const NAMED: LossKind = lost("named tuples become plain tuples", CLASS);
pub(super) const FROZEN: LossKind = lost("frozensets become sets", CLASS);
pub(super) const DICT: LossKind = lost("dicts of other classes become plain dicts", CLASS);
pub(super) const OBJECT: LossKind =
    lost("objects become the text that Python prints for them", CLASS);
pub(super) const MODULE: LossKind = lost("objects become dicts of their attributes", CLASS);
pub(super) const SUBCLASS: LossKind = lost("tensors of other classes become plain tensors", CLASS);
pub(super) const UNSCALED: LossKind = lost(
    "quantised numbers without a scale become plain integers",
    "Torch can't build a tensor of them.",
);
pub(super) const KEY: LossKind = lost("keys of other types become strings", CLASS);
pub(super) const BIG_INT: LossKind = lost(
    "integers of more than 255 bytes become strings of their digits",
    "`torch.load(weights_only=True)` refuses longer ones.",
);

const NEWER: &str = "Torch 2.4, which Cerebras 2.10 brings, refuses them with weights_only=True and \
                     loads them with weights_only=False, its default; later releases take them \
                     (tried with 2.15).";

pub(super) const BYTES: LossKind =
    harmless("byte strings need a later torch than 2.4 to load with weights_only=True", NEWER);
pub(super) const SET: LossKind =
    harmless("sets need a later torch than 2.4 to load with weights_only=True", NEWER);
pub(super) const COMPLEX: LossKind =
    harmless("complex numbers need a later torch than 2.4 to load with weights_only=True", NEWER);
pub(super) const NEW_DTYPE: LossKind = harmless(
    "tensors of float8_e8m0fnu and float4_e2m1fn_x2 need a torch that has these dtypes",
    "Torch 2.4, which Cerebras 2.10 brings, has neither; torch 2.15 has both.",
);

impl Losses {
    /// Adds the loss `kind` for the value `id`.
    pub(super) fn add(&mut self, kind: LossKind, id: ValueId) {
        match self.0.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, ids)) => ids.push(id),
            None => self.0.push((kind, vec![id])),
        }
    }

    /// Returns the losses with the keys of the values.
    pub(super) fn named(self, source: &Checkpoint) -> Vec<Loss> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let all: HashSet<ValueId> =
            self.0.iter().flat_map(|(_, ids)| ids.iter().copied()).collect();
        let keys = source.flat_keys(&all);
        let loss = |(kind, ids): (LossKind, Vec<ValueId>)| Loss {
            keys: ids.iter().filter_map(|id| keys.get(id)).map(ToString::to_string).collect(),
            what: kind.what.into(),
            why: kind.why.into(),
            harmless: kind.harmless,
        };
        self.0.into_iter().map(loss).collect()
    }
}
