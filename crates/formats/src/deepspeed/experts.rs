//! Experts. Each has a file with its weights in the dtype of the training, under the names of a model
//! that holds all experts: the expert's number counts those of all ranks
//! (`_save_moe_checkpoint` in `runtime/engine.py`). The optimizer's groups of experts are those of one
//! rank, numbered from 0: the ranks `EP_SIZE` apart hold the same experts and divide their flat tensor
//! (`_create_expert_and_data_parallel` in `utils/groups.py`). Stage 3 has no experts, except those of
//! `AutoEP`.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use statelens_checkpoint::{
    DictKey, FileId, Finding, FindingKind, Grade, Progress, Result, Text, Value, ValueId, counted,
};

use super::reading::{Entries, MODULE, Reading};
use crate::paths::folder;

/// The part of a parameter's name before the number of its expert.
const EXPERTS: &str = ".deepspeed_moe.experts.deepspeed_experts.";

/// Splits the name of an expert's parameter: the part before the number, the number, the rest.
pub(super) fn split(name: &str) -> Option<(&str, u64, &str)> {
    let at = name.find(EXPERTS)? + EXPERTS.len();
    let (before, rest) = name.split_at(at);
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some((before, rest[..end].parse().ok()?, &rest[end..]))
}

/// The number of experts that each rank holds, by the part of the names before it.
#[derive(Debug, Default)]
pub(super) struct LocalExperts(HashMap<String, u64>);

impl LocalExperts {
    pub(super) fn of<'a>(names: impl Iterator<Item = &'a Text>) -> Self {
        let mut counts = HashMap::new();
        for name in names {
            let name = name.to_lossy();
            let Some((before, number, _)) = split(&name) else { continue };
            let count = counts.entry(before.to_owned()).or_insert(0);
            *count = number.saturating_add(1).max(*count);
        }
        Self(counts)
    }

    /// Returns the name that the parameter of a rank's expert has among the experts of all ranks.
    /// `part` is the place of the rank among those with different experts.
    pub(super) fn global(&self, name: &Text, part: u64) -> Option<Text> {
        let name = name.to_lossy();
        let (before, number, rest) = split(&name)?;
        let number = self.0.get(before)?.checked_mul(part)?.checked_add(number)?;
        Some(format!("{before}{number}{rest}").as_str().into())
    }
}

fn keys(entries: &Entries) -> HashSet<String> {
    entries.iter().map(|(key, _)| key.to_string()).collect()
}

impl Reading<'_> {
    /// Adds the content of the files of experts, and returns it: names and tensors.
    pub(super) fn experts(
        &mut self,
        experts: &BTreeMap<(u64, u64), FileId>,
        progress: &mut dyn Progress,
    ) -> Result<Entries> {
        let ids: Vec<FileId> = experts.values().copied().collect();
        let roots = self.load_all(&ids, progress)?;
        self.missing_experts(experts);
        let roots: Vec<ValueId> = roots.into_iter().flatten().collect();
        let entries = roots.iter().flat_map(|root| self.dict(*root).to_vec());
        Ok(entries.filter(|(_, id)| self.tensor(*id).is_some()).collect())
    }

    /// Reports experts without a file: numbers that other layers have.
    fn missing_experts(&mut self, experts: &BTreeMap<(u64, u64), FileId>) {
        let Some(first) = experts.values().next().map(|id| self.files.name(*id)) else { return };
        let layers: BTreeSet<u64> = experts.keys().map(|(layer, _)| *layer).collect();
        let numbers: BTreeSet<u64> = experts.keys().map(|(_, number)| *number).collect();
        let of = |layer: &u64| {
            let layer = *layer;
            let absent = numbers.iter().filter(move |at| !experts.contains_key(&(layer, **at)));
            absent.map(move |number| (layer, *number))
        };
        let name = |(layer, expert): (u64, u64)| {
            format!("{}layer_{layer}_expert_{expert}_mp_rank_00_model_states.pt", folder(first))
        };
        let missing: Vec<String> = layers.iter().flat_map(of).map(name).collect();
        if missing.is_empty() {
            return;
        }
        let title = format!("Files of {} are missing", counted(missing.len() as u64, "expert"));
        self.findings.push(
            Finding::new(Grade::Damage, title)
                .detail("Other layers have experts with these numbers.")
                .advice("Copy the whole folder again.")
                .missing(missing)
                .kind(FindingKind::UnlistedFiles),
        );
    }

    /// Returns the weights in the dtype of the training: those of the model's states, then those of
    /// the experts.
    pub(super) fn module(&self, states: ValueId, experts: Entries) -> Entries {
        let module = self.get(states, MODULE).map(|module| self.dict(module).to_vec());
        let mut all = module.unwrap_or_default();
        let known = keys(&all);
        all.extend(experts.into_iter().filter(|(key, _)| !known.contains(&key.to_string())));
        all
    }

    /// Adds weights of experts that the optimizer's states do not have.
    pub(super) fn lone_experts(&mut self, experts: &Entries) -> Result<()> {
        let known = keys(&self.entries);
        let is_lone = |(key, _): &&(DictKey, ValueId)| !known.contains(&key.to_string());
        let lone: Entries = experts.iter().filter(is_lone).cloned().collect();
        let Some((first, _)) = lone.first() else { return Ok(()) };
        let count = counted(lone.len() as u64, "tensor");
        self.findings.push(
            Finding::new(
                Grade::Warning,
                format!("{count} of experts are in the dtype of the training"),
            )
            .detail(format!(
                "The optimizer's states do not say where the float32 weights are: {first} and \
                 others are taken from the files of the experts."
            )),
        );
        for (key, id) in lone {
            let Some(mut tensor) = self.tensor(id).cloned() else { continue };
            tensor.storage = None;
            let id = self.push(tensor)?;
            self.entries.push((key, id));
        }
        Ok(())
    }

    /// Returns whether the configuration lets the ranks with the same experts follow each other.
    pub(super) fn data_before_experts(&self, states: ValueId) -> bool {
        let config = self.get(states, "ds_config");
        let set = config.and_then(|config| self.get(config, "use_data_before_expert_parallelism"));
        set.is_some_and(|set| matches!(self.value(set), Some(Value::Bool(true))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_the_experts_of_all_ranks() {
        let name =
            |number: u64| -> Text { format!("h.3.moe{EXPERTS}{number}.fc.weight").as_str().into() };
        let names = [name(0), name(1), name(2), "h.3.moe.gate.weight".into()];
        let local = LocalExperts::of(names.iter());
        assert_eq!(local.global(&name(1), 0), Some(name(1)));
        assert_eq!(local.global(&name(1), 4), Some(name(13)));
        assert_eq!(local.global(&names[3], 1), None);
        assert_eq!(local.global(&name(1), u64::MAX), None);
        assert_eq!(split(".deepspeed_moe.experts.deepspeed_experts.x"), None);
    }
}
