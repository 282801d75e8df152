//! Checks that tensors lie inside their storages.

use crate::lower::{dtype as dtype_of, per_byte};
use crate::{Node, NodeId, Pickle};

/// Returns whether a tensor that `torch._utils` rebuilds is inside its storage. Other calls, and
/// storages of unknown length, are accepted.
pub(super) fn is_inside(pickle: &Pickle, function: &str, args: &[NodeId]) -> bool {
    let (dtype, args) = match (function, args) {
        ("_rebuild_tensor" | "_rebuild_tensor_v2" | "_rebuild_qtensor", args) => (None, args),
        ("_rebuild_tensor_v3", [_, _, _, _, _, _, dtype, ..]) => (Some(*dtype), args),
        _ => return true,
    };
    let [storage, offset, size, stride, ..] = args else { return true };
    let Node::Persistent(name) = pickle.node(*storage) else { return true };
    let Some(name) = pickle.storage_name(*name) else { return true };
    let numbers = |id: NodeId| {
        let items = pickle.sequence(id)?.iter();
        items.map(|item| u64::try_from(pickle.int(*item)?).ok()).collect::<Option<Vec<u64>>>()
    };
    let inside = || {
        let unit = match dtype {
            Some(dtype) => dtype_of(&*pickle.global(dtype)?)?.itemsize(),
            None => name.unit(),
        };
        let (size, stride) = (numbers(*size)?, numbers(*stride)?);
        let mut last = u64::try_from(pickle.int(*offset)?).ok()?;
        if size.contains(&0) {
            return Some(size.len() == stride.len());
        }
        // The number of elements must fit as well: with strides of 0, they take no memory.
        let count = size.iter().try_fold(unit, |count, size| count.checked_mul(*size))?;
        i64::try_from(count).ok()?;
        for (size, stride) in size.iter().zip(&stride) {
            last = last.checked_add((size - 1).checked_mul(*stride)?)?;
        }
        // Storages with less than a byte per element are counted in bytes.
        let packed = per_byte(name.dtype.as_ref());
        let room = name.len().ok()?.checked_mul(packed)?;
        let bytes = last.checked_add(1)?.checked_mul(unit)?;
        Some(size.len() == stride.len() && bytes <= room)
    };
    inside().unwrap_or(false)
}
