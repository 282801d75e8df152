//! Ranks of a job in the names of the files that they wrote.

/// Returns the rank in the name of a file: `model_world_size_8_rank_3.pt`, `__3_0.distcp`,
/// `zero_pp_rank_3_mp_rank_00_model_states.pt`, `shard-00004-model-00001-of-00002.safetensors`
/// (which counts from 1).
pub fn rank_in(base: &str) -> Option<u64> {
    let number = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text[..end].parse::<u64>().ok()
    };
    if let Some(rest) = base.strip_prefix("__") {
        return number(rest);
    }
    if let Some(rest) = base.strip_prefix("shard-") {
        return number(rest)?.checked_sub(1);
    }
    let after = base.find("rank").map(|at| base[at + 4..].trim_start_matches(['_', '-', '=', '.']));
    after.and_then(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_ranks_in_names() {
        for (name, rank) in [
            ("model_world_size_8_rank_3.pt", Some(3)),
            ("__12_0.distcp", Some(12)),
            ("bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", Some(1)),
            ("shard-00004-model-00001-of-00002.safetensors", Some(3)),
            ("mp_rank_00_model_states.pt", Some(0)),
            ("model.safetensors", None),
            ("frank.pt", None),
        ] {
            assert_eq!(rank_in(name), rank, "{name}");
        }
    }
}
