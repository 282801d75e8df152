use std::sync::Arc;

use statelens_checkpoint::{FileSet, Memory};

/// The names of the files of several ranks, for each format that joins them.
const SETS: [&[&str]; 4] = [
    &["model_world_size_2_rank_0.pt", "model_world_size_2_rank_1.pt"],
    &[
        "mp_rank_00_model_states.pt",
        "zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "zero_pp_rank_1_mp_rank_00_optim_states.pt",
    ],
    &[
        "shard-00001-model-00001-of-00001.safetensors",
        "shard-00002-model-00001-of-00001.safetensors",
    ],
    &["__0.metadata", "__1.metadata", "__0_0.distcp", "__1_0.distcp"],
];

/// Opens the same bytes as the file of each rank.
pub(crate) fn run(bytes: &[u8]) {
    for names in SETS {
        let mut files = FileSet::default();
        for name in names {
            files.push(*name, Arc::new(Memory::from(bytes.to_vec())));
        }
        crate::examine_files(files);
    }
}
