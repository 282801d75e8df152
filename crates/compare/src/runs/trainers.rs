//! Names of checkpoint files and folders in the run folders of other trainers.
//!
//! | trainer | checkpoint | which one is loaded |
//! |---|---|---|
//! | Hugging Face Trainer, diffusers, Accelerate | folder `checkpoint-500` | the highest step |
//! | PyTorch Lightning | files `epoch=3-step=500.ckpt`, `epoch=3-val_loss=0.21.ckpt` | `last.ckpt` |
//! | DeepSpeed | folder `global_step500`, or of any name, its tag | the one named in the file `latest` |
//! | Megatron | folder `iter_0000500` | the one in `latest_checkpointed_iteration.txt` |
//! | verl | folder `global_step_500` with `actor/model_world_size_8_rank_0.pt` | the one in the same file |
//! | fairseq | files `checkpoint3.pt`, `checkpoint_3_500.pt` | `checkpoint_last.pt` |
//! | Keras | files `weights.03-0.21.h5`, `model.05.keras` | the highest epoch |
//! | TensorFlow | `ckpt-3.index`, `ckpt-3.data-00000-of-00001`; file `model.ckpt-3` of V1 | the one in the file `checkpoint` |
//! | Orbax | folder `500` with `_CHECKPOINT_METADATA` or `checkpoint` | the highest step |
//! | scripts | file `checkpoint_500.pt` | the highest step |

use std::collections::{HashMap, HashSet};

use statelens_formats::{RunNames, formats, has_known_extension};

use super::{CheckpointName, RunFile};

/// Classifies a file by its name; `None` if it is not a checkpoint.
pub(super) fn file(name: &str) -> Option<RunFile> {
    let named = formats().find_map(|format| Some((format.run_names, format.run_names.stem(name)?)));
    let (names, stem) = named?;
    // `checkpoint_500.pth.tar`
    let packed =
        if name.ends_with(".tar") { RunNames::Steps(&["pt", "pth"]).stem(stem) } else { None };
    let stem = packed.unwrap_or(stem);
    let lower = stem.to_ascii_lowercase();
    if is_best(stem) {
        return Some(RunFile::Best);
    }
    if words(&lower).any(|word| matches!(word, "last" | "latest")) {
        return Some(RunFile::Last);
    }
    let found = match names {
        RunNames::Epochs(_) => of_keras(stem, name),
        _ => of_torch(stem),
    };
    found.map(RunFile::Checkpoint)
}

fn of_torch(stem: &str) -> Option<CheckpointName> {
    for (word, is_step) in [("step=", true), ("epoch=", false)] {
        let Some(at) = stem.rfind(word) else { continue };
        // A name that was taken gets a version: `step=500-v1`.
        let version = stem.rfind("-v").filter(|version| number(&stem[version + 2..]).is_some());
        let (stem, version) = stem.split_at(version.filter(|v| *v > at).unwrap_or(stem.len()));
        let (step, _) = leading_number(&stem[at + word.len()..])?;
        let version = version.strip_prefix('-').map(str::to_owned);
        let series = if is_step { String::new() } else { masked(stem) };
        return Some(CheckpointName { step, timestamp: version, series });
    }
    let words = ["checkpoint", "ckpt", "step", "iter"];
    let (word, rest) = words.iter().find_map(|word| Some((word, stem.strip_prefix(word)?)))?;
    let numbers = match rest.strip_prefix(['_', '-']) {
        Some(numbers) => numbers,
        // fairseq saves `checkpoint3.pt` after an epoch.
        None if *word == "checkpoint" => {
            return Some(CheckpointName {
                step: number(rest)?,
                timestamp: None,
                series: masked(stem),
            });
        }
        None => return None,
    };
    match numbers.split_once('_') {
        // fairseq saves `checkpoint_3_500.pt` in epoch 3.
        Some((epoch, step)) if *word == "checkpoint" && number(epoch).is_some() => {
            Some(CheckpointName { step: number(step)?, timestamp: None, series: masked(stem) })
        }
        _ => Some(CheckpointName::at(number(numbers)?, None)),
    }
}

/// Parses a name like `weights.03-0.21.h5`. Without a metric, a name like `model_3.h5` may be that
/// of a member of an ensemble.
fn of_keras(stem: &str, name: &str) -> Option<CheckpointName> {
    let (before, parsed) = numbered(stem)?;
    let lower = before.to_ascii_lowercase();
    let has = |known: &[&str]| words(&lower).any(|word| known.contains(&word));
    let padded = before.ends_with('.') && name[before.len() + 1..].starts_with(digit);
    let known = has(&["checkpoint", "ckpt", "cp", "epoch"])
        || has(&["weights", "model"]) && (padded || !metrics(stem).is_empty());
    known.then_some(parsed)
}

/// Returns the name of the checkpoint of TensorFlow that a file belongs to, and the file's role;
/// `None` for other files.
pub(super) fn of_tensorflow(file: &str) -> Option<(&str, &str)> {
    let (prefix, role) = file.rsplit_once('.')?;
    let is_data = |role: &str| {
        let numbers = role.strip_prefix("data-").and_then(|rest| rest.split_once("-of-"));
        numbers.is_some_and(|(at, of)| number(at).is_some() && number(of).is_some())
    };
    (matches!(role, "index" | "meta") || is_data(role)).then_some((prefix, role))
}

/// Returns the main file of each checkpoint of TensorFlow's V1 Saver, by its prefix: the file
/// itself, or the first of its shards. They have no extension, so that only those are recognised
/// whose prefix ends with `ckpt-3`, or that have a graph next to them. `indices` has the prefixes
/// of other checkpoints.
pub(super) fn tensorflow_v1<'a>(
    paths: impl Iterator<Item = &'a str> + Clone,
    indices: &HashSet<&str>,
) -> HashMap<&'a str, &'a str> {
    let graphs: HashSet<&str> =
        paths.clone().filter_map(|path| path.strip_suffix(".meta")).collect();
    let is_usual =
        |prefix: &str| prefix.rsplit_once("ckpt-").is_some_and(|(_, step)| number(step).is_some());
    let mut found: HashMap<&str, &str> = HashMap::new();
    for path in paths.filter(|path| !path.contains('/')) {
        let prefix = prefix_v1(path);
        if path.ends_with(".meta")
            || indices.contains(prefix)
            || tensorflow(prefix).is_none()
            || !(is_usual(prefix) || graphs.contains(prefix))
        {
            continue;
        }
        let main = found.entry(prefix).or_insert(path);
        *main = (*main).min(path);
    }
    found
}

/// Returns the prefix of the checkpoint of TensorFlow's V1 Saver to which a file of this name
/// would belong.
pub(super) fn prefix_v1(file: &str) -> &str {
    if let Some(prefix) = file.strip_suffix(".meta") {
        return prefix;
    }
    let is_number = |text: &str| text.len() >= 5 && number(text).is_some();
    let shard = file.rsplit_once("-of-").filter(|(_, of)| is_number(of));
    let shard = shard.and_then(|(rest, _)| rest.rsplit_once('-'));
    shard.filter(|(_, at)| is_number(at)).map_or(file, |(prefix, _)| prefix)
}

/// Parses the prefix of a checkpoint of TensorFlow: `ckpt-3`, `model.ckpt-500`, `cp-0005.ckpt`.
pub(super) fn tensorflow(prefix: &str) -> Option<CheckpointName> {
    Some(numbered(prefix.strip_suffix(".ckpt").unwrap_or(prefix))?.1).filter(|_| !is_best(prefix))
}

fn is_best(name: &str) -> bool {
    name.to_ascii_lowercase().contains("best")
}

/// Returns the text before the first number of a name, and the name; the number must be a whole
/// word.
fn numbered(stem: &str) -> Option<(&str, CheckpointName)> {
    let (before, rest) = stem.split_at(stem.find(digit)?);
    let (step, after) = leading_number(rest)?;
    let whole = before.ends_with(['.', '-', '_', '='])
        && (after.is_empty() || after.starts_with(['.', '-', '_']));
    whole.then(|| (before, CheckpointName { step, timestamp: None, series: masked(stem) }))
}

/// Parses the name of a checkpoint folder; `None` if it is not one.
pub(super) fn folder(name: &str) -> Option<CheckpointName> {
    let before =
        ["checkpoint-", "checkpoint_", "global_step_", "global_step", "iter_", "step_", "step-"];
    let step = before.iter().find_map(|before| name.strip_prefix(before))?;
    Some(CheckpointName::at(number(step)?, None))
}

/// Names of entries of a folder that show that it is a checkpoint: two of steps of Orbax, then those
/// of DeepSpeed.
const MARKS: [&str; 4] = [
    "_CHECKPOINT_METADATA",
    "checkpoint",
    "mp_rank_00_model_states.pt",
    "zero_pp_rank_0_mp_rank_00_model_states.pt",
];

/// Returns the names of entries that show that a folder of this name is a checkpoint. That of a step
/// of Orbax is a number.
pub fn folder_marks(name: &str) -> &'static [&'static str] {
    if number(name).is_some() { &MARKS } else { &MARKS[2..] }
}

/// Returns the folders among these paths that are steps of Orbax or checkpoints of DeepSpeed.
pub fn marked_folders<'a>(paths: impl Iterator<Item = &'a str> + Clone) -> HashSet<&'a str> {
    let marked = paths.clone().filter_map(|path| {
        MARKS.iter().find_map(|mark| {
            let at = path.find(&format!("/{mark}"))?;
            let end = path[at + 1 + mark.len()..].chars().next();
            let folder = &path[..at];
            let name = folder.rsplit('/').next().unwrap_or(folder);
            let counts = folder_marks(name).contains(mark);
            (end.is_none_or(|end| end == '/') && counts).then_some(folder)
        })
    });
    let mut folders: HashSet<&str> = marked.collect();
    // TensorFlow, too, has a file `checkpoint`, next to its indices.
    for path in paths.filter(|path| path.ends_with(".index")) {
        path.rsplit_once('/').map(|(folder, _)| folders.remove(folder));
    }
    folders
}

/// Classifies a checkpoint folder by its name, which may be any: the step of Orbax or the tag of
/// DeepSpeed.
pub(super) fn marked(name: &str) -> RunFile {
    let after = |word: &str| {
        let rest = &name[name.rfind(word)? + word.len()..];
        Some(leading_number(rest.trim_start_matches(['_', '-', '=']))?.0)
    };
    let only = || {
        let (start, end) = (name.find(digit)?, name.rfind(digit)?);
        number(&name[start..=end])
    };
    let step = ["step", "iter", "epoch"].into_iter().find_map(after).or_else(only);
    match (folder(name), step) {
        (Some(name), _) => RunFile::Checkpoint(name),
        _ if is_best(name) => RunFile::Best,
        (None, Some(step)) => {
            RunFile::Checkpoint(CheckpointName { step, timestamp: None, series: masked(name) })
        }
        (None, None) => RunFile::Last,
    }
}

/// Returns the name of the entry to load, given the name and text of a file that names it.
pub fn named_latest(file: &str, text: &str) -> Option<String> {
    let text = text.trim();
    match file {
        "latest" => Some(text.to_owned()).filter(|text| !text.contains(['/', '\n'])),
        "latest_checkpointed_iteration.txt" => {
            Some(format!("iter_{:07}", text.parse::<u64>().ok()?))
        }
        "checkpoint" => {
            let mut lines = text.lines();
            let path = lines.find_map(|line| line.strip_prefix("model_checkpoint_path:"))?;
            let path = path.trim().trim_matches('"');
            let prefix = path.rsplit(['/', '\\']).next().unwrap_or(path);
            tensorflow(prefix).map(|_| format!("{prefix}.index"))
        }
        _ => None,
    }
}

/// Files of a run folder whose text [`named_latest`] parses.
pub const LATEST_FILES: [&str; 3] = ["latest", "latest_checkpointed_iteration.txt", "checkpoint"];
/// Maximum size in bytes of such a file.
pub const MAX_LATEST: u64 = 64 << 10;

/// Returns the metrics in a name: its numbers with a decimal point, and those after `=` that are
/// neither epochs nor steps.
pub(super) fn metrics(stem: &str) -> Vec<f64> {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let mut found = Vec::new();
    let mut end = 0;
    while let Some(at) = stem[end..].find(digit).map(|at| at + end) {
        let rest = &stem[at..];
        end = at + rest.find(|c| !is_number(c)).unwrap_or(rest.len());
        let text = stem[at..end].trim_end_matches('.');
        let (before, sign) = match stem[..at].strip_suffix("=-") {
            Some(_) => (&stem[..at - 1], -1.0),
            None => (&stem[..at], 1.0),
        };
        let named =
            before.ends_with('=') && !before.ends_with("epoch=") && !before.ends_with("step=");
        if named || text.contains('.') {
            found.extend(text.parse::<f64>().ok().map(|number| number * sign));
        }
    }
    found
}

/// Returns the text with `#` for each number.
pub(super) fn masked(text: &str) -> String {
    let mut masked = String::new();
    for c in text.chars() {
        match c.is_ascii_digit() {
            true if masked.ends_with('#') => {}
            true => masked.push('#'),
            false => masked.push(c),
        }
    }
    masked
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphabetic())
}

fn digit(c: char) -> bool {
    c.is_ascii_digit()
}

fn number(text: &str) -> Option<u128> {
    leading_number(text).filter(|(_, rest)| rest.is_empty()).map(|(number, _)| number)
}

/// Parses the number at the start of a text; returns it and the rest.
fn leading_number(text: &str) -> Option<(u128, &str)> {
    let end = text.find(|c| !digit(c)).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// Returns the file to open in a checkpoint folder, given the paths and sizes of its files: the
/// weights of the model, or the index of their shards.
pub(super) fn main(members: &[(String, u64)]) -> Option<&str> {
    let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    if let Some(path) = named_as_weights(members.iter().map(|(path, _)| path.as_str())) {
        return Some(path);
    }
    let others = members.iter().filter(|(path, _)| {
        let base = base(path);
        (has_known_extension(&base) || base.ends_with(".tar"))
            && !TRAINING.iter().any(|word| base.contains(word))
    });
    others.max_by_key(|(_, bytes)| *bytes).map(|(path, _)| path.as_str())
}

/// Returns the file to open in the folder of a model, as on the Hugging Face Hub or in a checkpoint
/// of its Trainer, given the paths of the checkpoints in it. Ignores those in its subfolders, which
/// hold the same weights for other libraries. `None` if no name says that it has the weights, or if
/// there are others that are neither the same weights nor the state of the training.
pub fn weights_of<'a>(checkpoints: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let top = checkpoints.filter(|path| !path.contains('/'));
    let is_known = |name: &str| {
        TRAINING.iter().any(|word| name.contains(word))
            || OTHER_LIBRARIES.contains(&name)
            || named_as_weights(std::iter::once(name)).is_some()
    };
    named_as_weights(top.clone()).filter(|_| top.clone().all(is_known))
}

/// Returns the first path whose file name is that of model weights.
fn named_as_weights<'a>(paths: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    MAINS.iter().find_map(|wanted| {
        let found = paths.clone().filter(|path| {
            let base = path.rsplit('/').next().unwrap_or(path);
            match wanted.split_once('*') {
                Some((before, after)) => base.starts_with(before) && base.ends_with(after),
                None => base == *wanted,
            }
        });
        found.min()
    })
}

/// Words in the names of files that hold the state of a training rather than weights.
const TRAINING: [&str; 6] =
    ["optim", "rng", "scheduler", "training_args", "random_states", "scaler"];

/// Names of files on the Hub with the same weights for other libraries.
const OTHER_LIBRARIES: [&str; 2] = ["tf_model.h5", "rust_model.ot"];

/// File names of model weights, the most likely first.
const MAINS: [&str; 20] = [
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
    "model.safetensors",
    "pytorch_model.bin",
    "adapter_model.safetensors",
    "adapter_model.bin",
    "diffusion_pytorch_model.safetensors",
    "pytorch_lora_weights.safetensors",
    "model-00001-of-*.safetensors",
    "model-1-of-*.safetensors",
    "pytorch_model-00001-of-*.bin",
    "pytorch_model-1-of-*.bin",
    "mp_rank_00_model_states.pt",
    "zero_pp_rank_0_mp_rank_00_model_states.pt",
    "model_world_size_*_rank_0.pt",
    "model_optim_rng.pt",
    ".metadata",
    "flax_model.msgpack",
    "_CHECKPOINT_METADATA",
    "checkpoint",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_steps_in_names_of_other_trainers() {
        let step = |name: Option<CheckpointName>| name.map(|name| name.step);
        let found = |name: &str| match file(name) {
            Some(RunFile::Checkpoint(name)) => Some((name.step, name.series)),
            _ => None,
        };
        for (name, step, series) in [
            ("epoch=3-step=500.ckpt", 500, ""),
            ("epoch=3-step=500-v1.ckpt", 500, ""),
            ("step=7.ckpt", 7, ""),
            ("epoch=3.ckpt", 3, "epoch=#"),
            ("epoch=3-v1.ckpt", 3, "epoch=#"),
            ("net-epoch=03-val_loss=0.21.ckpt", 3, "net-epoch=#-val_loss=#.#"),
            ("checkpoint_500.pt", 500, ""),
            ("checkpoint-500.pth", 500, ""),
            ("checkpoint_500.pth.tar", 500, ""),
            ("ckpt_12.safetensors", 12, ""),
            ("checkpoint3.pt", 3, "checkpoint#"),
            ("checkpoint_1_5000.pt", 5000, "checkpoint_#_#"),
            ("weights.03-0.21.h5", 3, "weights.#-#.#"),
            ("weights-improvement-12-0.93.hdf5", 12, "weights-improvement-#-#.#"),
            ("model.05.keras", 5, "model.#"),
            ("cp-0005.weights.h5", 5, "cp-#"),
        ] {
            assert_eq!(found(name), Some((step, series.to_owned())), "{name}");
        }
        for name in [
            "model.pt",
            "checkpoint_500.txt",
            "checkpoint_fold1.pt",
            "checkpoint_1_2_3.pt",
            // Members of an ensemble, a version, a year.
            "model_3.h5",
            "model.3.keras",
            "model_v2_05.h5",
            "data_2024.h5",
            "resnet50_weights.h5",
        ] {
            assert_eq!(file(name), None, "{name}");
        }
        for name in ["last.ckpt", "last-v1.ckpt", "checkpoint_last.pt", "latest.pth"] {
            assert_eq!(file(name), Some(RunFile::Last), "{name}");
        }
        for name in
            ["checkpoint_best.pt", "model_best.pth.tar", "best-epoch=3.ckpt", "best.05-0.1.h5"]
        {
            assert_eq!(file(name), Some(RunFile::Best), "{name}");
        }
        for (name, wanted) in [
            ("checkpoint-500", Some(500)),
            ("global_step10", Some(10)),
            ("iter_0000100", Some(100)),
            ("checkpoint-best", None),
            ("runs", None),
        ] {
            assert_eq!(step(folder(name)), wanted, "{name}");
        }
        for (name, wanted) in [
            ("global_step10", Some((10, ""))),
            ("100", Some((100, "#"))),
            ("epoch_3", Some((3, "epoch_#"))),
            ("epoch2_step400_v1", Some((400, "epoch#_step#_v#"))),
            ("tag-7", Some((7, "tag-#"))),
            ("2026-01-31", None),
            ("final", None),
            ("épilogue", None),
        ] {
            let wanted = wanted.map_or(RunFile::Last, |(step, series)| {
                RunFile::Checkpoint(CheckpointName { step, timestamp: None, series: series.into() })
            });
            assert_eq!(marked(name), wanted, "{name}");
        }
        assert_eq!(marked("best-model-3"), RunFile::Best);
        assert_eq!(named_latest("latest", "global_step10\n").as_deref(), Some("global_step10"));
        assert_eq!(named_latest("latest", "best-model\n").as_deref(), Some("best-model"));
        assert_eq!(named_latest("latest", "two\nlines"), None);
        let megatron = named_latest("latest_checkpointed_iteration.txt", "100");
        assert_eq!(megatron.as_deref(), Some("iter_0000100"));
        let text =
            "model_checkpoint_path: \"/runs/ckpt-3\"\nall_model_checkpoint_paths: \"ckpt-2\"";
        assert_eq!(named_latest("checkpoint", text).as_deref(), Some("ckpt-3.index"));
        assert_eq!(named_latest("checkpoint", "model_checkpoint_path: \"model.ckpt\""), None);
        for (prefix, wanted) in
            [("model.ckpt-500", Some(500)), ("cp-0005.ckpt", Some(5)), ("best-3", None)]
        {
            assert_eq!(step(tensorflow(prefix)), wanted, "{prefix}");
        }
    }

    #[test]
    fn finds_metrics_in_names() {
        for (name, wanted) in [
            ("weights.03-0.21-0.93", &[0.21, 0.93][..]),
            ("epoch=3-val_loss=0.21", &[0.21]),
            ("epoch=3-step=400-elbo=-2.50-wer=12", &[-2.5, 12.0]),
            ("model.05", &[]),
            ("checkpoint_1_5000", &[]),
        ] {
            assert_eq!(metrics(name), wanted, "{name}");
        }
    }

    #[test]
    fn finds_steps_of_orbax() {
        let paths = [
            "run/100/_CHECKPOINT_METADATA",
            "run/100/default/manifest.ocdbt",
            "run/200/checkpoint/x",
            "tf/1/checkpoint",
            "tf/1/ckpt-1.index",
            "job/7/checkpoint_1.pt",
        ];
        let found = marked_folders(paths.into_iter());
        assert_eq!(found, HashSet::from(["run/100", "run/200"]));
    }

    #[test]
    fn selects_the_weights_of_a_folder() {
        let main_of = |names: &[&str]| {
            let members: Vec<(String, u64)> =
                names.iter().zip(1..).map(|(name, size)| ((*name).to_owned(), size)).collect();
            main(&members).map(str::to_owned)
        };
        let trainer = ["c/config.json", "c/model.safetensors", "c/optimizer.pt", "c/rng_state.pth"];
        assert_eq!(main_of(&trainer).as_deref(), Some("c/model.safetensors"));
        let zero = ["g/mp_rank_00_model_states.pt", "g/zero_pp_rank_0_mp_rank_00_optim_states.pt"];
        assert_eq!(main_of(&zero).as_deref(), Some("g/mp_rank_00_model_states.pt"));
        assert_eq!(
            main_of(&["c/unet/weights.bin", "c/optimizer.bin"]).as_deref(),
            Some("c/unet/weights.bin")
        );
        let shards = ["c/model-1-of-2.safetensors", "c/model-2-of-2.safetensors", "c/other.bin"];
        assert_eq!(main_of(&shards).as_deref(), Some(shards[0]));
        assert_eq!(main_of(&["c/trainer_state.json"]), None);
        assert_eq!(main_of(&["3/d/x", "3/checkpoint"]).as_deref(), Some("3/checkpoint"));
        let hub = ["onnx/model.safetensors", "pytorch_model.bin", "model.safetensors.index.json"];
        assert_eq!(weights_of(hub.into_iter()), Some("model.safetensors.index.json"));
        for others in
            [["unet/model.safetensors", "a.safetensors"], ["model.safetensors", "a.safetensors"]]
        {
            assert_eq!(weights_of(others.into_iter()), None);
        }
    }
}
