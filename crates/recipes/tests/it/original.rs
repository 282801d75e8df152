//! A case: the input and the output of the original converter.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use statelens_checkpoint::{
    Arithmetic, Checkpoint, FileSet, Layout, Limits, Memory, Tensor, Unwatched, Value,
};
use statelens_recipes::config::{self, Families, Language, Map};
use statelens_recipes::conversion::{
    ModelOptions, RouteStep, StepConfigs, components, convert, route,
};
use statelens_recipes::{Implementation, families, loads, lora, parts};

/// Errors of the original in converters that it has but can't run; Statelens converts these on
/// purpose.
const MORE_THAN_THE_ORIGINAL: &[&str] = &[
    // A tied head that is not stored under the name that the original expects.
    "streaming_checkpoints.py\\\", line 142",
    "'tie_word_embeddings'",
    // The folder of a model in one part.
    "You have passed in a directory instead of a file",
    "not found in the ModelZoo registry",
    "Invalid version",
    ".safetensor files are only supported for sharded checkpoints",
    "Index put requires the source and destination dtypes match",
    "Cannot convert gpt2 from hf to cs-2.10",
];

pub(crate) struct Case {
    pub(crate) family: String,
    folder: PathBuf,
    facts: serde_json::Value,
}

/// Checkpoints, one per part.
pub(crate) type Parts = Vec<(Option<String>, Checkpoint)>;

#[derive(Debug)]
pub(crate) enum Verdict {
    /// The same keys, dtypes, shapes and bytes; or refused by both.
    Same,
    /// The case has no tensors.
    Nothing,
    /// The differences.
    Differs(String),
}

impl Case {
    pub(crate) fn all() -> Vec<Self> {
        let own = statelens_fixtures::path("recipes");
        let root = std::env::var_os("STATELENS_RECIPE_CASES").map_or(own, PathBuf::from);
        let only = std::env::var("STATELENS_RECIPE_CASE").unwrap_or_default();
        let mut cases = Vec::new();
        for family in folders(&root) {
            for folder in folders(&family) {
                let Ok(text) = fs::read_to_string(folder.join("case.json")) else { continue };
                let name = family.file_name().unwrap().to_string_lossy().into_owned();
                let case =
                    Self { family: name, facts: serde_json::from_str(&text).unwrap(), folder };
                if case.name().contains(&only) {
                    cases.push(case);
                }
            }
        }
        cases
    }

    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.family, self.folder.file_name().unwrap().to_string_lossy())
    }

    pub(crate) fn run(&self) -> Verdict {
        let command = self.text("command");
        if self.family == "lora" {
            return match self.folded() {
                Ok(folded) => self.compare_with("out/checkpoint_folded.mdl", &folded),
                Err(error) => Verdict::Differs(error),
            };
        }
        if command.contains("convert-config") || !self.has_tensors() {
            return Verdict::Nothing;
        }
        let failed = self.text("status") != "ok";
        match (self.converted(), failed) {
            (Err(_), true) => Verdict::Same,
            (Ok(_), true) if self.is_more() => Verdict::Same,
            (Ok(_), true) => Verdict::Differs("not refused".to_owned()),
            (Err(error), false) => Verdict::Differs(error),
            (Ok(parts), false) => self.compare(&parts),
        }
    }

    /// Returns why a converted model would not load, if the original's is accepted.
    pub(crate) fn speaks_against_loading(&self) -> Option<String> {
        if self.family == "lora" || !self.has_tensors() || self.text("status") != "ok" {
            return None;
        }
        let (parts, config) = self.converted_with_config().ok()?;
        let [(None, checkpoint)] = &parts[..] else { return None };
        let target = self.format("tgt_fmt").ok()?;
        let found = loads::check(checkpoint, target, &config).unwrap();
        (!found.would()).then(|| format!("{found:?}"))
    }

    fn folded(&self) -> Result<Checkpoint, String> {
        let source =
            open(self.files(&self.folder.join("in"))?).map_err(|error| error.to_string())?;
        let config = self.configs_in(None)?;
        let folded = lora::fold(&source, &config).map_err(|error| error.to_string())?;
        let expected = fs::read_to_string(self.folder.join("out/params_folded.yaml"));
        match expected.is_ok_and(|expected| expected == folded.config.to_narrow_yaml()) {
            true => Ok(folded.checkpoint),
            false => Err("another config".to_owned()),
        }
    }

    fn compare_with(&self, output: &str, checkpoint: &Checkpoint) -> Verdict {
        let text = fs::read_to_string(self.folder.join("manifest.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_str(&text).unwrap();
        // The original writes the model only.
        match compare(checkpoint, &manifest[output], &[], |key| key != "global_step") {
            Ok(()) => Verdict::Same,
            Err(why) => Verdict::Differs(why),
        }
    }

    fn is_more(&self) -> bool {
        let text = self.facts.to_string();
        MORE_THAN_THE_ORIGINAL.iter().any(|part| text.contains(part))
    }

    pub(crate) fn text(&self, key: &str) -> String {
        self.facts[key].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn has_tensors(&self) -> bool {
        let inputs = self.facts["inputs"].as_array().cloned().unwrap_or_default();
        inputs.iter().any(|one| {
            let one = one.as_str().unwrap_or_default();
            one.ends_with(".mdl") || one.ends_with(".bin") || one.ends_with(".safetensors")
        })
    }

    fn converted(&self) -> Result<Parts, String> {
        self.converted_with_config().map(|(parts, _)| parts)
    }

    fn converted_with_config(&self) -> Result<(Parts, config::Value), String> {
        let (from, to) = (self.format("src_fmt")?, self.format("tgt_fmt")?);
        let (source, config) = self.source(from)?;
        self.carry(&source, &config, from, to)
    }

    /// Returns the source checkpoint and its config.
    pub(crate) fn source(
        &self,
        from: Implementation,
    ) -> Result<(Checkpoint, config::Value), String> {
        let recipe = families::find(&self.text("model")).map_err(say)?;
        let way = route(&recipe, from, self.format("tgt_fmt")?).map_err(say)?;
        let folders = components(&recipe, way[0]);
        let several = !folders.is_empty() && from.is_hf();
        let source = match several {
            true => self.open_parts(&folders)?,
            false => open(self.files(&self.folder.join("in"))?).map_err(say)?,
        };
        Ok((source, self.configs_in(several.then_some(&folders[..]))?))
    }

    /// Converts a checkpoint and its config.
    pub(crate) fn carry(
        &self,
        source: &Checkpoint,
        config: &config::Value,
        from: Implementation,
        to: Implementation,
    ) -> Result<(Parts, config::Value), String> {
        let model = self.text("model");
        let recipe = families::find(&model).map_err(say)?;
        let known = Families::known().map_err(say)?;
        let converted = known.convert(&model, from, to, config).map_err(say)?;
        let stages: Vec<StepConfigs> = converted
            .steps
            .iter()
            .map(|step| StepConfigs {
                step: RouteStep { from: step.step.source, to: step.step.target },
                left: step.left.clone(),
                right: step.right.clone(),
            })
            .collect();
        let drop_unmatched = self.text("command").contains("--drop-unmatched-keys");
        let requested = ModelOptions { drop_unmatched, ..ModelOptions::default() };
        let done = convert(source, &recipe, &stages, &converted.config, requested).map_err(say)?;
        Ok((done.parts, converted.config))
    }

    pub(crate) fn format(&self, key: &str) -> Result<Implementation, String> {
        self.text(key).parse::<Implementation>().map_err(|error| error.to_string())
    }

    fn configs_in(&self, folders: Option<&[String]>) -> Result<config::Value, String> {
        let Some(folders) = folders else {
            let found = files_below(&self.folder.join("in"));
            let own = found.iter().find(|path| is_config(&path.to_string_lossy()));
            return read_config(own.ok_or("no config")?);
        };
        let mut parts = Map::new();
        for name in folders {
            let path = self.folder.join("in").join(name).join("config.json");
            parts.set(name.clone(), read_config(&path)?);
        }
        Ok(config::Value::Map(parts))
    }

    fn open_parts(&self, folders: &[String]) -> Result<Checkpoint, String> {
        let mut all = Vec::new();
        for name in folders {
            all.push((name.clone(), self.files(&self.folder.join("in").join(name))?));
        }
        parts::together(all, &Limits::default(), &mut |files| open(files))
            .map_err(|error| error.to_string())
    }

    /// Returns the checkpoint's files in a folder, the main file first.
    fn files(&self, folder: &Path) -> Result<FileSet, String> {
        let mut paths: Vec<PathBuf> = files_in(folder);
        let rank = |path: &PathBuf| {
            let name = path.to_string_lossy().into_owned();
            let config = name.ends_with(".yaml") || name.ends_with("config.json");
            (config, !name.ends_with("index.json"), name)
        };
        paths.sort_by_key(rank);
        let mut files = FileSet::default().within(&Limits::default());
        for path in paths.iter().filter(|path| !rank(path).0) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let bytes = fs::read(path).map_err(|error| error.to_string())?;
            files.push(name, Arc::new(Memory::from(bytes)));
        }
        match files.count() {
            0 => Err("no checkpoint in the folder".to_owned()),
            _ => Ok(files),
        }
    }

    fn compare(&self, parts: &[(Option<String>, Checkpoint)]) -> Verdict {
        let text = fs::read_to_string(self.folder.join("manifest.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_str(&text).unwrap();
        let random: Vec<String> = self.facts["random_keys"]
            .as_array()
            .map(|keys| keys.iter().map(|key| key.as_str().unwrap().to_owned()).collect())
            .unwrap_or_default();
        let outputs: Vec<(&String, &serde_json::Value)> = manifest
            .as_object()
            .unwrap()
            .iter()
            .filter(|(_, output)| output.get("order").is_some())
            .collect();
        if outputs.len() != parts.len() {
            return Verdict::Differs(format!("{} outputs, not {}", parts.len(), outputs.len()));
        }
        for (name, checkpoint) in parts {
            let own = |(path, _): &&(&String, &serde_json::Value)| {
                name.as_ref().is_none_or(|name| path.starts_with(name.as_str()))
            };
            let Some((path, expected)) = outputs.iter().find(own) else {
                return Verdict::Differs(format!("nothing expected for {name:?}"));
            };
            if let Err(why) = compare(checkpoint, expected, &random, |_| true) {
                return Verdict::Differs(format!("{path}: {why}"));
            }
        }
        Verdict::Same
    }
}

fn compare(
    checkpoint: &Checkpoint,
    expected: &serde_json::Value,
    random: &[String],
    is_compared: fn(&str) -> bool,
) -> Result<(), String> {
    let order: Vec<&str> =
        expected["order"].as_array().unwrap().iter().map(|key| key.as_str().unwrap()).collect();
    let mut keys = Vec::new();
    let mut leaves = Vec::new();
    for leaf in checkpoint.leaves() {
        let parts: Vec<String> = leaf.key.parts.iter().map(part_text).collect();
        let key = parts.join("/");
        if is_compared(&key) {
            keys.push(key);
            leaves.push(leaf.target);
        }
    }
    if keys != order {
        let missing: Vec<&&str> =
            order.iter().filter(|key| !keys.iter().any(|own| own == **key)).collect();
        let extra: Vec<&String> =
            keys.iter().filter(|key| !order.contains(&key.as_str())).collect();
        let at = keys.iter().zip(&order).position(|(own, other)| own != other);
        let at = at.unwrap_or(keys.len().min(order.len()));
        let some = |at: usize| (keys.get(at).cloned(), order.get(at).copied());
        return Err(format!("missing {missing:?}, extra {extra:?}, {at}: {:?}", some(at)));
    }
    for (key, id) in keys.iter().zip(leaves) {
        let expected = &expected["entries"][key];
        let Some(dtype) = expected["dtype"].as_str() else {
            check_value(key, checkpoint.value(id), expected)?;
            continue;
        };
        let Some((_, tensor)) = checkpoint.tensor_of(id) else {
            check_value(key, checkpoint.value(id), expected)?;
            continue;
        };
        let shape: Vec<u64> =
            expected["shape"].as_array().unwrap().iter().map(|dim| dim.as_u64().unwrap()).collect();
        if tensor.dtype.name() != dtype || tensor.shape != shape {
            return Err(format!(
                "{key} is {} {:?}, not {dtype} {shape:?}",
                tensor.dtype, tensor.shape
            ));
        }
        if random.contains(key) || is_random(tensor) {
            continue;
        }
        let numel = tensor.numel().unwrap();
        let bytes = statelens_tensor::elements(&checkpoint.files, tensor, 0..numel)
            .map_err(|error| format!("{key}: {error}"))?;
        let hash: String =
            Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        if hash != expected["sha256"].as_str().unwrap() {
            return Err(format!("{key} has other elements: {}", head(&bytes)));
        }
    }
    Ok(())
}

/// Returns whether the elements are random, so that they can't be compared.
fn is_random(tensor: &Tensor) -> bool {
    let Layout::Computed(computed) = &tensor.layout else { return false };
    matches!(computed.steps[..], [Arithmetic::Normal { .. } | Arithmetic::Uniform { .. }])
}

fn head(bytes: &[u8]) -> String {
    bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn check_value(key: &str, value: &Value, expected: &serde_json::Value) -> Result<(), String> {
    let expected = expected.get("value").unwrap_or(expected);
    let same = match (value, expected) {
        (Value::None, serde_json::Value::Null) => true,
        (Value::Bool(one), serde_json::Value::Bool(other)) => one == other,
        (Value::Int(one), serde_json::Value::Number(other)) => one.to_string() == other.to_string(),
        (Value::Float(one), serde_json::Value::Number(other)) => Some(*one) == other.as_f64(),
        (Value::Str(one), serde_json::Value::String(other)) => one.to_lossy() == *other,
        // Empty containers, and types that only Python has.
        (_, serde_json::Value::Array(_) | serde_json::Value::Object(_)) => true,
        _ => false,
    };
    match same {
        true => Ok(()),
        false => Err(format!("{key} is {value:?}, not {expected}")),
    }
}

pub(crate) fn part_text(part: &statelens_checkpoint::KeyPart) -> String {
    part.text().to_string()
}

fn say(error: statelens_checkpoint::Error) -> String {
    error.to_string()
}

fn open(files: FileSet) -> statelens_checkpoint::Result<Checkpoint> {
    statelens_formats::open(files, &Limits::default(), &mut Unwatched)
}

fn folders(of: &Path) -> Vec<PathBuf> {
    entries(of).into_iter().filter(|path| path.is_dir()).collect()
}

fn files_in(of: &Path) -> Vec<PathBuf> {
    entries(of).into_iter().filter(|path| path.is_file()).collect()
}

fn files_below(of: &Path) -> Vec<PathBuf> {
    let mut found = files_in(of);
    for folder in folders(of) {
        found.extend(files_below(&folder));
    }
    found
}

fn entries(of: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(of) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn is_config(name: &str) -> bool {
    let other = name.ends_with("index.json") || name.ends_with("preprocessor_config.json");
    Language::of_name(name).is_some() && !other
}

fn read_config(path: &Path) -> Result<config::Value, String> {
    let language = Language::of_name(&path.to_string_lossy()).ok_or("no config")?;
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    config::parse(&text, language).map_err(|error| error.to_string())
}
