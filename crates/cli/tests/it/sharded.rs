//! Checkpoints of which several ranks wrote their parts.

use std::fs;
use std::path::Path;

use crate::common::{Folder, fixture, run, text};

/// Copies a folder of the fixtures without the files whose names contain `without`.
fn copy(from: &Path, to: &Path, without: &str) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, name) = {
            let entry = entry.unwrap();
            (entry.path(), entry.file_name())
        };
        if path.is_dir() {
            copy(&path, &to.join(name), without);
        } else if without.is_empty() || !name.to_string_lossy().contains(without) {
            let bytes = fs::read(&path).unwrap();
            fs::write(to.join(name), bytes).unwrap();
        }
    }
}

#[test]
fn folders_open_as_one_state_dict() {
    for (name, line) in [
        ("sharded/verl_w4_hsdp", "FSDP, 4 ranks, "),
        ("deepspeed/z3_bf16_w2", "DeepSpeed ZeRO (stage 3), 2 ranks, 15 tensors"),
        ("deepspeed/universal_z2", "DeepSpeed universal checkpoint, "),
        ("sharded/hf_w2_shards", "safetensors of ranks, 2 ranks found, "),
    ] {
        let folder = text(&fixture(name));
        let info = run(["info", &folder]).ok();
        assert!(info.contains(line), "{name}: {info}");
        let verified = run(["verify", &folder]).ok();
        assert!(!verified.contains("finding"), "{name}: {verified}");
    }
    // The whole files next to the shards.
    let info = run(["info", "--json", &text(&fixture("sharded/hf_w2_consolidated"))]).json();
    assert_eq!(info["format"]["name"], "safetensors");
}

#[test]
fn pieces_are_listed_with_rank_file_and_offset() {
    let folder = text(&fixture("sharded/verl_w4_tp_fsdp"));
    let listed = run(["ls", &folder, "model.embed_tokens.weight", "--pieces"]).ok();
    let pieces: Vec<&str> = listed.lines().filter(|line| line.contains("piece at")).collect();
    assert_eq!(pieces.len(), 4, "{listed}");
    // The ranks hold blocks 0, 2, 1, 3.
    let ranks: Vec<bool> = pieces
        .iter()
        .zip([0, 2, 1, 3])
        .map(|(line, rank)| {
            line.contains(&format!("rank {rank}, model_world_size_4_rank_{rank}.pt"))
        })
        .collect();
    assert_eq!(ranks, [true; 4], "{listed}");
    let json = run(["ls", &folder, "model.embed_tokens.weight", "--json"]).json();
    let pieces = json["entries"][0]["pieces"].as_array().unwrap();
    assert_eq!(pieces[1]["at"], serde_json::json!([3, 0]));
    assert_eq!(pieces[1]["rank"], 2);
}

/// The bytes of a piece are those of its values, whatever archive is around them.
#[test]
fn bytes_of_pieces_are_those_of_the_tensor() {
    let folder = text(&fixture("sharded/dcp_w2_mix"));
    let listed = run(["ls", &folder, "--pieces", "--json"]).json();
    let mut split = 0;
    for entry in listed["entries"].as_array().unwrap() {
        let Some(pieces) = entry["pieces"].as_array() else { continue };
        split += 1;
        let table = run(["ls", &folder, entry["key"].as_str().unwrap(), "--pieces"]).ok();
        let rows: Vec<&str> = table.lines().filter(|line| line.contains("piece at")).collect();
        assert_eq!(rows.len(), pieces.len(), "{table}");
        let bytes = rows.iter().map(|row| {
            let (values, place) = row.split_once("  rank ").unwrap();
            assert!(place.contains("in 1,") && place.contains(" bytes from byte "), "{row}");
            values.split_whitespace().next_back().unwrap().replace(',', "").parse::<u64>().unwrap()
        });
        assert_eq!(Some(bytes.sum::<u64>()), entry["bytes"].as_u64(), "{table}");
    }
    assert!(split > 1, "{listed}");
}

/// Only the model is written; further states are written if they are selected.
#[test]
fn conversions_write_the_model() {
    let out = Folder::new();
    let folder = text(&fixture("deepspeed/z2_bf16_w3_groups"));
    let file = text(&out.file("model.safetensors"));
    run(["convert", &folder, &file]).ok();
    let whole = run(["manifest", &folder, "--json"]).ok();
    let written = run(["manifest", &file, "--json"]).ok();
    assert!(written.contains("norm.bias") && !written.contains("optimizer."), "{written}");
    let hash = |manifest: &str, key: &str| {
        let json: serde_json::Value = serde_json::from_str(manifest).unwrap();
        let entries = json["entries"].as_array().unwrap();
        let entry = entries.iter().find(|entry| entry["key"] == key).unwrap();
        entry["sha256"].as_str().unwrap().to_owned()
    };
    for key in ["emb.weight", "norm.bias", "frozen.weight", "bn.running_mean"] {
        assert_eq!(hash(&whole, key), hash(&written, key), "{key}");
    }
    let file = text(&out.file("optimizer.pt"));
    run(["convert", &folder, &file, "--select", "optimizer.*"]).ok();
    assert!(run(["ls", &file]).ok().contains("optimizer.state.emb.weight.exp_avg"));
}

#[test]
fn missing_ranks_are_refused_and_named() {
    let folder = text(&fixture("sharded/broken_verl_rank_missing"));
    let verified = run(["verify", &folder]);
    assert_eq!(verified.code, Some(1), "{}", verified.out);
    assert!(verified.out.contains("rank 2 of 4 is missing"), "{}", verified.out);
    // The pieces that exist are listed, and the place of the missing one.
    let key = "model.embed_tokens.weight";
    let listed = run(["ls", &folder, key, "--pieces"]).ok();
    let pieces: Vec<&str> = listed.lines().filter(|line| line.contains("piece at")).collect();
    for (piece, place) in pieces.iter().zip(["rank 0,", "rank 1,", "no bytes", "rank 3,"]) {
        assert!(piece.contains(place), "{listed}");
    }
    let json = run(["ls", &folder, key, "--pieces", "--json"]).json();
    assert_eq!((pieces.len(), json["entries"][0]["pieces"].as_array().unwrap().len()), (4, 4));
    let out = Folder::new();
    let file = text(&out.file("model.safetensors"));
    let refused = run(["convert", &folder, &file]);
    assert!(refused.code != Some(0) && refused.err.contains("--lossy"), "{}", refused.err);
    run(["convert", &folder, &file, "--lossy"]).ok();
    let listed = run(["ls", &file]).ok();
    assert!(listed.contains("model.position_ids"), "{listed}");
    assert!(!listed.contains("embed_tokens"), "{listed}");
}

/// The bits of CRC-32's polynomial: bytes that differ in them have the same CRC-32.
const SAME_CRC: u64 = 0x1_04c1_1db7;

/// A replica with other bytes: its file has changed bits in the data of a tensor.
#[test]
fn verify_compares_replicas() {
    let folder = Folder::new();
    copy(&fixture("sharded/verl_w4_hsdp"), folder.path(), "");
    let listed = run(["ls", &text(folder.path()), "*.q_proj.weight", "--json"]).json();
    let piece = &listed["entries"][0]["pieces"][0];
    let (rank, offset) = (piece["rank"].as_u64().unwrap(), piece["offset"].as_u64().unwrap());
    // The same place in the file of the other replica.
    let other = folder.file(&format!("model_world_size_4_rank_{}.pt", rank + 2));
    let mut bytes = fs::read(&other).unwrap();
    for bit in (0..33).filter(|bit| SAME_CRC >> (32 - bit) & 1 == 1) {
        bytes[offset as usize + bit / 8] ^= 1 << (bit % 8);
    }
    fs::write(&other, bytes).unwrap();
    let verified = run(["verify", &text(folder.path())]);
    assert_eq!(verified.code, Some(1), "{}", verified.out);
    for part in ["copies", "q_proj.weight", "rank_0.pt and", "rank_2.pt differ"] {
        assert!(verified.out.contains(part), "{part}: {}", verified.out);
    }
}

#[test]
fn run_folders_open_at_the_latest_step() {
    let run_folder = Folder::new();
    copy(&fixture("deepspeed/z1_bf16_w2"), run_folder.path(), "");
    let step = run_folder.file("global_step2");
    copy(&step, &run_folder.file("global_step1"), "");
    let info = run(["info", &text(run_folder.path())]).ok();
    assert!(info.contains("global_step2/") || info.contains("DeepSpeed ZeRO"), "{info}");
    let runs = run(["runs", &text(run_folder.path())]).ok();
    assert!(runs.contains("global_step1") && runs.contains("global_step2"), "{runs}");
    // verl: the latest step is named as by Megatron.
    let verl = Folder::new();
    for step in [10, 20] {
        copy(&fixture("sharded/verl_w2"), &verl.file(&format!("global_step_{step}/actor")), "");
    }
    fs::write(verl.file("latest_checkpointed_iteration.txt"), "10").unwrap();
    let latest = run(["latest", &text(verl.path())]).ok();
    assert!(latest.contains("global_step_10"), "{latest}");
    let info = run(["info", &text(&verl.file("global_step_20"))]).ok();
    assert!(info.contains("FSDP, 2 ranks"), "{info}");
}

/// Megatron stores all layers in one tensor; the expectation has one entry for each layer.
#[test]
fn stacked_layers_are_taken_apart() {
    for name in ["mcore_tp2", "mcore_pp2", "mcore012_flattened", "mcore019_common_state"] {
        let folder = text(&fixture(&format!("sharded/{name}")));
        let manifest = run(["manifest", &folder, "--json", "--unstack"]).json();
        let entries = manifest["entries"].as_array().unwrap();
        let expected = fs::read_to_string(fixture(&format!("sharded/{name}.expected.json")));
        let expected: serde_json::Value = serde_json::from_str(&expected.unwrap()).unwrap();
        for wanted in expected["unstacked"].as_array().unwrap() {
            let entry = entries.iter().find(|entry| entry["key"] == wanted["key"]);
            let entry = entry.unwrap_or_else(|| panic!("{name}: {}", wanted["key"]));
            assert_eq!(entry["sha256"], wanted["sha256"], "{name}: {}", wanted["key"]);
            assert_eq!(entry["shape"], wanted["shape"], "{name}: {}", wanted["key"]);
        }
    }
}

/// Optimizer, random states and other objects are next to the model, so their classes do not matter.
#[test]
fn only_the_model_of_megatron_is_written() {
    let out = Folder::new();
    for name in ["mcore_tp2", "mcore_pp2", "mcore012_flattened", "mcore019_common_state"] {
        let folder = text(&fixture(&format!("sharded/{name}")));
        let written = text(&out.file(&format!("{name}.safetensors")));
        run(["convert", &folder, &written, "--unstack"]).ok();
        let manifest = run(["manifest", &written, "--json"]).json();
        let keys: Vec<&str> = manifest["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["key"].as_str().unwrap())
            .collect();
        assert!(keys.contains(&"decoder.layers.0.mlp.linear_fc1.weight"), "{name}: {keys:?}");
        let other = |key: &&&str| key.starts_with("optimizer") || key.contains("/shard_");
        assert_eq!(keys.iter().find(other), None, "{name}");
    }
}

/// A job divides the conversion, and writes the same bytes.
#[test]
fn jobs_write_the_same_as_convert() {
    let folder = Folder::new();
    for name in [
        "deepspeed/z3_bf16_w2",
        "deepspeed/z2_bf16_w3_groups",
        "sharded/verl_w4_tp_fsdp",
        "sharded/dcp_w4_tp_fsdp",
        "sharded/hf_w2_shards",
    ] {
        let source = text(&fixture(name));
        let base = name.replace('/', "-");
        let [whole, divided, job] = ["whole.pt", "divided.pt", "job"]
            .map(|end| text(&folder.file(&format!("{base}-{end}"))));
        run(["convert", &source, &whole]).ok();
        let plan = ["job", "plan", &source, &divided, "-o", &job, "--tasks", "3", "--json"];
        let tasks = run(plan).json()["tasks"].as_u64().unwrap();
        for task in (0..tasks).rev() {
            run(["job", "run", &job, &task.to_string()]).ok();
        }
        run(["job", "commit", &job]).ok();
        assert!(fs::read(&whole).unwrap() == fs::read(&divided).unwrap(), "{name}");
    }
}
