//! Compares folders of DeepSpeed with what `zero_to_fp32.py` gave.

use statelens_checkpoint::{Checkpoint, FileSet, Grade, Leaf};

use crate::joined::tests::fixtures::{
    damaged, differences, file_counts_as_missing, folder, missing, open, open_only, survive_damage,
    texts,
};
use crate::torch::tests::{compare, fixtures};

const FURTHER: &[&str] = &["optimizer", "module", "client_state"];

const ZERO: [&str; 8] = [
    "z0_fp32_w2",
    "z1_bf16_w2",
    "z2_bf16_w3_groups",
    "z2_fp16_w2",
    "z2_fp32_w1",
    "z2_shared_frozen",
    "z3_bf16_w2",
    "z3_fp32_w3_subgroups",
];

#[test]
fn every_tensor_is_as_zero_to_fp32_gives_it() {
    for name in ZERO {
        let name = format!("deepspeed/{name}");
        let is_main = |name: &str| name.ends_with("_states.pt");
        assert_eq!(differences(&name, FURTHER, is_main), Vec::<String>::new(), "{name}");
        let checkpoint = open_only(&folder(&name, |_| true)).unwrap();
        assert_eq!(checkpoint.format.id, "deepspeed", "{name}");
        let bad = checkpoint.findings.iter().filter(|finding| finding.grade > Grade::Note);
        assert_eq!(bad.collect::<Vec<_>>(), Vec::<&statelens_checkpoint::Finding>::new(), "{name}");
    }
}

fn leaf(checkpoint: &Checkpoint, key: &str) -> Leaf {
    let leaves = checkpoint.leaves();
    let keys: Vec<String> = leaves.iter().map(|leaf| leaf.flat.to_string()).collect();
    let at = keys.iter().position(|known| known == key);
    leaves[at.unwrap_or_else(|| panic!("{key} is not in {keys:?}"))].clone()
}

/// The universal checkpoint was made from `z2_bf16_w3_groups`, so its moments are those of that
/// folder.
#[test]
fn moments_have_the_names_of_their_parameters() {
    let json = fixtures().join("deepspeed/universal_z2.expected.json");
    let json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let universal = open_only(&folder("deepspeed/universal_z2", |_| true)).unwrap();
    let zero = open_only(&folder("deepspeed/z2_bf16_w3_groups", |_| true)).unwrap();
    let entries = json["entries"].as_array().unwrap();
    let mut moments = 0;
    for entry in entries {
        let (key, state) = (entry["key"].as_str().unwrap(), entry["state"].as_str().unwrap());
        let key = match state {
            "fp32" => key.to_owned(),
            state => format!("optimizer.state.{key}.{state}"),
        };
        let of_universal = leaf(&universal, &key);
        // The weights are parameters, which the expectations do not say.
        let mut entry = entry.clone();
        if let Some((_, tensor)) = universal.tensor_of(of_universal.id) {
            entry["requires_grad"] = tensor.requires_grad.into();
        }
        assert_eq!(compare(&universal, &of_universal, &entry), Ok(()), "{key}");
        entry["requires_grad"] = false.into();
        if state != "fp32" {
            assert_eq!(compare(&zero, &leaf(&zero, &key), &entry), Ok(()), "{key}");
            moments += 1;
        }
    }
    assert!(moments > 20);
    let groups = leaf(&zero, "optimizer.param_groups.1.params.0");
    let statelens_checkpoint::Value::Str(name) = zero.value(groups.id) else { panic!() };
    assert_eq!(name.to_lossy(), "gain");
}

/// Returns the keys of the model's tensors without bytes.
fn missing_weights(checkpoint: &Checkpoint) -> Vec<String> {
    let mut keys = missing(checkpoint);
    keys.retain(|key| FURTHER.iter().all(|state| !key.starts_with(&format!("{state}."))));
    keys
}

#[test]
fn missing_rank_is_named_and_the_rest_opens() {
    let without = |name: &str, file: &str| {
        let files = folder(&format!("deepspeed/{name}"), |name| !name.contains(file));
        open_only(&files).unwrap()
    };
    let checkpoint = without("z2_bf16_w3_groups", "rank_1_mp_rank_00_optim");
    let finding = &checkpoint.findings[0];
    assert_eq!(finding.grade, Grade::Damage);
    assert_eq!(finding.title.split(':').next(), Some("rank 1 of 3 is missing"));
    let name = "global_step2/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt";
    assert_eq!(finding.missing, [name]);
    let lost = missing_weights(&checkpoint);
    assert!(
        lost.contains(&"a.weight".to_owned()) && !lost.contains(&"gain".to_owned()),
        "{lost:?}"
    );
    assert!(!lost.contains(&"frozen.weight".to_owned()), "{lost:?}");
    // With stage 3, every parameter has a part in each rank.
    let checkpoint = without("z3_bf16_w2", "rank_1_mp_rank_00_optim");
    let lost = missing_weights(&checkpoint);
    assert!(lost.contains(&"emb.weight".to_owned()), "{lost:?}");
    assert!(!lost.contains(&"frozen.weight".to_owned()), "{lost:?}");
    // Without any file of the optimizer, the weights in the dtype of the training are shown.
    let checkpoint = without("z2_bf16_w3_groups", "optim_states");
    assert!(texts(&checkpoint).contains("The float32 weights are not here"));
    assert_eq!(missing_weights(&checkpoint), [""; 0]);
}

/// The file of another run, with another number of ranks.
#[test]
fn ranks_of_different_runs_are_named() {
    let mut mixed = FileSet::default();
    for (_, file) in folder("deepspeed/z2_bf16_w3_groups", |_| true).iter() {
        if !file.name.contains("rank_1_mp_rank_00_optim") {
            mixed.push_file(file.clone());
        }
    }
    for (_, file) in folder("deepspeed/z1_bf16_w2", |name| name.contains("rank_1_")).iter() {
        mixed.push_file(file.clone());
    }
    let text = texts(&open_only(&mixed).unwrap());
    assert!(text.contains("rank_0_mp_rank_00_optim_states.pt is of 3 ranks"), "{text}");
    assert!(text.contains("rank_1_mp_rank_00_optim_states.pt of 2"), "{text}");
}

/// Swaps the files of two ranks whose parts have the same length: only `param_slice_mappings` differs.
#[test]
fn file_of_another_rank_is_named() {
    let folder = folder("deepspeed/z2_bf16_w3_groups", |_| true);
    let optim = |rank| format!("bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt");
    let mut files = FileSet::default();
    for (_, file) in folder.iter() {
        let other =
            [(0, 1), (1, 0)].into_iter().find(|(rank, _)| file.name.ends_with(&optim(*rank)));
        let name = other.map(|(rank, other)| file.name.replace(&optim(rank), &optim(other)));
        files.push(name.unwrap_or_else(|| file.name.clone()), file.source.clone());
    }
    let text = texts(&open_only(&files).unwrap());
    for rank in [0, 1] {
        let title = format!("{} does not have the part of rank {rank}", optim(rank));
        assert!(text.contains(&title), "{text}");
    }
}

#[test]
fn damaged_rank_counts_as_missing() {
    let optim = |rank| format!("bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt");
    for (name, rank) in [("z2_bf16_w3_groups", 0), ("z2_bf16_w3_groups", 2), ("z3_bf16_w2", 1)] {
        file_counts_as_missing(&format!("deepspeed/{name}"), &optim(rank));
    }
    // With stage 3, every rank has the names of the parameters.
    for rank in [0, 1] {
        let file = format!("zero_pp_rank_{rank}_mp_rank_00_model_states.pt");
        file_counts_as_missing("deepspeed/z3_bf16_w2", &file);
    }
    let empty = |_: &[u8]| Vec::new();
    let files = damaged("deepspeed/z2_bf16_w3_groups", "optim_states.pt", empty);
    let text = texts(&open_only(&files).unwrap());
    assert!(text.contains("The float32 weights are not here"), "{text}");
    let files = damaged("deepspeed/z2_bf16_w3_groups", "mp_rank_00_model_states.pt", empty);
    let error = open_only(&files).unwrap_err().to_string();
    assert!(error.contains("mp_rank_00_model_states.pt: the file is empty"), "{error}");
}

/// The other parameters of a universal checkpoint open.
#[test]
fn damaged_file_of_a_parameter_leaves_the_others() {
    let files = damaged("deepspeed/universal_z2", "gain/fp32.pt", |bytes| bytes[..100].to_vec());
    let checkpoint = open_only(&files).unwrap();
    assert_eq!(missing_weights(&checkpoint), ["gain"]);
    let text = texts(&checkpoint);
    assert!(text.contains("gain/fp32.pt can't be read"), "{text}");
}

#[test]
fn parameter_without_weights_is_missing() {
    let files = folder("deepspeed/universal_z2", |name| !name.ends_with("gain/fp32.pt"));
    let checkpoint = open_only(&files).unwrap();
    assert_eq!(missing_weights(&checkpoint), ["gain"]);
    let text = texts(&checkpoint);
    assert!(text.contains("`fp32.pt` is missing for gain"), "{text}");
    let line = &checkpoint.format.facts[0].1;
    assert!(line.ends_with(", 1 incomplete"), "{line}");
}

#[test]
fn files_that_are_not_joined_are_named() {
    let mut files = FileSet::default();
    for (_, file) in folder("deepspeed/z2_bf16_w3_groups", |_| true).iter() {
        files.push_file(file.clone());
        if file.name.ends_with("mp_rank_00_model_states.pt") {
            // Of an expert in two tensor-parallel parts.
            for name in ["layer_1_expert_3_mp_rank_00", "layer_1_expert_3_mp_rank_01"] {
                files.push(file.name.replace("mp_rank_00", name), file.source.clone());
            }
        }
    }
    let text = texts(&open_only(&files).unwrap());
    assert!(text.contains("2 files are not joined: "), "{text}");
    assert!(text.contains("layer_1_expert_3_mp_rank_00_model_states.pt"), "{text}");
    let alone = folder("deepspeed/z2_bf16_w3_groups", |name| name.contains("optim"));
    let error = open(alone).unwrap_err().to_string();
    assert!(error.contains("mp_rank_00_model_states.pt"), "{error}");
}

/// Two ranks with two experts each, trained with ZeRO-1 by DeepSpeed 0.19. Its own files of experts
/// have the weights that are expected.
#[test]
fn experts_of_all_ranks_are_joined() {
    let files = folder("deepspeed_experts", |_| true);
    let checkpoint = open_only(&files).unwrap();
    assert_eq!(checkpoint.findings, []);
    let line = &checkpoint.format.facts[0].1;
    assert!(line.ends_with("2 ranks, 19 tensors"), "{line}");
    let bytes = |of: &Checkpoint, leaf: &Leaf| {
        let (_, tensor) = of.tensor_of(leaf.target).unwrap();
        let numel = tensor.numel().unwrap();
        statelens_tensor::elements(&of.files, tensor, 0..numel).unwrap()
    };
    let mut compared = 0;
    for expert in 0..4 {
        let name = format!("layer_0_expert_{expert}_mp_rank_00_model_states.pt");
        let (_, file) = files.iter().find(|(_, file)| file.name.ends_with(&name)).unwrap();
        let mut alone = FileSet::default();
        alone.push("expert.pt", file.source.clone());
        let expected = open(alone).unwrap();
        for weight in expected.leaves() {
            let expected = bytes(&expected, &weight);
            // This run has no 16-bit weights, so both states are float32.
            for state in ["", "module."] {
                let key = format!("{state}{}", weight.flat);
                assert_eq!(bytes(&checkpoint, &leaf(&checkpoint, &key)), expected, "{key}");
            }
            let key = format!("optimizer.state.{}.exp_avg", weight.flat);
            assert_eq!(bytes(&checkpoint, &leaf(&checkpoint, &key)).len(), expected.len());
            compared += 1;
        }
    }
    assert_eq!(compared, 16);
}

/// The float32 weights are in the states of the rank with the expert; its own file has them, too.
#[test]
fn experts_of_a_missing_rank_are_named() {
    let name = "zero_pp_rank_1_mp_rank_00_optim_states.pt";
    file_counts_as_missing("deepspeed_experts", name);
    let files = folder("deepspeed_experts", |file| file != name);
    let lost = missing(&open_only(&files).unwrap());
    let experts = lost.iter().filter(|key| !key.starts_with("optimizer."));
    assert!(lost.contains(&"out.weight".to_owned()), "{lost:?}");
    let experts: Vec<&String> = experts.filter(|key| key.contains("deepspeed_experts.")).collect();
    assert!(experts.iter().all(|key| key.contains("experts.2.") || key.contains("experts.3.")));
    assert_eq!(experts.len(), 8);
    // An expert's file that is missing or damaged.
    let lost = "layer_0_expert_2_mp_rank_00_model_states.pt";
    let cut = damaged("deepspeed_experts", lost, |bytes| bytes[..100].to_vec());
    let text = texts(&open_only(&cut).unwrap());
    assert!(text.contains("expert_2_mp_rank_00_model_states.pt can't be read"), "{text}");
}

#[test]
fn damaged_copies_never_panic() {
    survive_damage("deepspeed/z2_bf16_w3_groups");
    survive_damage("deepspeed/z3_bf16_w2");
}

/// With stage 3, each rank's file of the model has a part of frozen parameters.
#[test]
fn missing_file_of_a_model_is_named() {
    let lost = "zero_pp_rank_1_mp_rank_00_model_states.pt";
    let files = folder("deepspeed/z3_bf16_w2", |name| !name.ends_with(lost));
    let checkpoint = open_only(&files).unwrap();
    let named: Vec<&String> =
        checkpoint.findings.iter().flat_map(|finding| &finding.missing).collect();
    assert_eq!(named, [&format!("global_step2/{lost}")], "{:?}", checkpoint.findings);
}
