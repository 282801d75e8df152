//! Packed experts of Cerebras: words of 16 bits, each with the same element of several experts.
//!
//! A field of a word is an index into the codebook of its expert. How codebooks and scales make up
//! the weight is not public, so the indices are shown and compared, and the weight is not computed.
//! The widths of the fields are in attributes of the root: `KEY.__metadata__`,
//! `KEY.quantization_schema`, or `codebook_packing_schema.__metadata__` for all keys with the name
//! of a projection.

use std::collections::HashMap;
use std::sync::Arc;

use statelens_checkpoint::json::{Document, Id, JsonNode};
use statelens_checkpoint::{
    Checkpoint, CodePacking, CodeValues, DType, Error, Layout, MAX_FIELDS, Result, Tensor, TensorId,
};

use crate::schemes::{scaled_codes, unscaled};
use crate::set::QuantisedWeight;

/// The end of the names of attributes about a key.
const METADATA: &str = ".__metadata__";

/// The attribute with the widths of projections.
const PROJECTIONS: &str = "codebook_packing_schema.__metadata__";

/// The names of the tensors next to packed experts.
const SIBLINGS: [&str; 4] = ["codebook", "codebooks", "qscale", "qscales"];

/// The most texts within texts that are parsed.
const MAX_NESTED: usize = 4;

/// Packed experts, with the tensor of their indices.
pub(crate) struct PackedExperts {
    pub(crate) tensor: TensorId,
    /// The indices as uint8, in a matrix for each expert.
    pub(crate) indices: Result<Tensor>,
    pub(crate) weight: QuantisedWeight,
}

/// Returns the packed experts, in the order of the file.
pub(crate) fn packed_experts(source: &Checkpoint) -> Vec<PackedExperts> {
    let attributes = source.raw_attributes(source.root());
    let about: HashMap<String, String> = attributes
        .iter()
        .map(|(name, text)| (name.to_lossy().into_owned(), text.to_lossy().into_owned()))
        .filter(|(name, _)| name.contains(METADATA) || name.ends_with(".quantization_schema"))
        .collect();
    let mut found = Vec::new();
    if about.is_empty() {
        return found;
    }
    let leaves = source.leaves();
    for leaf in &leaves {
        let Some((id, tensor)) = source.tensor_of(leaf.target) else { continue };
        let key = leaf.flat.to_lossy();
        if tensor.dtype != DType::U16 || found.iter().any(|it: &PackedExperts| it.tensor == id) {
            continue;
        }
        let Some(widths) = widths_of(&key, &about) else { continue };
        let module = key.rsplit_once('.').map_or("", |(module, _)| module);
        let is_sibling = |other: &str| {
            let (of, name) = other.rsplit_once('.').unwrap_or(("", other));
            SIBLINGS.contains(&name) && (of == module || of == key)
        };
        let siblings = leaves.iter().map(|leaf| leaf.flat.to_lossy()).filter(|it| is_sibling(it));
        let parts = std::iter::once(key.clone()).chain(siblings).map(|key| key.into_owned());
        let texts: Vec<String> = widths.iter().map(u64::to_string).collect();
        let indices = indices(tensor, &widths);
        let weight = QuantisedWeight {
            key: key.clone().into_owned(),
            scheme: format!("packed experts of {} bits", texts.join(", ")),
            parts: parts.collect(),
            inferred: Vec::new(),
            are_indices: true,
            refused: indices.as_ref().err().cloned(),
        };
        found.push(PackedExperts { tensor: id, indices, weight });
    }
    found
}

/// Returns the tensor of indices of packed words.
fn indices(tensor: &Tensor, widths: &[u64]) -> Result<Tensor> {
    let bad = || {
        Error::damaged(format!("fields of {widths:?} bits in words of 16"))
            .expected("fields of 1 to 8 bits, at most 16 together")
    };
    let mut fields = [0; MAX_FIELDS];
    let known = widths.len() <= MAX_FIELDS && widths.iter().all(|width| (1..=8).contains(width));
    if !known || widths.is_empty() || widths.iter().sum::<u64>() > 16 {
        return Err(bad());
    }
    for (field, width) in fields.iter_mut().zip(widths) {
        *field = *width as u8;
    }
    let Some((words, rest)) = tensor.shape.split_first() else {
        return Err(Error::damaged("packed experts without a dimension of experts"));
    };
    let large = || Error::damaged("packed experts too large to count");
    let experts = words.checked_mul(widths.len() as u64).ok_or_else(large)?;
    let (rows, columns) = rest.split_first().map_or((1, &rest[..0]), |(rows, rest)| (*rows, rest));
    let columns = columns.iter().try_fold(1u64, |all, dim| all.checked_mul(*dim));
    let shape = [experts, rows, columns.ok_or_else(large)?];
    let packing = CodePacking::Fields(fields);
    let of = unscaled(scaled_codes(tensor, packing, CodeValues::Minus(0), shape, tensor, 1));
    let shape = std::iter::once(experts).chain(rest.iter().copied()).collect();
    let numbers = Tensor::new(DType::F32, shape, Layout::Dequantised(Arc::new(of)));
    Ok(Tensor { dtype: DType::U8, class: tensor.class.clone(), ..numbers })
}

/// Returns the widths of the fields of a tensor; `None` if no attribute says that it is packed.
fn widths_of(key: &str, about: &HashMap<String, String>) -> Option<Vec<u64>> {
    let own = ["", ".quantization_schema"].map(|middle| format!("{key}{middle}{METADATA}"));
    let plain = format!("{key}.quantization_schema");
    for name in own.iter().chain([&plain]) {
        if let Some(widths) = about.get(name).and_then(|text| find(text, "bit_widths")) {
            return Some(widths);
        }
    }
    let all = about.get(PROJECTIONS)?;
    let mut steps = key.split('.').flat_map(|step| step.split("__"));
    steps.find_map(|step| find(all, step))
}

/// Returns the list of numbers with a name, or the `bit_widths` in an object with this name, in a JSON
/// text or in the JSON texts that are its strings.
fn find(text: &str, name: &str) -> Option<Vec<u64>> {
    let mut open = vec![(text.to_owned(), 0)];
    while let Some((text, depth)) = open.pop() {
        // HDF5's texts are shown in quotes.
        let (start, end) = (text.find(['{', '[']), text.rfind(['}', ']']));
        let Some(inner) = start.zip(end).and_then(|(start, end)| text.get(start..=end)) else {
            continue;
        };
        let parsed = Document::parse(inner.as_bytes())
            .or_else(|_| Document::parse(inner.replace("\\\"", "\"").as_bytes()));
        let Ok(document) = parsed else { continue };
        let mut nodes = vec![document.root()];
        while let Some(id) = nodes.pop() {
            match document.node(id) {
                JsonNode::Object(entries) => {
                    for (key, id) in entries {
                        let is_named = key.to_lossy() == name;
                        if let Some(widths) = is_named.then(|| numbers(&document, *id)).flatten() {
                            return Some(widths);
                        }
                        nodes.push(*id);
                    }
                }
                JsonNode::Array(items) => nodes.extend(items),
                JsonNode::Str(text) if depth < MAX_NESTED => {
                    let text = text.to_lossy();
                    if text.trim_start().starts_with(['{', '[']) {
                        open.push((text.into_owned(), depth + 1));
                    }
                }
                _ => {}
            }
        }
    }
    None
}

/// Returns a list of numbers, or that of the field `bit_widths`.
fn numbers(document: &Document, id: Id) -> Option<Vec<u64>> {
    let items = match document.node(id) {
        JsonNode::Array(items) => items,
        _ => match document.node(document.get(id, "bit_widths")?) {
            JsonNode::Array(items) => items,
            _ => return None,
        },
    };
    let number = |id: &Id| match document.node(*id) {
        JsonNode::Int(number) => number.to_string().parse().ok(),
        _ => None,
    };
    items.iter().map(number).collect()
}
