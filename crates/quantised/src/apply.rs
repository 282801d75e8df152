//! Replaces quantised weights in a checkpoint by tensors of numbers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use statelens_checkpoint::{
    Checkpoint, DType, Dict, DictKey, Error, Layout, Result, Tensor, TensorId, Value, ValueId,
};
use statelens_tensor::dequantized;

use crate::schemes;
use crate::set::{Found, Set, SetPart};
use crate::settings::Settings;

/// A checkpoint with quantised weights as tensors of numbers.
#[derive(Debug)]
pub struct Dequantisation {
    /// The checkpoint. Weights that were refused are unchanged in it.
    pub checkpoint: Checkpoint,
    /// The quantised weights, in the order of the file.
    pub weights: Vec<QuantisedWeight>,
}

/// A weight that is stored as codes and scales.
#[derive(Debug, Clone)]
pub struct QuantisedWeight {
    /// The flat key of the weight.
    pub key: String,
    /// The scheme for display: `GPTQ, 4 bits`, `Q4_K`.
    pub scheme: String,
    /// The flat keys of the tensors that it is stored as, the codes first.
    pub parts: Vec<String>,
    /// What was inferred from shapes, because no settings say it.
    pub inferred: Vec<String>,
    /// Why its values are not known.
    pub refused: Option<Error>,
}

/// Fails if the values of any weight are not known, naming the first one.
pub fn complete(weights: &[QuantisedWeight]) -> Result<()> {
    let refused = weights.iter().filter_map(|weight| Some((weight, weight.refused.as_ref()?)));
    let count = refused.clone().count();
    let Some((weight, why)) = refused.clone().next() else { return Ok(()) };
    let error = why.clone().context(format!("`{}`, {}", weight.key, weight.scheme));
    Err(match count {
        1 => error,
        2 => error.context("1 more weight can't be dequantised"),
        count => error.context(format!("{} more weights can't be dequantised", count - 1)),
    })
}

/// Returns the checkpoint with each quantised weight as one tensor of `dtype`, or of float32; `None`
/// if no weight is quantised.
///
/// The tensors that it is stored as are left out. Weights whose values are not known are unchanged.
pub fn dequantise(source: &Checkpoint, dtype: Option<&DType>) -> Result<Option<Dequantisation>> {
    replaced(source, dtype, true)
}

/// Returns the checkpoint with each weight that is stored as several tensors as one tensor of
/// float32, for showing it; `None` if there are none. Scales and other parts stay in it, but not the
/// codes. Blocks that are one tensor are unchanged.
pub fn shown(source: &Checkpoint) -> Result<Option<Dequantisation>> {
    replaced(source, None, false)
}

fn replaced(
    source: &Checkpoint,
    dtype: Option<&DType>,
    dense: bool,
) -> Result<Option<Dequantisation>> {
    let keys: HashMap<ValueId, String> = source
        .leaves()
        .into_iter()
        .map(|leaf| (leaf.id, leaf.flat.to_lossy().into_owned()))
        .collect();
    let mut builder = source.edit();
    let mut weights = Vec::new();
    let finish = |tensor: Tensor| match dtype {
        Some(dtype) => Tensor { dtype: dtype.clone(), ..tensor },
        None => tensor,
    };
    let mut settings = None;
    for (index, value) in source.values().iter().enumerate() {
        let Value::Dict(dict) = value else { continue };
        let names = names(source, dict);
        if !names.iter().any(|part| schemes::is_telling(part.name)) {
            continue;
        }
        let settings = settings.get_or_insert_with(|| Settings::of(&source.files));
        let mut changes = Changes::default();
        for found in found(source, settings, &names) {
            let key = |part: &SetPart<'_>| keys.get(&part.id).cloned().unwrap_or_default();
            let codes_key = key(&found.codes);
            let prefix = codes_key.strip_suffix(found.codes.name).unwrap_or("").to_owned();
            let parts = std::iter::once(&found.codes).chain(&found.helpers).map(key).collect();
            let (mut inferred, mut refused) = (Vec::new(), None);
            let taken =
                found.name != found.codes.name && names.iter().any(|part| part.name == found.name);
            let made = match taken {
                true => Err(Error::damaged(format!("there is also a tensor `{}`", found.name))),
                false => found.made,
            };
            match made {
                Ok(made) => {
                    let layout = Layout::Dequantised(Arc::new(made.of));
                    let like = found.codes.tensor;
                    let tensor = Tensor {
                        requires_grad: like.requires_grad,
                        class: like.class.clone(),
                        ..Tensor::new(DType::F32, made.shape, layout)
                    };
                    // Reports shapes that contradict each other now, not when values are read.
                    match statelens_tensor::Gather::new(
                        &source.files,
                        &tensor,
                        0..tensor.numel().unwrap_or(0).min(1),
                        statelens_tensor::BUDGET,
                    ) {
                        Ok(_) => {
                            let id = builder.push_tensor(finish(tensor))?;
                            let value = builder.push(Value::Tensor(id))?;
                            changes.replaced.insert(found.codes.id, (found.name.clone(), value));
                            let helpers = found.helpers.iter().filter(|_| dense);
                            changes.removed.extend(helpers.map(|part| part.id));
                            inferred = made.inferred;
                        }
                        Err(error) => refused = Some(error),
                    }
                }
                Err(error) => refused = Some(error),
            }
            let key = format!("{prefix}{}", found.name);
            let scheme = found.scheme;
            weights.push(QuantisedWeight { key, scheme, parts, inferred, refused });
        }
        if let Some(Value::Dict(dict)) = builder.value_mut(ValueId(index as u32)) {
            changes.apply(dict);
        }
    }
    let mut by_tensor: HashMap<TensorId, &String> = HashMap::new();
    for leaf in source.leaves() {
        if let Some((id, _)) = source.tensor_of(leaf.target)
            && let Some(key) = keys.get(&leaf.id)
        {
            by_tensor.entry(id).or_insert(key);
        }
    }
    for (index, tensor) in source.tensors().iter().enumerate().filter(|_| dense) {
        let id = TensorId(index as u32);
        let Some(key) = by_tensor.get(&id) else { continue };
        let (scheme, numbers) = match (&tensor.dtype, &tensor.quantizer) {
            (DType::Blocks(block), _) => {
                let unknown = || {
                    let name = block.name;
                    Error::unsupported(format!("how {name} blocks are decoded is not known"))
                };
                (block.name.to_owned(), dequantized(tensor).ok_or_else(unknown))
            }
            (dtype, Some(quantizer)) => {
                (dtype.name().to_owned(), schemes::torch::numbers(source, tensor, quantizer))
            }
            _ => continue,
        };
        let refused = match (numbers, builder.tensor_mut(id)) {
            (Ok(numbers), Some(place)) => {
                *place = finish(numbers);
                None
            }
            (numbers, _) => numbers.err(),
        };
        let key = (*key).clone();
        let parts = vec![key.clone()];
        weights.push(QuantisedWeight { key, scheme, parts, inferred: Vec::new(), refused });
    }
    if weights.is_empty() {
        return Ok(None);
    }
    Ok(Some(Dequantisation { checkpoint: builder.rebuild(source)?, weights }))
}

/// The changes of a dict.
#[derive(Default)]
struct Changes {
    /// The new name and value of entries, by their old value.
    replaced: HashMap<ValueId, (String, ValueId)>,
    removed: HashSet<ValueId>,
}

impl Changes {
    fn apply(&self, dict: &mut Dict) {
        dict.entries.retain(|(_, id)| !self.removed.contains(id));
        for (key, id) in &mut dict.entries {
            if let Some((name, value)) = self.replaced.get(id) {
                *key = DictKey::Str(name.as_str().into());
                *id = *value;
            }
        }
    }
}

/// Returns the tensors of a dict with their names.
fn names<'a>(source: &'a Checkpoint, dict: &'a Dict) -> Vec<SetPart<'a>> {
    let named = dict.entries.iter().filter_map(|(key, id)| {
        let DictKey::Str(name) = key else { return None };
        let name = std::str::from_utf8(name.as_bytes()).ok()?;
        let (_, tensor) = source.tensor_of(*id)?;
        Some(SetPart { name, id: *id, tensor })
    });
    named.collect()
}

/// Returns the quantised weights of a dict, in its order.
fn found<'a>(
    source: &'a Checkpoint,
    settings: &'a Settings,
    names: &[SetPart<'a>],
) -> Vec<Found<'a>> {
    let mut order: Vec<&str> = Vec::new();
    let mut modules: HashMap<&str, HashMap<String, SetPart<'a>>> = HashMap::new();
    let by_name: HashMap<&str, SetPart<'a>> = names.iter().map(|part| (part.name, *part)).collect();
    for part in names {
        let (module, name) = part.name.rsplit_once('.').unwrap_or(("", part.name));
        let parts = modules.entry(module).or_insert_with(|| {
            order.push(module);
            HashMap::new()
        });
        parts.insert(name.to_lowercase(), *part);
    }
    let mut all = Vec::new();
    for module in order {
        let mut parts = modules.get(module).cloned().unwrap_or_default();
        // bitsandbytes names the parts of a weight after it: `X.weight.absmax`.
        if parts.contains_key("absmax") || parts.contains_key("quant_map") {
            let state = format!("{module}.quant_state");
            for (name, part) in modules.get(&*state).into_iter().flatten() {
                parts.insert(format!("quant_state.{name}"), *part);
            }
            if let Some(codes) = by_name.get(module) {
                parts.insert("codes".into(), *codes);
            }
        }
        let set = Set { files: &source.files, settings, module, parts };
        all.extend(schemes::recognise(&set));
    }
    all
}
