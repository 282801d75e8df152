//! Compares joined files of ranks with what torch gave before they were cut.

use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, FileId, Grade, Layout, Memory};

use crate::joined::tests::fixtures::{
    damaged, differences, file_counts_as_missing, folder, missing, open, open_only, survive_damage,
    texts,
};
use crate::torch::tests::{compare, fixtures};

/// The fixtures, and the further states that are not in their expectations.
const WHOLE: [(&str, &[&str]); 11] = [
    ("verl_w1_plain", &["optim", "extra_state"]),
    ("verl_w2", &["optim", "extra_state"]),
    ("verl_w2_dim1", &["optim", "extra_state"]),
    ("verl_w4_bf16_uneven", &["optim", "extra_state"]),
    ("verl_w4_hsdp", &["optim", "extra_state"]),
    ("verl_w4_tp_fsdp", &["optim", "extra_state"]),
    ("dtensor_w2_mixed", &[]),
    ("torch211_w4_tp_fsdp", &["optim", "extra_state"]),
    ("torch24_fsdp1_w2", &["optim", "extra_state"]),
    ("torch24_fsdp2_w2", &["optim", "extra_state"]),
    ("torch24_sharded_tensor_w2", &["optim", "extra_state"]),
];

#[test]
fn every_tensor_is_as_torch_joined_it() {
    for (name, except) in WHOLE {
        let name = format!("sharded/{name}");
        let is_main = |name: &str| name.starts_with("model") && name.ends_with(".pt");
        assert_eq!(differences(&name, except, is_main), Vec::<String>::new(), "{name}");
        let checkpoint = open_only(&folder(&name, |_| true)).unwrap();
        assert_eq!(checkpoint.format.id, "torch-fsdp", "{name}");
        let bad = checkpoint.findings.iter().filter(|finding| finding.grade > Grade::Note);
        assert_eq!(bad.collect::<Vec<_>>(), Vec::<&statelens_checkpoint::Finding>::new(), "{name}");
    }
}

/// 7 rows on 2 ranks of tensor parallelism, and those on 3 ranks of FSDP: the last of them have fewer
/// rows than by the placements from left to right.
#[test]
fn uneven_rows_over_tensor_parallelism_are_joined() {
    assert_eq!(differences("fsdp_uneven", &[], |name| name.ends_with(".pt")), [""; 0]);
    let checkpoint = open_only(&folder("fsdp_uneven", |_| true)).unwrap();
    let bad = checkpoint.findings.iter().filter(|finding| finding.grade > Grade::Note);
    assert_eq!(bad.count(), 0, "{}", texts(&checkpoint));
    // Rank 4 has no row of any tensor, and rank 5 the last one of the first layer.
    for (rank, lost) in [(4, &[][..]), (5, &["0.weight", "0.bias"])] {
        let rank = format!("rank_{rank}.pt");
        let files = folder("fsdp_uneven", |name| !name.ends_with(&rank));
        assert_eq!(missing(&open_only(&files).unwrap()), lost, "{rank}");
    }
}

/// The optimizer is a further state of the model, and opens by its own file.
#[test]
fn optimizer_states_are_joined() {
    for name in ["verl_w2", "verl_w4_hsdp"] {
        let files = folder(&format!("sharded/{name}"), |_| true);
        let json = fixtures().join(format!("sharded/{name}.expected.json"));
        let json: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
        let entries = json["optim_entries"].as_array().unwrap();
        let model = open_only(&files).unwrap();
        let optim = (0..files.count() as u32)
            .map(FileId)
            .find(|id| files.name(*id).starts_with("optim_"))
            .unwrap();
        let optim = open(files.opened_at(optim)).unwrap();
        for (checkpoint, prefix) in [(&model, "optim."), (&optim, "")] {
            let leaves = checkpoint.leaves();
            for entry in entries {
                let key = format!("{prefix}{}", entry["key"].as_str().unwrap());
                let leaf = leaves.iter().find(|leaf| leaf.flat.to_lossy() == key).unwrap();
                assert_eq!(compare(checkpoint, leaf, entry), Ok(()), "{name}: {key}");
                assert_eq!(leaf.outside_state, !prefix.is_empty());
            }
        }
    }
}

/// The extra state differs in each rank, so none is left out.
#[test]
fn extra_states_are_shown_by_rank() {
    let checkpoint = open_only(&folder("sharded/verl_w2", |_| true)).unwrap();
    let keys: Vec<String> =
        checkpoint.leaves().iter().map(|leaf| leaf.flat.to_lossy().into_owned()).collect();
    for rank in [0, 1] {
        let start = format!("extra_state.rank_{rank}.");
        assert!(keys.iter().any(|key| key.starts_with(&start)), "{keys:?}");
    }
}

#[test]
fn missing_rank_is_named_and_whole_tensors_open() {
    let checkpoint = open_only(&folder("sharded/broken_verl_rank_missing", |_| true)).unwrap();
    let finding = &checkpoint.findings[0];
    assert_eq!(finding.grade, Grade::Damage);
    assert_eq!(finding.missing, ["model_world_size_4_rank_2.pt"]);
    assert!(finding.title.contains("rank 2 of 4"), "{}", finding.title);
    assert!(finding.detail.contains("incomplete"), "{}", finding.detail);
    let missing = missing(&checkpoint);
    assert!(missing.contains(&"model.embed_tokens.weight".to_owned()), "{missing:?}");
    assert!(!missing.contains(&"model.position_ids".to_owned()), "{missing:?}");
    let line = &checkpoint.format.facts[0].1;
    assert!(line.starts_with("FSDP, 4 ranks, "), "{line}");
    assert!(line.contains("incomplete: rank 2 of 4 is missing"), "{line}");
    // The pieces of the other ranks are kept, with a gap.
    assert_eq!(checkpoint.partial.len(), missing.len());
    let Some(Layout::Concat(parts)) = checkpoint.partial.get(missing[0].as_bytes()) else {
        panic!("{:?}", checkpoint.partial.get(missing[0].as_bytes()))
    };
    let gaps = parts.parts.iter().filter(|part| matches!(part.layout, Layout::Missing(_)));
    assert_eq!((parts.parts.len(), gaps.count()), (4, 1));
}

#[test]
fn damaged_rank_counts_as_missing() {
    for rank in [0, 2] {
        let file = format!("model_world_size_4_rank_{rank}.pt");
        file_counts_as_missing("sharded/verl_w4_bf16_uneven", &file);
    }
    // The copies of the other replica are used.
    file_counts_as_missing("sharded/verl_w4_hsdp", "model_world_size_4_rank_1.pt");
    let half = |bytes: &[u8]| bytes[..bytes.len() / 2].to_vec();
    let file = "model_world_size_4_rank_2.pt";
    let line = |files| open_only(&files).unwrap().format.facts[0].1.clone();
    let cut = line(damaged("sharded/verl_w4_bf16_uneven", file, half));
    assert!(cut.ends_with("incomplete: rank 2 of 4 can't be read"), "{cut}");
    let fixture = "sharded/broken_verl_rank_missing";
    let both = line(damaged(fixture, "model_world_size_4_rank_3.pt", half));
    assert!(both.ends_with("ranks 2, 3 of 4 are missing or can't be read"), "{both}");
}

/// If no file can be read, the error is that of the first one.
#[test]
fn ranks_of_which_none_can_be_read_are_an_error() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5000000\n";
    let pointer = |_: &[u8]| pointer.as_bytes().to_vec();
    let files = damaged("sharded/verl_w2", ".pt", pointer);
    let error = open_only(&files).unwrap_err().to_string();
    assert!(error.contains("Git LFS pointer"), "{error}");
    // The model can be used without the other states.
    let files = damaged("sharded/verl_w2", "optim_world_size_2_rank_1.pt", pointer);
    let checkpoint = open_only(&files).unwrap();
    assert!(missing(&checkpoint).iter().all(|key| key.starts_with("optim.")));
    assert!(!missing(&checkpoint).is_empty());
}

/// The names do not say the number of ranks, so the first file that can be read shows what they are.
#[test]
fn first_of_other_names_may_be_damaged() {
    let whole = renamed("sharded/verl_w4_bf16_uneven", |rank| format!("rank{rank}.pt"));
    let mut files = statelens_checkpoint::FileSet::default();
    for (_, file) in whole.iter() {
        match file.name == "rank0.pt" {
            true => files.push("rank0.pt", Arc::new(Memory::from(Vec::new()))),
            false => files.push_file(file.clone()),
        };
    }
    let line = &open_only(&files).unwrap().format.facts[0].1;
    assert!(line.contains("rank 0 of 4 can't be read"), "{line}");
}

/// A single file is shown as what it holds.
#[test]
fn file_of_one_rank_opens_alone() {
    let is_shown = |name: &str| name == "model_world_size_4_rank_3.pt";
    let checkpoint = open_only(&folder("sharded/verl_w4_bf16_uneven", is_shown)).unwrap();
    assert_eq!(missing(&checkpoint), Vec::<String>::new());
    let finding = &checkpoint.findings[0];
    assert_eq!(finding.title, "This is rank 3 of 4, and the others are missing");
    let others = [0, 1, 2].map(|rank| format!("model_world_size_4_rank_{rank}.pt"));
    assert_eq!((finding.grade, &finding.missing[..]), (Grade::Damage, &others[..]));
    let line = &checkpoint.format.facts[0].1;
    assert!(line.ends_with(" tensors of rank 3 of 4 alone"), "{line}");
    let whole = open_only(&folder("sharded/verl_w4_bf16_uneven", |_| true)).unwrap();
    for (leaf, of_whole) in checkpoint.leaves().iter().zip(whole.leaves()) {
        let Some((_, tensor)) = checkpoint.tensor_of(leaf.id) else { continue };
        let (_, joined) = whole.tensor_of(of_whole.id).unwrap();
        let attributes = checkpoint.raw_attributes(leaf.id);
        let shape = attributes.iter().find(|(name, _)| *name == *"whole shape");
        match shape {
            Some((_, shape)) => assert_eq!(*shape, *format!("{:?}", joined.shape).as_str()),
            None => assert_eq!(tensor.shape, joined.shape, "{}", leaf.flat),
        }
    }
}

/// With hybrid sharding, the other replica has all pieces.
#[test]
fn replicas_replace_missing_ranks() {
    let files = folder("sharded/verl_w4_hsdp", |name| !name.contains("rank_1."));
    let checkpoint = open_only(&files).unwrap();
    assert_eq!(missing(&checkpoint), Vec::<String>::new());
    assert_eq!(checkpoint.findings[0].missing, ["model_world_size_4_rank_1.pt"]);
    assert!(!checkpoint.replicas.is_empty());
}

#[test]
fn ranks_of_different_runs_are_named() {
    let checkpoint = open_only(&folder("sharded/broken_verl_mixed_runs", |_| true)).unwrap();
    let text = texts(&checkpoint);
    for part in
        ["rank 1 says shape", "model_world_size_2_rank_0.pt", "model_world_size_2_rank_1.pt"]
    {
        assert!(text.contains(part), "{text}");
    }
    assert!(missing(&checkpoint).contains(&"model.embed_tokens.weight".to_owned()));

    let checkpoint = open_only(&folder("sharded/broken_verl_local_rows", |_| true)).unwrap();
    assert_eq!(missing(&checkpoint), ["w"]);
    assert!(texts(&checkpoint).contains("rank 1"), "{}", texts(&checkpoint));
}

/// Files of another number of ranks in the same folder.
#[test]
fn contradicting_numbers_of_ranks_are_reported() {
    let files = folder("sharded/verl_w2", |_| true);
    let mut mixed = statelens_checkpoint::FileSet::default();
    for (_, file) in files.iter() {
        mixed.push_file(file.clone());
        if file.name.starts_with("model") {
            let name = file.name.replace("size_2", "size_3");
            mixed.push(name, file.source.clone());
        }
    }
    let main = mixed.find("model_world_size_2_rank_0.pt").unwrap();
    let text = texts(&open(mixed.opened_at(main)).unwrap());
    assert!(text.contains("of 2 ranks, and model_world_size_3_rank_0.pt of 3"), "{text}");
}

/// Returns the files of a fixture under other names. `rename` returns the new name of the file of a
/// rank.
fn renamed(name: &str, rename: impl Fn(u64) -> String) -> statelens_checkpoint::FileSet {
    let mut files = statelens_checkpoint::FileSet::default();
    for (_, file) in folder(name, |name| name.starts_with("model")).iter() {
        let rank = super::names::RankName::parse(&file.name).unwrap().rank;
        files.push(rename(rank), file.source.clone());
    }
    files
}

/// The content says that they are of ranks, and the mesh in what order.
#[test]
fn files_of_ranks_may_have_other_names() {
    let fixture = "sharded/verl_w4_bf16_uneven";
    let whole = open_only(&folder(fixture, |name| name.starts_with("model"))).unwrap();
    for names in [
        |rank: u64| format!("__rank__{rank}.pt"),
        |rank| format!("consolidated.{rank:02}.pth"),
        |rank| format!("{rank}.pt"),
        |rank| format!("pytorch_model_fsdp_{rank}.bin"),
    ] {
        let joined = open_only(&renamed(fixture, names)).unwrap();
        assert_eq!(joined.findings, Vec::new(), "{}", names(0));
        let shapes = |checkpoint: &Checkpoint| -> Vec<Vec<u64>> {
            checkpoint.tensors().iter().map(|tensor| tensor.shape.clone()).collect()
        };
        assert_eq!(shapes(&joined), shapes(&whole), "{}", names(0));
    }
    // Numbers of steps are not those of ranks.
    let steps = renamed(fixture, |rank| format!("step_{}.pt", (rank + 1) * 100));
    assert_eq!(crate::sets::sort(&steps).len(), 4);
}

/// A copy of one rank's file under the name of another one.
#[test]
fn two_files_of_one_rank_are_named() {
    let fixture = "sharded/verl_w4_bf16_uneven";
    let files = folder(fixture, |name| name.starts_with("model"));
    let mut copied = statelens_checkpoint::FileSet::default();
    let of_one = files.find("model_world_size_4_rank_1.pt").unwrap();
    for (_, file) in files.iter() {
        let source = match file.name.contains("rank_2") {
            true => files.source(of_one).unwrap().clone(),
            false => file.source.clone(),
        };
        copied.push(file.name.clone(), source);
    }
    let text = texts(&open_only(&copied).unwrap());
    let expected = "model_world_size_4_rank_1.pt and model_world_size_4_rank_2.pt were both written \
                    by rank 1";
    assert!(text.contains(expected), "{text}");

    let fewer = renamed(fixture, |rank| format!("model_world_size_2_rank_{rank}.pt"));
    let text = texts(&open_only(&fewer).unwrap());
    assert!(text.contains("is of 2 ranks by its name, and its tensors are cut for 4"), "{text}");
}

#[test]
fn damaged_copies_never_panic() {
    survive_damage("sharded/verl_w4_tp_fsdp");
    survive_damage("sharded/torch24_sharded_tensor_w2");
}
