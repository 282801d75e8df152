//! What `torch.load(weights_only=True)` reads.

use statelens_checkpoint::{
    Checkpoint, DictClass, DictKey, ListClass, Tensor, TensorClass, TupleClass, Value,
};
use statelens_pickle::{Pickle, opcode as op};

/// The fact of a checkpoint whose pickle has other opcodes.
const REFUSES: &str = "weights_only";

/// The opcodes of `torch/_weights_only_unpickler.py` of torch 2.4 to 2.15.
const OPCODES: [u8; 34] = [
    op::GLOBAL,
    op::NEWOBJ,
    op::REDUCE,
    op::BUILD,
    op::APPEND,
    op::APPENDS,
    op::SETITEM,
    op::SETITEMS,
    op::MARK,
    op::TUPLE,
    op::TUPLE1,
    op::TUPLE2,
    op::TUPLE3,
    op::NONE,
    op::NEWFALSE,
    op::NEWTRUE,
    op::EMPTY_TUPLE,
    op::EMPTY_LIST,
    op::EMPTY_DICT,
    op::EMPTY_SET,
    op::BININT,
    op::BININT1,
    op::BININT2,
    op::BINFLOAT,
    op::BINUNICODE,
    op::SHORT_BINSTRING,
    op::BINPERSID,
    op::BINGET,
    op::LONG_BINGET,
    op::BINPUT,
    op::LONG_BINPUT,
    op::LONG1,
    op::PROTO,
    op::STOP,
];

/// Returns the fact that torch refuses the pickle because of an opcode, if it does.
pub(super) fn unknown_opcode(pickle: &Pickle) -> Option<(String, String)> {
    let opcode = pickle.opcodes().without(&OPCODES).next()?;
    Some((REFUSES.to_owned(), format!("torch does not read the opcode {opcode:#04x} with it")))
}

/// Returns whether `torch.load(weights_only=True)` reads the file: it refuses all classes but those
/// of plain values, dicts and tensors, wherever they are in the pickle.
///
/// The list is that of `torch/_weights_only_unpickler.py` of torch 2.8.
pub(super) fn loads(checkpoint: &Checkpoint) -> bool {
    if checkpoint.format.facts.iter().any(|(name, _)| name == REFUSES) {
        return false;
    }
    let is_plain = |value: &Value| match value {
        Value::None
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Float(_)
        | Value::Complex(..)
        | Value::Str(_)
        | Value::Bytes { .. }
        | Value::Tensor(_)
        | Value::Sparse(_)
        | Value::DType { numpy: None, .. }
        | Value::Device(_)
        | Value::Link(_) => true,
        Value::List(list) => list.class == ListClass::List,
        Value::Tuple(tuple) => !matches!(tuple.class, TupleClass::Named(_)),
        Value::Set(set) => !set.frozen,
        Value::Dict(dict) => {
            let is_plain = |(key, _): &(DictKey, _)| !matches!(key, DictKey::Other(_));
            matches!(dict.class, DictClass::Dict | DictClass::Ordered | DictClass::Counter)
                && dict.entries.iter().all(is_plain)
        }
        Value::Array(_) | Value::DType { numpy: Some(_), .. } | Value::Opaque(_) => false,
    };
    let is_subclass = |tensor: &Tensor| matches!(tensor.class, TensorClass::Other(_));
    checkpoint.values().iter().all(is_plain) && !checkpoint.tensors().iter().any(is_subclass)
}
