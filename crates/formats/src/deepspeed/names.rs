//! Names of the files in a checkpoint folder of DeepSpeed (`_get_ckpt_name`,
//! `_get_optimizer_ckpt_name` and `_get_zero_ckpt_prefix` in `runtime/engine.py`).

use std::collections::BTreeMap;

use statelens_checkpoint::{FileId, FileSet, order};

use crate::paths::{base, folder};

/// The parts of a file's name: `bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StatesName {
    /// Whether it has the optimizer's states, not the model's.
    pub(super) optim: bool,
    /// The data-parallel rank; `None` for files that rank 0 wrote for all.
    pub(super) rank: Option<u64>,
    /// The tensor-parallel rank.
    pub(super) tensor_rank: u64,
}

impl StatesName {
    pub(super) fn parse(name: &str) -> Option<Self> {
        let name = base(name);
        let name = ["bf16_", "fp16_"].iter().find_map(|it| name.strip_prefix(it)).unwrap_or(name);
        let number = |text: &str| {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u64>().ok().filter(|_| digits)
        };
        let (rank, rest) = match name.strip_prefix("zero_pp_rank_") {
            Some(rest) => {
                let (rank, rest) = rest.split_once("_mp_rank_")?;
                (Some(number(rank)?), rest)
            }
            None => (None, name.strip_prefix("mp_rank_")?),
        };
        let (optim, rest) = match rest.strip_suffix("_model_states.pt") {
            Some(rest) => (false, rest),
            None => (true, rest.strip_suffix("_optim_states.pt")?),
        };
        Some(Self { optim, rank, tensor_rank: number(rest)? })
    }
}

/// The files of one checkpoint.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// The files with the model's states, that of the first rank first.
    pub(super) models: BTreeMap<u64, FileId>,
    /// The files with the optimizer's states, by data-parallel rank.
    pub(super) optims: BTreeMap<u64, FileId>,
    /// The files of experts, by layer and number.
    pub(super) experts: BTreeMap<(u64, u64), FileId>,
    /// The names of files of further tensor-parallel ranks and of pipeline layers, which are not
    /// joined.
    pub(super) others: Vec<String>,
}

impl Members {
    /// Finds the files next to `main`.
    pub(super) fn of(files: &FileSet, main: FileId) -> Self {
        let top = folder(files.name(main));
        let mut found = Self::default();
        for (id, name) in files.names().filter(|(_, name)| folder(name) == top) {
            match StatesName::parse(name) {
                Some(StatesName { optim, rank, tensor_rank: 0 }) => {
                    let of = if optim { &mut found.optims } else { &mut found.models };
                    of.insert(rank.unwrap_or(0), id);
                }
                Some(_) => found.others.push(name.to_owned()),
                None => match ExpertName::parse(base(name)) {
                    Some(ExpertName { layer, expert, tensor_rank: 0 }) => {
                        found.experts.insert((layer, expert), id);
                    }
                    None if !is_layer(base(name)) => {}
                    _ => found.others.push(name.to_owned()),
                },
            }
        }
        if !found.others.is_empty() {
            // Of a tensor-parallel expert, these are parts.
            found.leave_experts(files);
        }
        order::natural(&mut found.others);
        found
    }

    /// Counts the files of experts among those that are not joined.
    pub(super) fn leave_experts(&mut self, files: &FileSet) {
        let experts = std::mem::take(&mut self.experts).into_values();
        self.others.extend(experts.map(|id| files.name(id).to_owned()));
    }
}

/// The numbers in the name of an expert's file, `layer_3_expert_7_mp_rank_00_model_states.pt`
/// (`_get_expert_ckpt_name`).
struct ExpertName {
    /// Counts the layers with experts.
    layer: u64,
    expert: u64,
    tensor_rank: u64,
}

impl ExpertName {
    fn parse(base: &str) -> Option<Self> {
        let (layer, rest) = base.strip_prefix("layer_")?.split_once("_expert_")?;
        let (expert, rest) = rest.split_once("_mp_rank_")?;
        let tensor_rank = rest.strip_suffix("_model_states.pt")?;
        let number = |text: &str| text.parse().ok();
        Some(Self {
            layer: number(layer)?,
            expert: number(expert)?,
            tensor_rank: number(tensor_rank)?,
        })
    }
}

/// Returns whether a name is that of an expert's or of a pipeline layer's file:
/// `layer_3_expert_7_mp_rank_00_model_states.pt`, `layer_03-model_00-model_states.pt`.
pub(super) fn is_layer(base: &str) -> bool {
    base.starts_with("layer_") && base.ends_with("model_states.pt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_names() {
        let parse = StatesName::parse;
        let name = |optim, rank, tensor_rank| Some(StatesName { optim, rank, tensor_rank });
        assert_eq!(parse("a/mp_rank_00_model_states.pt"), name(false, None, 0));
        assert_eq!(parse("zero_pp_rank_12_mp_rank_01_model_states.pt"), name(false, Some(12), 1));
        assert_eq!(parse("bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"), name(true, Some(1), 0));
        for other in ["model_states.pt", "mp_rank_model_states.pt", "mp_rank_00_model_states.bin"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
