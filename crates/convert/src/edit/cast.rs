//! Casts tensors to another dtype.

use std::collections::HashMap;

use statelens_checkpoint::{Checkpoint, DType, Error, Result, TensorId, Value, ValueId};
use statelens_tensor::has_floats;

use crate::{Edit, Pattern};

/// A dtype for floating-point tensors: those with matching keys, or all.
#[derive(Debug, Clone, PartialEq)]
pub struct CastRule {
    /// Pattern of the keys; without one, all keys that no other cast's pattern matches.
    pub pattern: Option<Pattern>,
    /// The target dtype.
    pub dtype: DType,
}

impl CastRule {
    /// Parses rules; fails as [`CastRule::parse`] does.
    pub fn all<'t>(texts: impl IntoIterator<Item = &'t String>) -> Result<Vec<Self>> {
        texts.into_iter().map(|text| Self::parse(text)).collect()
    }

    /// Parses `DTYPE` and `PATTERN=DTYPE`.
    pub fn parse(text: &str) -> Result<Self> {
        let (pattern, name) = match text.rsplit_once('=') {
            Some((pattern, name)) => (Some(Pattern::parse(pattern)?), name),
            None => (None, text),
        };
        Ok(Self { pattern, dtype: dtype_named(name)? })
    }

    /// Returns the dtype that every floating-point tensor has after these casts, if they all name
    /// the same and cover all keys.
    pub fn of_all(casts: &[Self]) -> Option<&DType> {
        let first = &casts.first()?.dtype;
        let for_all = |cast: &Self| {
            cast.pattern.as_ref().is_none_or(|pattern| matches!(pattern.as_str(), "*" | "**"))
        };
        let alike = casts.iter().all(|cast| cast.dtype == *first);
        (alike && casts.iter().any(for_all)).then_some(first)
    }

    /// Distributes the casts over several checkpoints that are written together: each gets those
    /// without a pattern, and those whose pattern matches a key in it. Fails as [`Edit::apply`]
    /// does if a cast applies to none of them.
    pub fn for_each(casts: Vec<Self>, parts: &[&Checkpoint]) -> Result<Vec<Vec<Self>>> {
        let mut all: Vec<Vec<Self>> = vec![Vec::new(); parts.len()];
        for cast in casts {
            let alone = Edit { casts: vec![cast.clone()], ..Edit::default() };
            let mut refused = None;
            let mut used = false;
            for (own, part) in all.iter_mut().zip(parts) {
                match alone.apply(part) {
                    Ok(_) => {
                        own.push(cast.clone());
                        used = true;
                    }
                    Err(error) => refused = Some(error),
                }
            }
            if let Some(error) = refused.filter(|_| !used) {
                return Err(error);
            }
        }
        Ok(all)
    }
}

/// Returns a dtype by torch's name or one of the usual short ones.
pub fn dtype_named(name: &str) -> Result<DType> {
    let name = name.strip_prefix("torch.").unwrap_or(name);
    let long = match name.to_ascii_lowercase().as_str() {
        "bf16" => "bfloat16".to_owned(),
        "fp16" | "f16" | "half" => "float16".to_owned(),
        "fp32" | "f32" | "float" => "float32".to_owned(),
        "fp64" | "f64" | "double" => "float64".to_owned(),
        other => other.to_owned(),
    };
    DType::from_torch_name(&long).ok_or_else(|| {
        Error::refused(format!("there is no dtype `{name}`"))
            .expected("a name of torch's, e.g. float32, bfloat16, float16, float8_e4m3fn")
    })
}

/// Casts floating-point tensors as the rules say. `reached` marks the values in the tree. A tensor
/// with several keys is cast if one of them matches.
///
/// Numpy arrays count as tensors if the checkpoint has no others, as in `.npz` and Flax files. In a
/// checkpoint with torch tensors they are internal data of a program and must be matched by a
/// pattern.
pub(super) fn cast(
    casts: &[CastRule],
    checkpoint: &Checkpoint,
    reached: &[bool],
) -> Result<Checkpoint> {
    if let Some(cast) = casts.iter().find(|cast| !has_floats(&cast.dtype)) {
        return Err(Error::refused(format!("tensors can't be cast to {}", cast.dtype))
            .advice("Use float32, float16, bfloat16, float64 or one of the float8 types."));
    }
    let mut plain = casts.iter().filter(|cast| cast.pattern.is_none());
    let for_all = plain.next();
    if plain.any(|cast| for_all.is_some_and(|first| first.dtype != cast.dtype)) {
        return Err(Error::refused("tensors can't be cast to two dtypes at once")
            .advice("Give a pattern of keys for each: PATTERN=DTYPE."));
    }
    // The target dtype of each tensor and sparse tensor.
    let mut tensors: HashMap<TensorId, &DType> = HashMap::new();
    let mut sparse: HashMap<ValueId, &DType> = HashMap::new();
    let leaves =
        if casts.len() > usize::from(for_all.is_some()) { checkpoint.leaves() } else { Vec::new() };
    for cast in casts {
        let Some(pattern) = &cast.pattern else { continue };
        let mut used = false;
        for leaf in &leaves {
            let floating = floating(checkpoint, leaf.target, Arrays::All);
            let key = leaf.flat.to_lossy();
            if floating.is_empty() || !pattern.selects(&key) {
                continue;
            }
            used = true;
            for tensor in floating {
                tensors.entry(tensor).or_insert(&cast.dtype);
            }
            if matches!(checkpoint.value(leaf.target), Value::Sparse(_)) {
                sparse.entry(leaf.target).or_insert(&cast.dtype);
            }
        }
        if !used {
            return Err(Error::refused(format!(
                "no floating-point tensor has a key that matches {}",
                pattern.as_str()
            ))
            .advice("Patterns of casts match keys after renaming; integers are never cast."));
        }
    }
    if let Some(CastRule { dtype, .. }) = for_all {
        let reached = reached.iter().enumerate().filter(|(_, reached)| **reached);
        let reached: Vec<ValueId> = reached.map(|(index, _)| ValueId(index as u32)).collect();
        let is_tensor =
            |id: &ValueId| matches!(checkpoint.value(*id), Value::Tensor(_) | Value::Sparse(_));
        let arrays = if reached.iter().any(is_tensor) { Arrays::None } else { Arrays::Shaped };
        for id in reached {
            for tensor in floating(checkpoint, id, arrays) {
                tensors.entry(tensor).or_insert(dtype);
            }
            if matches!(checkpoint.value(id), Value::Sparse(_)) {
                sparse.entry(id).or_insert(dtype);
            }
        }
    }
    let mut builder = checkpoint.edit();
    for (id, dtype) in tensors {
        if let Some(tensor) = builder.tensor_mut(id) {
            tensor.dtype = dtype.clone();
        }
    }
    for (id, dtype) in sparse {
        if let Some(Value::Sparse(value)) = builder.value_mut(id)
            && has_floats(&value.dtype)
        {
            value.dtype = dtype.clone();
        }
    }
    builder.rebuild(checkpoint)
}

/// Which numpy arrays are treated as tensors.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Arrays {
    None,
    /// Arrays that are not scalars.
    Shaped,
    All,
}

/// Returns the floating-point tensors of a value: itself, or its parts.
fn floating(checkpoint: &Checkpoint, id: ValueId, arrays: Arrays) -> Vec<TensorId> {
    let one = |id: ValueId| {
        let tensor = match checkpoint.value(id) {
            Value::Tensor(tensor) => *tensor,
            Value::Array(array) if arrays == Arrays::All => array.tensor,
            Value::Array(array) if arrays == Arrays::Shaped && !array.scalar => array.tensor,
            _ => return None,
        };
        let dtype = checkpoint.tensor(tensor).ok().map(|tensor| &tensor.dtype);
        dtype.is_some_and(has_floats).then_some(tensor)
    };
    match checkpoint.value(id) {
        Value::Sparse(sparse) => {
            sparse.parts.iter().filter_map(|(_, part)| one(checkpoint.resolve(*part))).collect()
        }
        _ => one(id).into_iter().collect(),
    }
}
