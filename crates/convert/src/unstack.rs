//! Splits tensors that hold a layer in each row into one key for each layer.

use std::sync::Arc;

use statelens_checkpoint::{
    Checkpoint, Concat, Dict, DictKey, Layout, Part, Result, Strided, Tensor, Text, Value, ValueId,
    contiguous_strides, numel,
};

/// The maximum number of layers in one tensor.
const MAX_LAYERS: u64 = 1 << 14;

/// Returns a copy in which each tensor with all layers of a model (`decoder.layers.mlp.weight` of
/// shape `[layers, …]`, as Megatron stores them) is one tensor for each layer
/// (`decoder.layers.0.mlp.weight`). `None` without such tensors.
///
/// # Errors
/// The limits on values are reached.
pub fn unstacked(checkpoint: &Checkpoint) -> Result<Option<Checkpoint>> {
    let stacks = checkpoint.format.traits.layer_stacks;
    if stacks.is_empty() {
        return Ok(None);
    }
    let mut builder = checkpoint.edit();
    let mut is_changed = false;
    for index in 0..checkpoint.values().len() {
        let id = ValueId(index as u32);
        let Value::Dict(dict) = checkpoint.value(id) else { continue };
        let is_stack = |(key, value): &(DictKey, ValueId)| {
            name_of(key, stacks).is_some() && layers(checkpoint, *value).is_some()
        };
        if !dict.entries.iter().any(is_stack) {
            continue;
        }
        let mut entries = Vec::with_capacity(dict.entries.len());
        for (key, value) in &dict.entries {
            let (Some((before, after)), Some((count, tensor))) =
                (name_of(key, stacks), layers(checkpoint, *value))
            else {
                entries.push((key.clone(), *value));
                continue;
            };
            is_changed = true;
            for layer in 0..count {
                let Some(one) = row(tensor, layer) else { continue };
                let tensor = builder.push_tensor(one)?;
                let name = Text::from(format!("{before}{layer}.{after}").as_str());
                entries.push((DictKey::Str(name), builder.push(Value::Tensor(tensor))?));
            }
        }
        if let Some(value) = builder.value_mut(id) {
            *value = Value::Dict(Dict { class: dict.class.clone(), entries });
        }
    }
    is_changed.then(|| builder.rebuild(checkpoint)).transpose()
}

/// Splits a key after the name of a stack, unless a number follows it.
fn name_of(key: &DictKey, stacks: &[&str]) -> Option<(String, String)> {
    let DictKey::Str(key) = key else { return None };
    let key = key.to_lossy();
    let at = stacks.iter().find_map(|stack| Some(key.find(stack)? + stack.len()))?;
    let (before, after) = key.split_at(at);
    let is_numbered = after.starts_with(|c: char| c.is_ascii_digit());
    (!after.is_empty() && !is_numbered).then(|| (before.to_owned(), after.to_owned()))
}

/// Returns the number of layers in a tensor, and the tensor.
fn layers(checkpoint: &Checkpoint, id: ValueId) -> Option<(u64, &Tensor)> {
    let Value::Tensor(tensor) = checkpoint.value(id) else { return None };
    let tensor = checkpoint.tensor(*tensor).ok()?;
    let count = *tensor.shape.first()?;
    (count > 0 && count <= MAX_LAYERS && tensor.shape.len() > 1).then_some((count, tensor))
}

/// Returns row `at` of a tensor.
fn row(tensor: &Tensor, at: u64) -> Option<Tensor> {
    let shape = tensor.shape.get(1..)?.to_vec();
    let inner = numel(&shape)?;
    let (part, first) = match &tensor.layout {
        Layout::Missing(why) => {
            let layout = Layout::Missing(why.clone());
            return Some(Tensor { shape, layout, storage: None, ..tensor.clone() });
        }
        Layout::Concat(Concat { axis: 0, parts }) => part_with(parts, at)?,
        layout => (Part { shape: tensor.shape.clone(), layout: layout.clone() }, 0),
    };
    let len = numel(&part.shape)?;
    let layout = Layout::Strided(Strided {
        storage_len: tensor.stored.bytes_of(len)?,
        storage: Arc::new(Layout::Concat(Concat { axis: 0, parts: vec![part] })),
        offset: (at - first).checked_mul(inner)?,
        strides: contiguous_strides(&shape)?,
    });
    Some(Tensor { shape, layout, storage: None, ..tensor.clone() })
}

/// Returns the part that has a row, and its first row.
fn part_with(parts: &[Part], at: u64) -> Option<(Part, u64)> {
    let mut first = 0u64;
    for part in parts {
        let end = first.checked_add(*part.shape.first()?)?;
        if at < end {
            return Some((part.clone(), first));
        }
        first = end;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_named_without_a_number() {
        let stacks = ["decoder.layers."];
        let name = |key: &str| name_of(&DictKey::from(key), &stacks);
        assert_eq!(
            name("optimizer.decoder.layers.mlp.weight"),
            Some(("optimizer.decoder.layers.".into(), "mlp.weight".into()))
        );
        assert_eq!(name("decoder.layers.0.mlp.weight"), None);
        assert_eq!(name("decoder.final_layernorm.weight"), None);
    }

    #[test]
    fn rows_are_views_of_the_part_that_has_them() {
        use statelens_checkpoint::{DType, FileSet, Unwatched};
        let part = |bytes: &[u8], rows: u64| Part {
            shape: vec![rows, 2],
            layout: Layout::Inline(bytes.into()),
        };
        let parts = vec![part(&[1, 2], 1), part(&[3, 4, 5, 6], 2)];
        let layout = Layout::Concat(Concat { axis: 0, parts });
        let whole = Tensor::new(DType::U8, vec![3, 2], layout);
        let rows: Vec<Vec<u8>> = (0..3)
            .map(|at| {
                let mut out = Vec::new();
                let row = row(&whole, at).unwrap();
                statelens_tensor::drain(
                    &FileSet::default(),
                    &row,
                    1 << 16,
                    &mut Unwatched,
                    &mut |bytes| {
                        out.extend_from_slice(bytes);
                        Ok(())
                    },
                )
                .unwrap();
                out
            })
            .collect();
        assert_eq!(rows, [[1, 2], [3, 4], [5, 6]]);
    }
}
