//! Replaces quantised weights in a checkpoint by tensors of numbers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use statelens_checkpoint::{
    Checkpoint, DType, Dict, DictKey, Error, Layout, Result, Tensor, TensorId, Value, ValueId,
};
use statelens_tensor::{BUDGET, Gather, dequantized};

use crate::experts::{PackedExperts, packed_experts};
use crate::schemes;
use crate::set::{Found, Made, QuantisedWeight, Set, SetPart};
use crate::settings::Settings;

/// A checkpoint with quantised weights as tensors of numbers.
#[derive(Debug)]
pub struct Dequantisation {
    /// The checkpoint. Weights that were refused are unchanged in it.
    pub checkpoint: Checkpoint,
    /// The quantised weights, in the order of the file.
    pub weights: Vec<QuantisedWeight>,
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
/// float32, for display; `None` if it has no such weights. Scales and other parts stay in it, but not the
/// codes. Blocks that are one tensor are unchanged.
pub fn shown(source: &Checkpoint) -> Result<Option<Dequantisation>> {
    replaced(source, None, false)
}

/// Returns the checkpoint with packed experts as indices into their codebooks; `None` if there are
/// none.
pub fn with_indices(source: &Checkpoint) -> Result<Option<Dequantisation>> {
    let (mut builder, mut weights) = (source.edit(), Vec::new());
    for experts in packed_experts(source) {
        if let (Ok(indices), Some(place)) = (experts.indices, builder.tensor_mut(experts.tensor)) {
            *place = indices;
        }
        weights.push(experts.weight);
    }
    if weights.is_empty() {
        return Ok(None);
    }
    Ok(Some(Dequantisation { checkpoint: builder.rebuild(source)?, weights }))
}

fn replaced(
    source: &Checkpoint,
    dtype: Option<&DType>,
    dense: bool,
) -> Result<Option<Dequantisation>> {
    let packed = packed_weights(source)?;
    let experts = packed_experts(source);
    let blocks = dense && source.tensors().iter().any(is_quantised);
    if packed.is_empty() && experts.is_empty() && !blocks {
        return Ok(None);
    }
    let mut builder = source.edit();
    let mut weights = Vec::new();
    let finish = |tensor: Tensor| match dtype {
        Some(dtype) => Tensor { dtype: dtype.clone(), ..tensor },
        None => tensor,
    };
    let mut changes: HashMap<ValueId, Changes> = HashMap::new();
    for PackedWeight { dict, is_whole, name, codes, helpers, tensor, weight } in packed {
        if let Some(tensor) = tensor {
            let id = builder.push_tensor(finish(tensor))?;
            if is_whole {
                if let Some(place) = builder.value_mut(dict) {
                    *place = Value::Tensor(id);
                }
                weights.push(weight);
                continue;
            }
            let value = builder.push(Value::Tensor(id))?;
            let changes = changes.entry(dict).or_default();
            changes.replaced.insert(codes, (name, value));
            changes.removed.extend(helpers.into_iter().filter(|_| dense));
        }
        weights.push(weight);
    }
    for (dict, changes) in changes {
        if let Some(Value::Dict(dict)) = builder.value_mut(dict) {
            changes.apply(dict);
        }
    }
    for PackedExperts { tensor, indices, mut weight } in experts {
        if dense {
            weight.refused.get_or_insert_with(|| {
                Error::unsupported("how codebooks and scales make up the weight is not public")
            });
        } else if let (Ok(indices), Some(place)) = (indices, builder.tensor_mut(tensor)) {
            *place = indices;
        }
        weights.push(weight);
    }
    let mut by_tensor: HashMap<TensorId, String> = HashMap::new();
    for leaf in source.each_leaf().filter(|_| blocks) {
        if let Some((id, _)) = source.tensor_of(leaf.target).filter(|(_, of)| is_quantised(of)) {
            by_tensor.entry(id).or_insert_with(|| leaf.flat.to_lossy().into_owned());
        }
    }
    for (index, tensor) in source.tensors().iter().enumerate().filter(|_| blocks) {
        let id = TensorId(index as u32);
        let Some(key) = by_tensor.remove(&id) else { continue };
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
        let parts = vec![key.clone()];
        weights.push(QuantisedWeight {
            key,
            scheme,
            parts,
            inferred: Vec::new(),
            are_indices: false,
            refused,
        });
    }
    Ok(Some(Dequantisation { checkpoint: builder.rebuild(source)?, weights }))
}

/// Returns whether the elements of a tensor are codes with a scale.
fn is_quantised(tensor: &Tensor) -> bool {
    matches!(tensor.dtype, DType::Blocks(_)) || tensor.quantizer.is_some()
}

/// A weight that is stored as several tensors.
pub(crate) struct PackedWeight {
    /// The dict of its parts.
    dict: ValueId,
    /// Whether the dict has nothing else: the weight takes its place.
    is_whole: bool,
    /// Its name there.
    name: String,
    codes: ValueId,
    helpers: Vec<ValueId>,
    /// Its numbers; `None` if they are not known.
    pub(crate) tensor: Option<Tensor>,
    pub(crate) weight: QuantisedWeight,
}

/// Returns the weights that are stored as several tensors, in the order of the file. A checkpoint
/// without such weights costs one look at each name.
pub(crate) fn packed_weights(source: &Checkpoint) -> Result<Vec<PackedWeight>> {
    let is_narrow =
        |id: ValueId| source.tensor_of(id).is_some_and(|(_, of)| schemes::is_narrow(of));
    let is_telling = |(key, id): &(DictKey, ValueId)| match key {
        DictKey::Str(name) => std::str::from_utf8(name.as_bytes()).is_ok_and(|name| {
            schemes::is_telling(name) || name.ends_with("weight") && is_narrow(*id)
        }),
        _ => false,
    };
    let dicts = source.values().iter().enumerate().filter_map(|(at, value)| {
        let Value::Dict(dict) = value else { return None };
        dict.entries.iter().any(is_telling).then_some((ValueId(at as u32), dict))
    });
    let dicts: Vec<(ValueId, &Dict)> = dicts.collect();
    let mut weights = Vec::new();
    if dicts.is_empty() {
        return Ok(weights);
    }
    let keys: HashMap<ValueId, String> =
        source.each_leaf().map(|leaf| (leaf.id, leaf.flat.to_lossy().into_owned())).collect();
    let settings = Settings::of(&source.files);
    for (id, dict) in dicts {
        let names = names(source, dict);
        let known: HashMap<&str, SetPart<'_>> =
            names.iter().map(|part| (part.name, *part)).collect();
        let whole = schemes::torchao::find(source, dict, &names, &settings);
        let is_whole = whole.is_some();
        let all = match whole {
            Some(whole) => vec![whole],
            None => found(source, &settings, &names),
        };
        for mut found in all {
            let listed: HashSet<ValueId> = found.helpers.iter().map(|part| part.id).collect();
            let more = schemes::of_activations(&found.name);
            let more = more.iter().filter_map(|name| known.get(name.as_str()).copied());
            found.helpers.extend(
                more.filter(|part| part.tensor.dtype.is_float() && !listed.contains(&part.id)),
            );
            let key = |part: &SetPart<'_>| keys.get(&part.id).cloned().unwrap_or_default();
            let codes_key = key(&found.codes);
            let prefix = codes_key.strip_suffix(found.codes.name).unwrap_or("");
            let taken = found.name != found.codes.name && known.contains_key(&*found.name);
            let made = match taken {
                true => Err(Error::damaged(format!("there is also a tensor `{}`", found.name))),
                false => found.made,
            };
            let (mut tensor, mut inferred, mut refused) = (None, Vec::new(), None);
            match made.and_then(|made| numbers(source, found.codes.tensor, made)) {
                Ok((numbers, assumed)) => (tensor, inferred) = (Some(numbers), assumed),
                Err(error) => refused = Some(error),
            }
            let key_of_weight = match is_whole {
                true => prefix.strip_suffix('.').unwrap_or(prefix).to_owned(),
                false => format!("{prefix}{}", found.name),
            };
            weights.push(PackedWeight {
                dict: id,
                is_whole,
                codes: found.codes.id,
                helpers: found.helpers.iter().map(|part| part.id).collect(),
                tensor,
                weight: QuantisedWeight {
                    key: key_of_weight,
                    scheme: found.scheme,
                    parts: std::iter::once(&found.codes).chain(&found.helpers).map(key).collect(),
                    inferred,
                    are_indices: false,
                    refused,
                },
                name: found.name,
            });
        }
    }
    Ok(weights)
}

/// Returns the numbers of a weight and the inferred settings. Reports shapes that contradict each
/// other now, not when values are read.
fn numbers(source: &Checkpoint, codes: &Tensor, made: Made) -> Result<(Tensor, Vec<String>)> {
    let tensor = Tensor {
        requires_grad: codes.requires_grad,
        class: codes.class.clone(),
        ..Tensor::new(DType::F32, made.shape, Layout::Dequantised(Arc::new(made.of)))
    };
    let first = 0..tensor.numel().unwrap_or(0).min(1);
    Gather::new(&source.files, &tensor, first, BUDGET)?;
    Ok((tensor, made.inferred))
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
        // Quanto nests codes that are packed: `X.weight._data._data`.
        if parts.contains_key("_shift")
            && let Some(codes) = by_name.get(&*format!("{module}._data._data"))
        {
            parts.insert("_data._data".into(), *codes);
            let bias = module.rsplit_once('.').map(|(layer, _)| format!("{layer}.bias"));
            if let Some(bias) = bias.and_then(|bias| by_name.get(&*bias)) {
                parts.insert("bias".into(), *bias);
            }
        }
        let attributes = source.raw_attributes(source.root());
        let set = Set { files: &source.files, settings, attributes, module, parts };
        all.extend(schemes::recognise(&set));
    }
    all
}
