//! Quantised weights as tensors of numbers.

use std::path::{Path, PathBuf};

use statelens::PathText as _;
use statelens::parts::checkpoint::{DType, visible};
use statelens::parts::quantised::{QuantisedWeight, complete};
use statelens::{Checkpoint, Error, Result};

use crate::print::{counted, warn};

/// Weights that are refused and listed one by one.
const SHOWN: usize = 20;

/// Opens a checkpoint for reading values. Weights that are stored as codes and scales are tensors of
/// numbers; their codes are read as they are if a key of `keys` names them.
pub(super) fn open(file: &Path, with: &[PathBuf], keys: &[&str]) -> Result<Checkpoint> {
    shown(super::open(file, with)?, keys)
}

/// Returns a checkpoint for reading values, see [`open`].
fn shown(opened: Checkpoint, keys: &[&str]) -> Result<Checkpoint> {
    let (shown, weights) = opened.quantised_unless(keys)?;
    report(&weights);
    Ok(shown)
}

/// Returns the checkpoint as it is stored, and as [`open`] does, until the process ends.
pub(super) fn open_both(
    file: &Path,
    with: &[PathBuf],
    keys: &[&str],
) -> Result<(Checkpoint, &'static Checkpoint)> {
    let stored = super::open(file, with)?;
    let shown = shown(stored.clone(), keys)?;
    Ok((stored, Box::leak(Box::new(shown))))
}

/// Opens a checkpoint as [`open`] does, until the process ends.
pub(super) fn open_for_good(
    file: &Path,
    with: &[PathBuf],
    keys: &[&str],
) -> Result<&'static Checkpoint> {
    open(file, with, keys).map(|checkpoint| &*Box::leak(Box::new(checkpoint)))
}

/// Returns a checkpoint in which all weights are tensors of numbers, and lists those whose values are
/// not known. Also returns whether all values are known.
pub(super) fn listed(checkpoint: Checkpoint) -> Result<(Checkpoint, bool)> {
    match checkpoint.dequantised(None)? {
        None => Ok((checkpoint, true)),
        Some((dense, weights)) => {
            report(&weights);
            Ok((dense, weights.iter().all(|weight| weight.refused.is_none())))
        }
    }
}

/// Returns a checkpoint in which all weights are tensors of `dtype`, and the weights that were
/// quantised. Fails if the values of a weight are not known.
pub(super) fn dense(
    checkpoint: &Checkpoint,
    dtype: &str,
) -> Result<(Checkpoint, Vec<QuantisedWeight>)> {
    let dtype = DType::from_torch_name(dtype)
        .ok_or_else(|| Error::refused(format!("`{dtype}` is not a dtype")))?;
    let Some((dense, weights)) = checkpoint.dequantised(Some(&dtype))? else {
        return Err(Error::refused("no weight is quantised")
            .coded("not-quantised")
            .advice("Leave out --dequantize."));
    };
    complete(&weights)?;
    report(&weights);
    warn(&summary(&weights));
    Ok((dense, weights))
}

/// Returns both sides of a comparison in one form, as [`statelens::sides::alike`] does, and whether
/// only one of them is quantised.
pub(super) fn alike(left: Checkpoint, right: Checkpoint) -> Result<(Checkpoint, Checkpoint, bool)> {
    let (left, right, weights, is_one) = statelens::sides::alike(left, right)?;
    report(&weights);
    Ok((left, right, is_one))
}

/// Returns the number of weights by scheme, and of the tensors that they replace.
fn summary(weights: &[QuantisedWeight]) -> String {
    let mut schemes: Vec<(&str, u64)> = Vec::new();
    for weight in weights {
        match schemes.iter_mut().find(|(scheme, _)| *scheme == weight.scheme) {
            Some((_, count)) => *count += 1,
            None => schemes.push((&weight.scheme, 1)),
        }
    }
    let schemes: Vec<String> =
        schemes.iter().map(|(scheme, count)| format!("{count} × {scheme}")).collect();
    let parts: usize = weights.iter().map(|weight| weight.parts.len().saturating_sub(1)).sum();
    let helpers = match parts {
        0 => String::new(),
        parts => format!("; left out {} of scales and the like", counted(parts as u64, "tensor")),
    };
    format!("dequantised {}{helpers}", schemes.join(", "))
}

/// Warns of weights whose values are not known, and of inferred settings.
fn report(weights: &[QuantisedWeight]) {
    let refused = weights.iter().filter_map(|weight| Some((weight, weight.refused.as_ref()?)));
    for (weight, why) in refused.clone().take(SHOWN) {
        warn(&format!("`{}` ({}) is not dequantised: {why}", visible(&weight.key), weight.scheme));
    }
    let more = refused.count().saturating_sub(SHOWN);
    if more > 0 {
        warn(&format!("{} more are not dequantised", counted(more as u64, "weight")));
    }
    let indices: Vec<&QuantisedWeight> =
        weights.iter().filter(|weight| weight.are_indices && weight.refused.is_none()).collect();
    if let [first, ..] = indices[..] {
        let beside: Vec<String> =
            first.parts.iter().skip(1).map(|key| format!("`{}`", visible(key))).collect();
        let beside = if beside.is_empty() { "no codebook".into() } else { beside.join(", ") };
        warn(&format!(
            "{} shown as indices into codebooks, not as weights: `{}`, {}, with {beside}",
            counted(indices.len() as u64, "tensor"),
            visible(&first.key),
            first.scheme,
        ));
    }
    let mut inferred = weights.iter().filter(|weight| !weight.inferred.is_empty()).peekable();
    if let Some(first) = inferred.peek() {
        let (key, what) = (visible(&first.key), first.inferred.join(", "));
        let count = inferred.count();
        let others = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
        warn(&format!(
            "inferred from shapes, because no config.json says it: {what} (`{key}`{others})"
        ));
    }
}

/// Returns the text of a `config.json` without the settings of the quantisation; `None` if it has
/// none.
pub(super) fn without_settings(text: &str) -> Option<String> {
    let mut config: serde_json::Value = serde_json::from_str(text).ok()?;
    let object = config.as_object_mut()?;
    let names = ["quantization_config", "quantization", "compression_config"];
    let removed = names.map(|name| object.remove(name).is_some());
    let text = serde_json::to_string_pretty(&config).ok()?;
    removed.contains(&true).then_some(text + "\n")
}

/// Writes the `config.json` of the source next to the output, without the settings of the
/// quantisation. A file that is there is not replaced.
pub(super) fn write_config(input: &Path, output: &Path) -> Result<()> {
    let folder = |path: &Path| match path.is_dir() {
        true => path.to_owned(),
        false => path.parent().map(Path::to_owned).unwrap_or_default(),
    };
    let (from, to) = (folder(input).join("config.json"), folder(output).join("config.json"));
    let Ok(text) = std::fs::read_to_string(&from) else { return Ok(()) };
    let Some(text) = without_settings(&text) else { return Ok(()) };
    if to.exists() {
        let there = std::fs::read_to_string(&to).unwrap_or_default();
        if without_settings(&there).is_none() {
            return Ok(());
        }
        warn(&format!(
            "{} still has the settings of the quantisation: remove `quantization_config` from it, or loaders \
             will expect codes",
            to.to_text()
        ));
        return Ok(());
    }
    crate::output::write_file(&to, false, statelens::output::Sync::of(false), |out| {
        out(text.as_bytes())?;
        Ok(())
    })?;
    warn(&format!("wrote {} without `quantization_config`", to.to_text()));
    Ok(())
}
