//! Compares folders of DeepSpeed with what `zero_to_fp32.py` gave.

use statelens_checkpoint::{Checkpoint, FileSet, Grade, Layout, Leaf};

use crate::joined::tests::fixtures::{differences, folder, open, open_only, survive_damage, texts};
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

fn missing(checkpoint: &Checkpoint) -> Vec<String> {
    let is_missing = |leaf: &&Leaf| {
        let tensor = checkpoint.tensor_of(leaf.id);
        tensor.is_some_and(|(_, tensor)| matches!(tensor.layout, Layout::Missing(_)))
    };
    let leaves = checkpoint.leaves();
    let leaves = leaves.iter().filter(|leaf| !leaf.outside_state);
    leaves.filter(is_missing).map(|leaf| leaf.flat.to_string()).collect()
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
    let lost = missing(&checkpoint);
    assert!(
        lost.contains(&"a.weight".to_owned()) && !lost.contains(&"gain".to_owned()),
        "{lost:?}"
    );
    assert!(!lost.contains(&"frozen.weight".to_owned()), "{lost:?}");
    // With stage 3, every parameter has a part in each rank.
    let checkpoint = without("z3_bf16_w2", "rank_1_mp_rank_00_optim");
    let lost = missing(&checkpoint);
    assert!(lost.contains(&"emb.weight".to_owned()), "{lost:?}");
    assert!(!lost.contains(&"frozen.weight".to_owned()), "{lost:?}");
    // Without any file of the optimizer, the weights in the dtype of the training are shown.
    let checkpoint = without("z2_bf16_w3_groups", "optim_states");
    assert!(texts(&checkpoint).contains("The float32 weights are not here"));
    assert_eq!(missing(&checkpoint), [""; 0]);
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

#[test]
fn files_that_are_not_joined_are_named() {
    let mut files = FileSet::default();
    for (_, file) in folder("deepspeed/z2_bf16_w3_groups", |_| true).iter() {
        files.push_file(file.clone());
        if file.name.ends_with("mp_rank_00_model_states.pt") {
            let name = file.name.replace("mp_rank_00", "layer_1_expert_3_mp_rank_00");
            files.push(name, file.source.clone());
        }
    }
    let text = texts(&open_only(&files).unwrap());
    assert!(text.contains("layer_1_expert_3_mp_rank_00_model_states.pt is not joined"), "{text}");
    let alone = folder("deepspeed/z2_bf16_w3_groups", |name| name.contains("optim"));
    let error = open(alone).unwrap_err().to_string();
    assert!(error.contains("mp_rank_00_model_states.pt"), "{error}");
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
