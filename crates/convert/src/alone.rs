//! Writes single tensors of a checkpoint, or slices of them, as a checkpoint of their own.

use statelens_checkpoint::{
    Array, Builder, Checkpoint, DType, Dict, DictKey, FormatInfo, Limits, Result, Tensor, Value,
};
use statelens_tensor::Cast;

/// Returns a checkpoint of the named tensors. They must belong to `source` or be views of its data.
pub fn alone<'a>(
    source: &Checkpoint,
    tensors: impl IntoIterator<Item = (&'a str, Tensor)>,
    limits: &Limits,
) -> Result<Checkpoint> {
    let mut builder = Builder::new(limits);
    let mut entries = Vec::new();
    for (name, tensor) in tensors {
        let tensor = builder.push_tensor(tensor)?;
        let value = builder.push(Value::Array(Array { tensor, scalar: false }))?;
        entries.push((DictKey::from(name), value));
    }
    let root = builder.push(Value::Dict(Dict { entries, ..Dict::default() }))?;
    builder.finish(root, FormatInfo::default(), source.files.clone(), Vec::new())
}

/// Returns the tensor in another dtype. Fails if it can't be cast.
pub fn in_dtype(tensor: Tensor, dtype: DType) -> Result<Tensor> {
    Cast::new(&tensor.stored, &dtype)?;
    Ok(Tensor { dtype, ..tensor })
}

/// Returns whether NumPy lacks this float type: `bfloat16` and the 8-bit ones.
pub fn lacks_numpy(dtype: &DType) -> bool {
    dtype.is_float() && !matches!(dtype, DType::F16 | DType::F32 | DType::F64)
}
