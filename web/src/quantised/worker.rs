//! Describes quantised weights, and plans writing their numbers.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use statelens_checkpoint::{
    Checkpoint, DType, Error, FileSet, Finding, Grade, Leaf, Result, Tensor, Unwatched, counted,
    listed,
};
use statelens_quantised::{
    Dequantisation, QuantisedWeight, ScaleFault, complete, dequantise, reinterpreted, scale_faults,
    shown,
};
use statelens_values::weights::Noticed;

use crate::family;
use crate::quantised::message::{QuantisedDetails, ShownAs, StoredPart};
use crate::rows::Row;
use crate::worker::opened::OpenCheckpoint;
use crate::worker::weights::QuantisedWeights;

/// The most weights without numbers that findings name.
const MAX_NOTES: usize = 20;

/// Returns the checkpoint with quantised weights as tensors of numbers, if it has any.
pub(crate) fn shown_weights(stored: &Checkpoint) -> Option<(Checkpoint, QuantisedWeights)> {
    // Weights that can't be understood are shown as they are stored.
    let Dequantisation { checkpoint, weights } = shown(stored).ok()??;
    Some((checkpoint, QuantisedWeights::new(weights)))
}

/// Returns the stored tensors by flat key.
pub(crate) fn by_key(stored: &Checkpoint) -> HashMap<String, (&Tensor, Leaf)> {
    let tensor = |leaf: Leaf| {
        let (_, tensor) = stored.tensor_of(leaf.target)?;
        Some((leaf.flat.to_lossy().into_owned(), (tensor, leaf)))
    };
    stored.leaves().into_iter().filter_map(tensor).collect()
}

/// Gives rows of quantised weights the name of their scheme as dtype, and the bytes that their codes
/// take.
pub(crate) fn mark_rows(rows: &mut [Row], weights: &QuantisedWeights, stored: &Checkpoint) {
    let tensors = by_key(stored);
    for row in rows.iter_mut() {
        let Some(weight) = weights.get(&row.key).filter(|weight| weight.refused.is_none()) else {
            continue;
        };
        let codes = weight.parts.first().and_then(|part| tensors.get(part));
        if let Some(bytes) = codes.and_then(|(tensor, _)| tensor.nbytes()) {
            row.bytes = bytes;
            row.dtype = short(&weight.scheme);
        }
    }
}

/// Returns a scheme as the name of a dtype: `GPTQ4` for `GPTQ, 4 bits`, `NF4` for `bitsandbytes nf4`.
fn short(scheme: &str) -> String {
    let words = || scheme.split([' ', ',', '(']).filter(|word| !word.is_empty());
    let has_digit = |word: &&str| word.contains(|c: char| c.is_ascii_digit());
    let bits = words().find(has_digit).unwrap_or_default();
    let first = words().next().unwrap_or_default();
    let name = match first {
        _ if bits.starts_with(|c: char| c.is_ascii_alphabetic()) => bits.to_owned(),
        "compressed-tensors" => format!("INT{bits}"),
        _ => format!("{first}{bits}"),
    };
    let plain = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_');
    plain.collect::<String>().to_uppercase()
}

/// Describes how a row is stored; `None` if it is not quantised.
pub(crate) fn details(open: &OpenCheckpoint, key: &str) -> Option<QuantisedDetails> {
    let weight = open.weights.get(key).or_else(|| {
        // A refused weight is shown as it is stored.
        open.weights.all.iter().find(|it| it.parts.iter().any(|part| part == key))
    })?;
    let stored = open.stored();
    let tensors = by_key(&stored.checkpoint);
    let part = |key: &String| {
        let (tensor, _) = tensors.get(key)?;
        Some(StoredPart {
            key: key.clone(),
            dtype: tensor.dtype.name().to_owned(),
            shape: tensor.shape.clone(),
            bytes: tensor.nbytes().unwrap_or(0),
        })
    };
    let is_it = weight.key == key;
    Some(QuantisedDetails {
        weight: weight.key.clone(),
        scheme: weight.scheme.clone(),
        dtype: match weight.are_indices || !is_it {
            true => String::new(),
            false => "float32".to_owned(),
        },
        parts: weight.parts.iter().filter_map(part).collect(),
        inferred: weight.inferred.clone(),
        refused: weight.refused.as_ref().map_or_else(String::new, ToString::to_string),
    })
}

/// Returns notes on weights whose numbers are not known.
pub(crate) fn findings(weights: &QuantisedWeights) -> Vec<Finding> {
    let refused = weights.all.iter().filter_map(|it| Some((it, it.refused.as_ref()?)));
    let finding = |(weight, why): (&QuantisedWeight, &Error)| {
        let title = format!("`{}` is shown as it is stored", weight.key);
        let text = format!("{}: {why}.", weight.scheme);
        let place = weight.parts.first().unwrap_or(&weight.key).clone();
        Finding::new(Grade::Note, title).detail(text).place(place)
    };
    refused.take(MAX_NOTES).map(finding).collect()
}

/// Reads the scales of quantised weights, and returns findings about those that are wrong.
pub(crate) fn noticed(open: &OpenCheckpoint) -> Vec<Noticed> {
    // Those on a server are many small reads.
    if open.weights.all.is_empty() || !open.sources.is_local() {
        return Vec::new();
    }
    let faults = scale_faults(&open.stored().checkpoint, &|_| true, &mut Unwatched);
    let finding = |fault: ScaleFault| Noticed {
        grade: Grade::Damage,
        title: format!("The scales of {} are wrong", fault.key),
        text: format!("{}: {}.", fault.scheme, fault.text()),
        advice: "The numbers of this weight are wrong, too. Quantise it again.".to_owned(),
        tensors: open
            .leaves
            .iter()
            .position(|leaf| leaf.flat == fault.key[..])
            .into_iter()
            .collect(),
        element: None,
        series: None,
    };
    faults.unwrap_or_default().into_iter().map(finding).collect()
}

/// Unstacks layers and dequantises weights, as far as the options request it. Returns the checkpoint
/// to write, with notes for the user.
///
/// # Errors
/// The numbers of a weight are not known, or nothing is quantised.
pub(crate) fn prepared(
    open: &OpenCheckpoint,
    unstack: bool,
    dtype: Option<&str>,
) -> Result<(OpenCheckpoint, Vec<String>)> {
    let stored = open.stored();
    let mut checkpoint = stored.checkpoint.clone();
    let mut notes = Vec::new();
    if unstack && let Some(apart) = statelens_convert::unstacked(&checkpoint)? {
        checkpoint = Arc::new(apart);
    }
    if let Some(name) = dtype {
        let dtype = DType::from_torch_name(name)
            .ok_or_else(|| Error::refused(format!("`{name}` is not a dtype")))?;
        let found = dequantise(&checkpoint, Some(&dtype))?;
        let found = found.ok_or_else(|| Error::refused("no weight is quantised"))?;
        complete(&found.weights)?;
        notes = lines(&found.weights, name);
        checkpoint = Arc::new(found.checkpoint);
    }
    if Arc::ptr_eq(&checkpoint, &stored.checkpoint) {
        return Ok((stored, notes));
    }
    let leaves = checkpoint.leaves().into();
    let (sources, limits) = (Rc::clone(&stored.sources), stored.limits.clone());
    let mut edited = OpenCheckpoint::new(checkpoint, leaves, sources, limits);
    edited.read_as = stored.read_as;
    Ok((edited, notes))
}

/// Returns the name and the text of the model's config without the settings of the quantisation.
/// `None` if there is no config, or if it has no such settings.
pub(crate) fn config(files: &FileSet) -> Option<(String, String)> {
    let config = family::worker::config_of_files(files)?;
    let mut value = family::worker::read_config(&config).ok()?;
    let map = value.as_map_mut()?;
    let names = ["quantization_config", "quantization", "compression_config"];
    let removed = names.map(|name| map.remove(name).is_some());
    let name = config.name.rsplit('/').next().unwrap_or_default();
    removed.contains(&true).then(|| (name.to_owned(), value.to_json()))
}

/// Lists what dequantising does: weights by scheme, the tensors left out, inferred settings.
fn lines(weights: &[QuantisedWeight], dtype: &str) -> Vec<String> {
    let mut schemes: Vec<(&str, u64)> = Vec::new();
    for weight in weights {
        match schemes.iter_mut().find(|(scheme, _)| *scheme == weight.scheme) {
            Some((_, count)) => *count += 1,
            None => schemes.push((&weight.scheme, 1)),
        }
    }
    let mut lines: Vec<String> = schemes
        .iter()
        .map(|(scheme, count)| {
            format!("Dequantised to `{dtype}`: {}, {scheme}", counted(*count, "weight"))
        })
        .collect();
    let left_out: Vec<String> = weights
        .iter()
        .flat_map(|weight| weight.parts.iter().filter(|part| **part != weight.key))
        .map(|part| format!("`{part}`"))
        .collect();
    if !left_out.is_empty() {
        let count = counted(left_out.len() as u64, "stored tensor");
        lines.push(format!("Left out {count}: {}", listed(&left_out, 6)));
    }
    let mut inferred: Vec<String> =
        weights.iter().flat_map(|weight| weight.inferred.clone()).collect();
    statelens_checkpoint::order::natural(&mut inferred);
    inferred.dedup();
    if !inferred.is_empty() {
        let texts = listed(&inferred, 6);
        lines.push(format!("Inferred from shapes, because no config.json says it: {texts}"));
    }
    lines
}

/// Returns the tensor whose stored bytes are shown for a row: its own, or the codes of a quantised
/// weight; in another reading.
pub(crate) fn shown_as(open: &OpenCheckpoint, leaf: &Leaf, shown: &ShownAs) -> Result<Tensor> {
    let stored = open.stored();
    let key = leaf.flat.to_lossy();
    let parts = open.weights.stored_keys(&key);
    let tensors = by_key(&stored.checkpoint);
    let found = parts.first().and_then(|part| tensors.get(part));
    let (tensor, _) = found.ok_or_else(|| Error::refused("this is not a tensor"))?;
    let numbers: Vec<u64> = shown
        .shape
        .split([',', ' ', '[', ']', '(', ')', '\u{d7}'])
        .filter(|word| !word.is_empty())
        .map(|word| word.parse().map_err(|_| Error::refused(format!("`{word}` is not a size"))))
        .collect::<Result<_>>()?;
    let shape = Some(&numbers[..]).filter(|shape| !shape.is_empty());
    reinterpreted(tensor, &shown.dtype, shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_have_short_names() {
        for (scheme, name) in [
            ("GPTQ, 4 bits", "GPTQ4"),
            ("AWQ, 4 bits", "AWQ4"),
            ("bitsandbytes nf4", "NF4"),
            ("bitsandbytes int8", "INT8"),
            ("compressed-tensors, 4 bits", "INT4"),
            ("MLX affine, 4 bits", "MLX4"),
        ] {
            assert_eq!(short(scheme), name);
        }
    }
}
