//! Quantised weights: their scales, and `quantization_config`.

use std::collections::HashMap;

use statelens_checkpoint::{listed, shape_text};

use super::Findings;
use super::config::Config;
use super::document::JsonValue;
use super::rules::{CONFIG_QUANTIZATION, SCALE_MISSING, SCALE_SHAPE};
use super::sets::ShardSet;
use super::shard::TensorEntry;

/// Ends of the names of scales, after the name of a module or of its weight.
const SCALES: [&str; 6] =
    ["weight_scale_inv", "weight_scale", "scale_weight", "weight_scale_2", "scale", "scales"];

pub(super) fn check(set: &ShardSet, config: &Config, findings: &mut Findings<'_>) {
    let by_key: HashMap<&str, (&str, &TensorEntry)> =
        set.tensors().map(|(file, entry)| (entry.key.as_str(), (file, entry))).collect();
    let declared = config.quantization();
    let method = declared.and_then(|it| it.get("quant_method")).and_then(JsonValue::text);
    // float8 weights, each with its scale.
    let weights: Vec<&TensorEntry> = set
        .tensors()
        .map(|(_, entry)| entry)
        .filter(|entry| is_float8(entry) && entry.shape.len() >= 2 && entry.key.ends_with("weight"))
        .collect();
    let scale_of = |entry: &TensorEntry| {
        let module = entry.key.strip_suffix("weight").unwrap_or(&entry.key);
        SCALES.iter().find_map(|end| by_key.get(format!("{module}{end}").as_str()))
    };
    let without: Vec<&str> = weights
        .iter()
        .filter(|entry| scale_of(entry).is_none())
        .map(|entry| entry.key.as_str())
        .collect();
    let has_scale = set.tensors().any(|(_, entry)| entry.key.contains("scale"));
    if !weights.is_empty() && declared.is_some() && !has_scale {
        let text = format!(
            "`quantization_config` in {} says {}, the weights are {}, and no scale is stored",
            config.file(),
            method.unwrap_or("that they are quantised"),
            weights.first().map_or("", |entry| entry.dtype.as_str())
        );
        findings.add(&CONFIG_QUANTIZATION, config.file(), text);
    } else if let Some(first) =
        without.first().filter(|_| has_scale && without.len() < weights.len())
    {
        let text = format!(
            "{} {} float8 and {} no scale",
            listed(&without, 5),
            if without.len() == 1 { "is" } else { "are" },
            if without.len() == 1 { "has" } else { "have" }
        );
        let file = by_key.get(first).map_or("", |(file, _)| file);
        findings.add_key(&SCALE_MISSING, file, first, text);
    }
    if declared.is_none() && !config.root().get("quantization").is_some_and(JsonValue::is_object) {
        undeclared(set, config, findings);
    }
    if let Some(block) = declared.and_then(|it| it.get("weight_block_size")) {
        let block: Vec<u64> = block.items().filter_map(JsonValue::number).collect();
        blocks(&weights, &block, config, &scale_of, findings);
    }
    packed(set, &by_key, config, method, findings);
}

fn is_float8(entry: &TensorEntry) -> bool {
    entry.dtype.starts_with("float8_e4m3") || entry.dtype.starts_with("float8_e5m2")
}

/// Reports quantised weights of which the config says nothing.
fn undeclared(set: &ShardSet, config: &Config, findings: &mut Findings<'_>) {
    let is_quantised = |key: &str| key.ends_with(".qweight") || key.ends_with(".weight_scale_inv");
    let found = set.tensors().find(|(_, entry)| is_quantised(&entry.key));
    if let Some((file, entry)) = found {
        let text = format!(
            "`{}` is of a quantised weight, and {} has no `quantization_config`",
            entry.key,
            config.file()
        );
        findings.add_key(&CONFIG_QUANTIZATION, file, &entry.key, text);
    }
}

/// Compares the shapes of scales with the blocks that the config names. The last block of a row may
/// be a part of one.
fn blocks<'a>(
    weights: &[&TensorEntry],
    block: &[u64],
    config: &Config,
    scale_of: &dyn Fn(&TensorEntry) -> Option<&'a (&'a str, &'a TensorEntry)>,
    findings: &mut Findings<'_>,
) {
    let &[height, width] = block else { return };
    if height == 0 || width == 0 {
        return;
    }
    for entry in weights.iter().filter(|entry| entry.shape.len() == 2) {
        let (Some((file, scale)), &[rows, columns]) = (scale_of(entry), entry.shape.as_slice())
        else {
            continue;
        };
        let needed = [rows.div_ceil(height), columns.div_ceil(width)];
        if scale.shape.len() == 2 && scale.shape != needed {
            let text = format!(
                "`{}` is {}; with blocks of {height} x {width} (`weight_block_size` in {}), `{}` needs {}",
                scale.key,
                shape_text(&scale.shape),
                config.file(),
                entry.key,
                shape_text(&needed)
            );
            findings.add_key(&SCALE_SHAPE, file, &scale.key, text);
            return;
        }
    }
}

/// Checks weights of GPTQ and AWQ, which are packed in integers.
fn packed(
    set: &ShardSet,
    by_key: &HashMap<&str, (&str, &TensorEntry)>,
    config: &Config,
    method: Option<&str>,
    findings: &mut Findings<'_>,
) {
    let mut any = false;
    for (file, entry) in set.tensors() {
        let Some(module) = entry.key.strip_suffix(".qweight") else { continue };
        any = true;
        let scales = format!("{module}.scales");
        if !by_key.contains_key(scales.as_str()) {
            let text = format!("`{}` has no `{scales}`", entry.key);
            findings.add_key(&SCALE_MISSING, file, &entry.key, text);
            return;
        }
    }
    if let Some(method @ ("gptq" | "awq")) = method
        && !any
    {
        let text = format!(
            "`quantization_config` in {} says {method}, and no tensor is a `qweight`",
            config.file()
        );
        findings.add(&CONFIG_QUANTIZATION, config.file(), text);
    }
}
