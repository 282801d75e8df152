//! Experts against each other and against the config.

use std::collections::{BTreeMap, BTreeSet};

use statelens_checkpoint::{counted, listed};

use super::Findings;
use super::config::Config;
use super::layers::{Stacks, is_other_part};
use super::rules::{CONFIG_EXPERTS, EXPERT_MISSING, LAYER_INCOMPLETE};
use super::sets::ShardSet;
use super::shard::TensorEntry;

const FIELDS: [&str; 5] =
    ["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_moe_experts"];

/// The experts of one layer.
#[derive(Default)]
struct Experts<'a> {
    file: &'a str,
    /// The tensors of each expert, by the rest of their keys.
    list: BTreeMap<u64, BTreeSet<&'a str>>,
    /// The number of experts in a tensor that holds all of them.
    stacked: Option<(u64, &'a str)>,
}

impl Experts<'_> {
    fn count(&self) -> u64 {
        self.stacked.map_or(self.list.len() as u64, |(count, _)| count)
    }
}

pub(super) fn check(
    set: &ShardSet,
    stacks: &Stacks<'_>,
    config: Option<&Config>,
    findings: &mut Findings<'_>,
) {
    let mut found: BTreeMap<&str, Experts<'_>> = BTreeMap::new();
    for (file, entry) in set.tensors().filter(|(_, entry)| !is_other_part(&entry.key)) {
        collect(file, entry, &mut found);
    }
    // Layers for multi-token prediction may have other experts.
    let own = config.and_then(|config| config.number(&["num_hidden_layers"]));
    let is_extra = |path: &str| {
        super::layers::split(&format!("{path}.x.y"))
            .zip(own)
            .is_some_and(|((_, at, _), (_, own))| at >= own && stacks.main().is_some())
    };
    found.retain(|path, experts| !is_extra(path) && experts.count() > 0);
    for (path, experts) in &found {
        incomplete(path, experts, findings);
    }
    if let Some(config) = config {
        dense(&found, config, findings);
    }
    let declared = config.and_then(|config| config.number(&FIELDS)).filter(|(_, count)| *count > 0);
    let counts: BTreeSet<u64> = found.values().map(Experts::count).collect();
    // An expert before others is missing, whatever the config says.
    let has_gaps = |experts: &Experts<'_>| last(experts) > experts.list.len() as u64;
    if let (Some((field, count)), Some(config)) = (declared, config)
        && counts.len() == 1
        && !found.values().any(has_gaps)
        && let Some(stored) = counts.first().filter(|stored| **stored != count)
        && let Some((path, experts)) = found.first_key_value()
    {
        let text = format!(
            "`{field}` in {} is {count}, and the layers have {stored} experts (`{path}`)",
            config.file()
        );
        findings.add_key(&CONFIG_EXPERTS, experts.file, path, text);
        return;
    }
    let usual = declared.map(|(_, count)| count).or_else(|| {
        let mut tally: BTreeMap<u64, usize> = BTreeMap::new();
        found.values().for_each(|experts| *tally.entry(experts.count()).or_default() += 1);
        let (count, layers) = tally.iter().max_by_key(|(count, layers)| (**layers, **count))?;
        (*layers * 2 > found.len()).then_some(*count)
    });
    for (path, experts) in &found {
        let gaps: BTreeSet<u64> = (0..usual.unwrap_or(0).max(last(experts)))
            .filter(|at| experts.stacked.is_none() && !experts.list.contains_key(at))
            .collect();
        let is_less = usual.is_some_and(|usual| experts.count() < usual);
        if gaps.is_empty() && !is_less {
            continue;
        }
        let names: Vec<String> = gaps.iter().map(|at| format!("{path}.{at}")).collect();
        let what = match names.is_empty() {
            true => format!("`{path}` has {}", counted(experts.count(), "expert")),
            false => format!(
                "{} {} missing",
                listed(&names, 5),
                if names.len() == 1 { "is" } else { "are" }
            ),
        };
        let text = match usual {
            Some(usual) => format!("{what}; {usual} are expected"),
            None => what,
        };
        findings.add_key(
            &EXPERT_MISSING,
            experts.file,
            names.first().map_or(path, |name| name),
            text,
        );
    }
}

/// Compares the number of layers without experts, which come first.
fn dense(found: &BTreeMap<&str, Experts<'_>>, config: &Config, findings: &mut Findings<'_>) {
    let is_regular = config.number(&["moe_layer_freq"]).is_none_or(|(_, every)| every == 1);
    let stated = config.number(&["first_k_dense_replace"]).filter(|_| is_regular);
    let layer = |path: &str| Some(super::layers::split(&format!("{path}.x.y"))?.1);
    let first = found
        .iter()
        .filter_map(|(path, one)| Some((layer(path)?, path, one)))
        .min_by_key(|it| it.0);
    if let (Some((field, stated)), Some((first, path, experts))) = (stated, first)
        && stated != first
    {
        let text = format!(
            "`{field}` in {} is {stated}, and the first layer with experts is {first}: `{path}`",
            config.file()
        );
        findings.add_key(&CONFIG_EXPERTS, experts.file, path, text);
    }
}

fn last(experts: &Experts<'_>) -> u64 {
    experts.list.last_key_value().map_or(0, |(last, _)| last.saturating_add(1))
}

/// Adds a tensor to the experts of its layer.
fn collect<'a>(file: &'a str, entry: &'a TensorEntry, found: &mut BTreeMap<&'a str, Experts<'a>>) {
    let key = entry.key.as_str();
    let Some(start) = key.find(".experts.") else { return };
    let (Some(path), Some(rest)) =
        (key.get(..start + ".experts".len()), key.get(start + ".experts.".len()..))
    else {
        return;
    };
    let (first, below) = rest.split_once('.').unwrap_or((rest, ""));
    let experts = found.entry(path).or_insert_with(|| Experts { file, ..Experts::default() });
    match first.parse::<u64>() {
        Ok(number) => {
            experts.list.entry(number).or_default().insert(below);
        }
        // One tensor for all experts: `experts.gate_up_proj`.
        Err(_) if entry.shape.len() == 3 => {
            experts.stacked = entry.shape.first().map(|count| (*count, key));
        }
        Err(_) => {}
    }
}

/// Reports experts that lack a tensor of the others.
fn incomplete(path: &str, experts: &Experts<'_>, findings: &mut Findings<'_>) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for rest in experts.list.values().flatten() {
        *counts.entry(rest).or_default() += 1;
    }
    for (at, rests) in &experts.list {
        let lacking: Vec<&str> = counts
            .iter()
            .filter(|(rest, count)| **count * 2 > experts.list.len() && !rests.contains(**rest))
            .map(|(rest, _)| *rest)
            .collect();
        if let Some(first) = lacking.first() {
            let text = format!("`{path}.{at}` (expert {at}) lacks {}", listed(&lacking, 5));
            findings.add_key(
                &LAYER_INCOMPLETE,
                experts.file,
                &format!("{path}.{at}.{first}"),
                text,
            );
        }
    }
}
