//! Kinds of losses of a bundle.

use statelens_checkpoint::{Checkpoint, Loss, LossCode, LossKind};

use crate::object_text::BECOMES_TEXT;
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
        code: LossCode::QuantizedDtype,
        keys,
        what: format!("{} tensors become plain integers", names.join(", ")),
        why: "The target has no such dtype. The values are the same.".into(),
        harmless: false,
    })
}

const TENSORS: &str = "A TensorFlow checkpoint holds nothing but tensors.";

pub(super) const SCALAR: LossKind =
    LossCode::PlainValue.harmless("numbers and strings become tensors without dimensions", TENSORS);
pub(super) const MUTABLE: LossKind =
    LossCode::ByteArray.harmless("bytearrays become byte strings", TENSORS);
pub(super) const UNICODE: LossKind = LossCode::UnicodeArray
    .harmless("arrays of strings become UTF-8", "Strings are bytes to TensorFlow.");
pub(super) const TIED: LossKind = LossCode::Ties.harmless(
    "tied tensors are stored once and restored separately",
    "TensorFlow does not tie variables through a checkpoint.",
);
pub(super) const SPARSE: LossKind =
    LossCode::Sparse.lost("sparse tensors become their parts", TENSORS);
pub(super) const BITS: LossKind = LossCode::Bits.lost(
    "elements become unsigned integers of the same bits",
    "TensorFlow has no such dtype, or can't save it.",
);
pub(super) const HALVES: LossKind = LossCode::HalfComplex.lost(
    "complex numbers become two real ones, in one more dimension",
    "TensorFlow has no complex dtype of that size.",
);
pub(super) const RECORDS: LossKind =
    LossCode::ElementBytes.lost("elements become their bytes", "TensorFlow has no such dtype.");
pub(super) const SCALE: LossKind = LossCode::Quantizer.lost(
    "quantised tensors lose the scale and zero point",
    "TensorFlow keeps them in separate tensors, if at all.",
);
pub(super) const NONE: LossKind = LossCode::NoneLeftOut.lost("None is left out", TENSORS);
pub(super) const EMPTY: LossKind =
    LossCode::Empty.lost("empty dicts, lists and sets are left out", TENSORS);
pub(super) const BIG_INT: LossKind =
    LossCode::BigInt.lost("integers of more than 64 bits become strings of their digits", TENSORS);
pub(super) const TEXT: LossKind =
    LossCode::DtypeText.lost("dtypes and devices become their names", TENSORS);
pub(super) const OBJECT: LossKind = LossCode::ObjectText.lost(BECOMES_TEXT, TENSORS);

/// The name that is given to a checkpoint that is a single value.
pub(super) const NAMED: LossKind = LossCode::NameAdded.harmless(
    "a value without a name is called `value`",
    "TensorFlow identifies tensors by name only.",
);
/// A save counter that was added.
pub(super) const COUNTER_ADDED: LossKind = LossCode::CounterAdded.harmless(
    "a counter of saves is added, at 1",
    "`tf.train.Checkpoint` has one, and expects it when it restores.",
);
