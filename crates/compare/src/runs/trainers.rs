//! Names of checkpoint files and folders in the run folders of other trainers.
//!
//! | trainer | checkpoint | which one is loaded |
//! |---|---|---|
//! | Hugging Face Trainer, diffusers, Accelerate | folder `checkpoint-500` | the highest step |
//! | PyTorch Lightning | file `epoch=3-step=500.ckpt` | the highest step |
//! | DeepSpeed | folder `global_step500` | the one named in the file `latest` |
//! | Megatron | folder `iter_0000500` | the one in `latest_checkpointed_iteration.txt` |
//! | scripts | file `checkpoint_500.pt` | the highest step |

use super::CheckpointName;

/// File extensions that PyTorch and others use for checkpoints.
const ENDS: [&str; 7] = ["pt", "pth", "bin", "ckpt", "tar", "safetensors", "pkl"];

/// Parses the name of a checkpoint file; `None` if it is not one.
pub(super) fn file(name: &str) -> Option<CheckpointName> {
    let (stem, end) = name.rsplit_once('.')?;
    let stem = match (stem.rsplit_once('.'), end) {
        // `checkpoint_500.pth.tar`
        (Some((stem, "pt" | "pth")), "tar") => stem,
        _ => stem,
    };
    if !ENDS.contains(&end) {
        return None;
    }
    let (step, version) = match stem.rfind("step=") {
        Some(at) => {
            let rest = &stem[at + "step=".len()..];
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let (step, rest) = rest.split_at(digits);
            // A name that was taken gets a version: `step=500-v1`.
            (step, Some(rest).filter(|rest| rest.starts_with("-v")).map(|rest| &rest[1..]))
        }
        None => {
            let before = ["checkpoint", "ckpt", "step", "iter"];
            let step =
                before.iter().find_map(|word| stem.strip_prefix(word)?.strip_prefix(['_', '-']))?;
            (step, None)
        }
    };
    Some(CheckpointName { step: number(step)?, timestamp: version.map(str::to_owned) })
}

/// Parses the name of a checkpoint folder; `None` if it is not one.
pub(super) fn folder(name: &str) -> Option<CheckpointName> {
    let before = ["checkpoint-", "checkpoint_", "global_step", "iter_", "step_", "step-"];
    let step = before.iter().find_map(|before| name.strip_prefix(before))?;
    Some(CheckpointName { step: number(step)?, timestamp: None })
}

/// Returns the name of the entry to load, given the name and text of a file that names it.
pub fn named_latest(file: &str, text: &str) -> Option<String> {
    let text = text.trim();
    match file {
        "latest" => Some(text.to_owned()).filter(|text| folder(text).is_some()),
        "latest_checkpointed_iteration.txt" => {
            Some(format!("iter_{:07}", text.parse::<u64>().ok()?))
        }
        _ => None,
    }
}

/// Files of a run folder whose text [`named_latest`] parses.
pub const LATEST_FILES: [&str; 2] = ["latest", "latest_checkpointed_iteration.txt"];

fn number(text: &str) -> Option<u128> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
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
        let end = base.rsplit_once('.').map_or("", |(_, end)| end);
        (ENDS.contains(&end) || matches!(end, "h5" | "mdl" | "msgpack"))
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
const MAINS: [&str; 14] = [
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
    "model.safetensors",
    "pytorch_model.bin",
    "adapter_model.safetensors",
    "adapter_model.bin",
    "diffusion_pytorch_model.safetensors",
    "pytorch_lora_weights.safetensors",
    "model-00001-of-*.safetensors",
    "pytorch_model-00001-of-*.bin",
    "mp_rank_00_model_states.pt",
    "model_optim_rng.pt",
    ".metadata",
    "flax_model.msgpack",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_steps_in_names_of_other_trainers() {
        let step = |name: Option<CheckpointName>| name.map(|name| name.step);
        for (name, wanted) in [
            ("epoch=3-step=500.ckpt", Some(500)),
            ("epoch=3-step=500-v1.ckpt", Some(500)),
            ("step=7.ckpt", Some(7)),
            ("checkpoint_500.pt", Some(500)),
            ("checkpoint-500.pth", Some(500)),
            ("checkpoint_500.pth.tar", Some(500)),
            ("ckpt_12.safetensors", Some(12)),
            ("last.ckpt", None),
            ("model.pt", None),
            ("checkpoint_best.pt", None),
            ("checkpoint_500.txt", None),
            ("epoch=3.ckpt", None),
        ] {
            assert_eq!(step(file(name)), wanted, "{name}");
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
        assert_eq!(named_latest("latest", "global_step10\n").as_deref(), Some("global_step10"));
        let megatron = named_latest("latest_checkpointed_iteration.txt", "100");
        assert_eq!(megatron.as_deref(), Some("iter_0000100"));
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
        assert_eq!(main_of(&["c/trainer_state.json"]), None);
        let hub = ["onnx/model.safetensors", "pytorch_model.bin", "model.safetensors.index.json"];
        assert_eq!(weights_of(hub.into_iter()), Some("model.safetensors.index.json"));
        for others in
            [["unet/model.safetensors", "a.safetensors"], ["model.safetensors", "a.safetensors"]]
        {
            assert_eq!(weights_of(others.into_iter()), None);
        }
    }
}
