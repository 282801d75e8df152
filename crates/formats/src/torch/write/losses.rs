//! Kinds of losses of a pickle.

use statelens_checkpoint::{LossCode, LossKind};

use crate::object_text::BECOMES_TEXT;

const NUMPY: &str = "`torch.load(weights_only=True)` refuses every numpy class.";
const CLASS: &str = "`torch.load(weights_only=True)` refuses the class.";

pub(super) const ARRAY: LossKind =
    LossCode::Array.harmless("numpy arrays become tensors of the same values", NUMPY);
pub(super) const SCALAR: LossKind = LossCode::ArrayScalar
    .harmless("numpy scalars become tensors without dimensions, of the same value", NUMPY);
pub(super) const PATH: LossKind = LossCode::Path.harmless("paths become strings", CLASS);
pub(super) const NUMPY_ONLY: LossKind = LossCode::ArrayLeftOut.lost(
    "arrays of strings, records, dates or numbers of odd sizes become None",
    "Torch has no such dtype.",
);
pub(super) const NUMPY_DTYPE: LossKind =
    LossCode::NumpyDtype.lost("numpy dtypes become their names", NUMPY);
pub(super) const DEQUE: LossKind = LossCode::Deque.lost("deques become lists", CLASS);
pub(super) const NAMED: LossKind =
    LossCode::NamedTuple.lost("named tuples become plain tuples", CLASS);
pub(super) const FROZEN: LossKind = LossCode::Frozenset.lost("frozensets become sets", CLASS);
pub(super) const DICT: LossKind =
    LossCode::DictClass.lost("dicts of other classes become plain dicts", CLASS);
pub(super) const OBJECT: LossKind = LossCode::ObjectText.lost(BECOMES_TEXT, CLASS);
pub(super) const MODULE: LossKind =
    LossCode::ObjectFields.lost("objects become dicts of their attributes", CLASS);
pub(super) const SUBCLASS: LossKind =
    LossCode::TensorClass.lost("tensors of other classes become plain tensors", CLASS);
pub(super) const UNSCALED: LossKind = LossCode::Quantizer.lost(
    "quantised numbers without a scale become plain integers",
    "Torch can't build a tensor of them.",
);
pub(super) const KEY: LossKind =
    LossCode::KeyType.lost("keys of other types become strings", CLASS);
pub(super) const QUOTED: LossKind = LossCode::KeyQuoted.lost(
    "text keys get quotes, since other keys have the same text",
    "The format has text keys only: under the name without quotes, a reader finds the other value.",
);
pub(super) const BIG_INT: LossKind = LossCode::BigInt.lost(
    "integers of more than 255 bytes become strings of their digits",
    "`torch.load(weights_only=True)` refuses longer ones.",
);

const NEWER: &str = "Torch 2.4, which Cerebras 2.10 brings, refuses them with weights_only=True and \
                     loads them with weights_only=False, its default; later releases take them \
                     (tried with 2.15).";

pub(super) const BYTES: LossKind = LossCode::NewerBytes
    .harmless("byte strings need a later torch than 2.4 to load with weights_only=True", NEWER);
pub(super) const SET: LossKind = LossCode::NewerSet
    .harmless("sets need a later torch than 2.4 to load with weights_only=True", NEWER);
pub(super) const COMPLEX: LossKind = LossCode::NewerComplex
    .harmless("complex numbers need a later torch than 2.4 to load with weights_only=True", NEWER);
pub(super) const NEW_DTYPE: LossKind = LossCode::NewerDtype.harmless(
    "tensors of float8_e8m0fnu and float4_e2m1fn_x2 need a torch that has these dtypes",
    "Torch 2.4, which Cerebras 2.10 brings, has neither; torch 2.15 has both.",
);
