//! PEFT adapters: their matrices, their config, and the model next to them.

use std::collections::HashMap;

use statelens_checkpoint::{FileSet, Result, shape_text};

use super::document::{JsonFile, JsonValue};
use super::layers::FLOATS;
use super::rules::{ADAPTER_BASE, ADAPTER_CONFIG, ADAPTER_INCOMPLETE, ADAPTER_RANK, CONFIG_BROKEN};
use super::sets::{Sets, ShardSet};
use super::shard::{TensorEntry, text_of};
use super::{Findings, files};

/// The two matrices of a module, and the weight that they change.
#[derive(Default)]
struct Pair<'a> {
    file: &'a str,
    a: Option<&'a TensorEntry>,
    b: Option<&'a TensorEntry>,
}

pub(super) fn check(
    files: &FileSet,
    sets: &Sets,
    main: Option<&ShardSet>,
    findings: &mut Findings<'_>,
) -> Result<()> {
    const CONFIG: &str = "adapter_config.json";
    let config = match JsonFile::read(files, CONFIG) {
        Some(Err(error)) => {
            findings.add(
                &CONFIG_BROKEN,
                CONFIG,
                format!("{CONFIG} can't be read: {}", text_of(&error)),
            );
            None
        }
        Some(Ok(config)) => Some(config),
        None => None,
    };
    for set in sets.list.iter().filter(|set| set.is_adapter() && set.is_complete()) {
        let pairs = pairs(set);
        halves(&pairs, findings);
        match &config {
            Some(config) => {
                rank(&pairs, config, findings);
                targets(&pairs, config, findings);
            }
            // Adapters of other libraries have other names.
            None if set.name().starts_with("adapter_model.")
                && files::id_of(files, CONFIG).is_none() =>
            {
                let text = format!("{} has no {CONFIG}", set.name());
                findings.add(&ADAPTER_CONFIG, set.name(), text);
            }
            None => {}
        }
        if let Some(main) = main.filter(|main| main.is_complete()) {
            base(&pairs, main, findings);
        }
    }
    Ok(())
}

/// Returns the pairs of matrices by the key of the weight that they change.
fn pairs(set: &ShardSet) -> Vec<(String, Pair<'_>)> {
    let mut found: Vec<(String, Pair<'_>)> = Vec::new();
    let mut at: HashMap<String, usize> = HashMap::new();
    for (file, entry) in set.tensors() {
        for (mark, is_a) in [(".lora_A.", true), (".lora_B.", false)] {
            let Some((module, _)) = entry.key.split_once(mark) else { continue };
            let module = module.strip_prefix("base_model.model.").unwrap_or(module).to_owned();
            let index = *at.entry(module.clone()).or_insert_with(|| {
                found.push((module, Pair { file, ..Pair::default() }));
                found.len() - 1
            });
            if let Some((_, pair)) = found.get_mut(index) {
                *(if is_a { &mut pair.a } else { &mut pair.b }) = Some(entry);
            }
        }
    }
    found
}

/// Reports modules of the adapter that `target_modules`, if it is a list, does not name.
fn targets(pairs: &[(String, Pair<'_>)], config: &JsonFile, findings: &mut Findings<'_>) {
    let Some(list) = config.root().get("target_modules") else { return };
    let names: Vec<&str> = list.items().filter_map(JsonValue::text).collect();
    let is_named = |module: &str| names.iter().any(|name| super::sizes::is_end(module, name));
    let other = pairs.iter().find(|(module, _)| !is_named(module));
    if let Some((module, pair)) = other.filter(|_| !names.is_empty()) {
        let text = format!("`target_modules` in {} does not name `{module}`", config.file);
        findings.add_key(&ADAPTER_CONFIG, pair.file, module, text);
    }
}

fn halves(pairs: &[(String, Pair<'_>)], findings: &mut Findings<'_>) {
    for (module, pair) in pairs.iter().filter(|(_, pair)| pair.a.is_none() || pair.b.is_none()) {
        let (has, lacks) =
            if pair.a.is_some() { ("lora_A", "lora_B") } else { ("lora_B", "lora_A") };
        let text = format!("`{module}` has `{has}` and no `{lacks}`");
        findings.add_key(&ADAPTER_INCOMPLETE, pair.file, module, text);
    }
}

fn rank(pairs: &[(String, Pair<'_>)], config: &JsonFile, findings: &mut Findings<'_>) {
    let pattern = config.root().get("rank_pattern");
    let has_pattern = pattern.is_some_and(|it| it.entries().next().is_some());
    let declared = config.root().get("r").and_then(JsonValue::number).filter(|_| !has_pattern);
    let Some(declared) = declared else { return };
    for (_, pair) in pairs {
        let Some(a) = pair.a.filter(|a| a.shape.len() == 2) else { continue };
        if a.shape.first() != Some(&declared) {
            let text = format!(
                "`r` in {} is {declared}, and `{}` is {}",
                config.file,
                a.key,
                shape_text(&a.shape)
            );
            findings.add_key(&ADAPTER_RANK, pair.file, &a.key, text);
            return;
        }
    }
}

/// Compares an adapter with the weights that it changes.
fn base(pairs: &[(String, Pair<'_>)], main: &ShardSet, findings: &mut Findings<'_>) {
    let weights: HashMap<&str, &TensorEntry> =
        main.tensors().map(|(_, entry)| (entry.key.as_str(), entry)).collect();
    for (module, pair) in pairs {
        let key = format!("{module}.weight");
        let Some(weight) = weights.get(key.as_str()) else {
            // The module of a quantised model has other tensors.
            let start = format!("{module}.");
            if !weights.keys().any(|key| key.starts_with(&start)) {
                let text =
                    format!("The adapter changes `{key}`, which {} does not have", main.name());
                findings.add_key(&ADAPTER_BASE, pair.file, module, text);
                return;
            }
            continue;
        };
        let (Some(a), Some(b)) = (pair.a, pair.b) else { continue };
        let is_plain =
            FLOATS.contains(&weight.dtype.as_str()) || weight.dtype.starts_with("float8");
        let (&[_, inputs], &[outputs, _], &[rows, columns]) =
            (a.shape.as_slice(), b.shape.as_slice(), weight.shape.as_slice())
        else {
            continue;
        };
        // The weights of GPT-2 are transposed.
        let fits = (outputs, inputs) == (rows, columns) || (outputs, inputs) == (columns, rows);
        if is_plain && !fits {
            let text = format!(
                "`{}` is {} and `{}` is {}, and they change `{key}`, which is {}",
                a.key,
                shape_text(&a.shape),
                b.key,
                shape_text(&b.shape),
                shape_text(&weight.shape)
            );
            findings.add_key(&ADAPTER_BASE, pair.file, &a.key, text);
            return;
        }
    }
}
