//! Layers against each other: missing ones, missing tensors, other shapes and dtypes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use statelens_checkpoint::{listed, shape_text};

use super::Findings;
use super::config::Config;
use super::rules::{DTYPE_DIFFERS, LAYER_EXTRA, LAYER_INCOMPLETE, LAYER_MISSING, SHAPE_DIFFERS};
use super::sets::ShardSet;
use super::shard::TensorEntry;

/// The last part of the path of a list of layers.
const LISTS: [&str; 11] = [
    "layers",
    "layer",
    "h",
    "blocks",
    "block",
    "blk",
    "resblocks",
    "decoder_layers",
    "encoder_layers",
    "transformer_blocks",
    "single_transformer_blocks",
];

/// Parts of paths that are not of the language model.
const OTHER_PARTS: [&str; 13] = [
    "vision", "visual", "audio", "speech", "image", "vit", "siglip", "mtp", "nextn", "draft",
    "eagle", "medusa", "qformer",
];

/// dtypes of weights that are not quantised.
pub(super) const FLOATS: [&str; 4] = ["bfloat16", "float16", "float32", "float64"];

/// Number of layers that can show which one differs.
const MIN_GROUP: usize = 3;

/// Number of tensors that the layers of a transformer have at least.
const MIN_TENSORS: usize = 4;

/// Returns whether a key is of another part than the language model.
pub(super) fn is_other_part(key: &str) -> bool {
    let lower = key.to_ascii_lowercase();
    lower.split(['.', '_']).any(|word| OTHER_PARTS.contains(&word))
}

/// A layer: its tensors by the rest of their keys.
pub(super) type Layer<'a> = BTreeMap<&'a str, (&'a str, &'a TensorEntry)>;

/// A list of layers: `model.layers`.
pub(super) struct Stack<'a> {
    pub(super) path: &'a str,
    pub(super) layers: BTreeMap<u64, Layer<'a>>,
}

impl Stack<'_> {
    /// Returns one more than the last number of a layer.
    pub(super) fn len(&self) -> u64 {
        self.layers.last_key_value().map_or(0, |(last, _)| last.saturating_add(1))
    }

    /// Returns whether the layers are those of a transformer, and not a few modules in a row.
    fn is_large(&self) -> bool {
        let full = self.layers.values().filter(|layer| layer.len() >= MIN_TENSORS);
        self.layers.len() >= 2 && full.count() * 2 > self.layers.len()
    }
}

/// The lists of layers of a set.
pub(super) struct Stacks<'a> {
    pub(super) list: Vec<Stack<'a>>,
}

impl<'a> Stacks<'a> {
    pub(super) fn of(set: &'a ShardSet) -> Self {
        let mut found: HashMap<&str, BTreeMap<u64, Layer<'a>>> = HashMap::new();
        for (file, entry) in set.tensors() {
            if let Some((path, number, rest)) = split(&entry.key) {
                let layers = found.entry(path).or_default();
                layers.entry(number).or_default().entry(rest).or_insert((file, entry));
            }
        }
        let mut list: Vec<Stack<'a>> =
            found.into_iter().map(|(path, layers)| Stack { path, layers }).collect();
        list.sort_by(|one, other| one.path.cmp(other.path));
        Self { list }
    }

    /// Returns the layers of the language model: the longest list that is of no other part.
    pub(super) fn main(&self) -> Option<&Stack<'a>> {
        let own = self.list.iter().filter(|stack| !is_other_part(stack.path));
        longest(own)
    }

    /// Returns the longest list of a part of the model whose keys have one of these words.
    pub(super) fn of_part(&self, words: &[&str]) -> Option<&Stack<'a>> {
        let is_of = |stack: &&Stack<'_>| {
            let path = stack.path.to_ascii_lowercase();
            path.split(['.', '_']).any(|word| words.contains(&word))
        };
        longest(self.list.iter().filter(is_of))
    }

    /// Returns the list whose path ends so.
    pub(super) fn ending(&self, ends: &[&str]) -> Option<&Stack<'a>> {
        self.list.iter().find(|stack| ends.iter().any(|end| stack.path.ends_with(end)))
    }
}

/// Returns the longest list of layers that are more than a few modules in a row.
fn longest<'s, 'a>(stacks: impl Iterator<Item = &'s Stack<'a>>) -> Option<&'s Stack<'a>> {
    let stacks = stacks.filter(|it| it.layers.values().any(|layer| layer.len() >= MIN_TENSORS));
    stacks.max_by_key(|stack| (stack.layers.len(), std::cmp::Reverse(stack.path.len())))
}

/// Splits a key at its first layer: the path of the list, the number, and the rest.
pub(super) fn split(key: &str) -> Option<(&str, u64, &str)> {
    let mut start = 0;
    for part in key.split('.') {
        let end = start + part.len();
        let is_number =
            !part.is_empty() && part.len() < 7 && part.bytes().all(|it| it.is_ascii_digit());
        if is_number && start > 0 {
            let path = key.get(..start - 1)?;
            let list = path.rsplit('.').next().unwrap_or(path);
            let rest = key.get(end + 1..).unwrap_or("");
            // A module in a row has no more than a weight and a bias.
            if LISTS.contains(&list) && rest.contains('.') {
                return Some((path, part.parse().ok()?, rest));
            }
        }
        start = end + 1;
    }
    None
}

/// Compares the layers of each list with each other.
pub(super) fn check(
    set: &ShardSet,
    stacks: &Stacks<'_>,
    config: Option<&Config>,
    findings: &mut Findings<'_>,
) {
    let main = stacks.main().map(|stack| stack.path);
    let count = config.and_then(|config| config.number(&["num_hidden_layers", "n_layer"]));
    let own = stacks.main().filter(|stack| !stack.is_large());
    if let Some(stack) = own.filter(|stack| count.is_some_and(|(_, count)| count == stack.len())) {
        gaps(set, stack, findings);
    }
    for stack in stacks.list.iter().filter(|stack| stack.is_large()) {
        let config = config.filter(|_| main == Some(stack.path));
        gaps(set, stack, findings);
        extra(stack, findings);
        let groups = groups(stack, config);
        for group in &groups {
            incomplete(stack, group, |_| true, findings);
            differences(stack, group, |_| true, findings);
        }
        // Layers with another kind of attention have the same feed-forward layers.
        let of_few = groups.iter().filter(|group| group.len() < MIN_GROUP).flatten().copied();
        let of_few: Group = of_few.collect::<BTreeSet<u64>>().into_iter().collect();
        let is_feed_forward =
            |rest: &str| ["mlp", "feed_forward", "block_sparse_moe"].contains(&module(rest));
        let is_common = |rest: &str| {
            let has = |at: &u64| stack.layers.get(at).is_some_and(|it| it.contains_key(rest));
            is_feed_forward(rest) && of_few.iter().all(has)
        };
        if groups.len() > 1 {
            incomplete(stack, &of_few, is_feed_forward, findings);
            differences(stack, &of_few, is_common, findings);
        }
    }
}

/// Reports layers that are missing between others.
fn gaps(set: &ShardSet, stack: &Stack<'_>, findings: &mut Findings<'_>) {
    let missing: Vec<u64> = (0..stack.len()).filter(|at| !stack.layers.contains_key(at)).collect();
    if missing.is_empty() || missing.len() as u64 * 2 > stack.len() {
        return;
    }
    for at in missing.iter().take(super::places::MAX_EACH) {
        let text = format!(
            "`{}.{at}` is missing: layer {at} of {} has no tensors",
            stack.path,
            stack.len()
        );
        findings.add_key(&LAYER_MISSING, set.name(), &format!("{}.{at}", stack.path), text);
    }
}

/// Reports biases that only one of several layers has, though all have the weight.
fn extra(stack: &Stack<'_>, findings: &mut Findings<'_>) {
    if stack.layers.len() < 3 {
        return;
    }
    for (at, layer) in &stack.layers {
        for (rest, (file, entry)) in layer.iter().filter(|(rest, _)| rest.ends_with(".bias")) {
            let weight = rest.replace(".bias", ".weight");
            let is_odd = |(other, peer): (&u64, &Layer<'_>)| {
                other == at || peer.contains_key(weight.as_str()) && !peer.contains_key(rest)
            };
            if stack.layers.iter().all(is_odd) && layer.contains_key(weight.as_str()) {
                let text =
                    format!("`{}` is there, and the other layers have no such bias", entry.key);
                findings.add_key(&LAYER_EXTRA, file, &entry.key, text);
            }
        }
    }
}

/// The numbers of layers that should be alike.
type Group = Vec<u64>;

/// Returns the groups of layers that should be alike: those of one type, without layers for
/// multi-token prediction, which follow the others.
fn groups(stack: &Stack<'_>, config: Option<&Config>) -> Vec<Group> {
    let own =
        config.and_then(|config| config.number(&["num_hidden_layers", "n_layer", "num_layers"]));
    let extra = config.and_then(|config| config.number(&["num_nextn_predict_layers"]));
    let count = match (own, extra) {
        (Some((_, own)), Some((_, 1..))) => own,
        _ => u64::MAX,
    };
    let types = config.map(|config| config.layer_types(stack.len().min(count))).unwrap_or_default();
    let mut groups: BTreeMap<&str, Group> = BTreeMap::new();
    for at in stack.layers.keys().copied().filter(|at| *at < count) {
        let kind = usize::try_from(at).ok().and_then(|at| types.get(at));
        groups.entry(kind.map_or("", String::as_str)).or_default().push(at);
    }
    groups.into_values().collect()
}

/// Returns how many layers of a group may differ from the others and still be reported as faults.
fn few(count: usize) -> usize {
    (count / 8).max(1)
}

/// Returns the first part of the rest of a key: the module.
fn module(rest: &str) -> &str {
    rest.split('.').next().unwrap_or(rest)
}

fn is_of_expert(rest: &str) -> bool {
    rest.split('.').any(|part| part == "experts")
}

/// Tensors that come in threes: if two are there, the third is missing.
const TRIPLES: [(&str, [&str; 2]); 4] = [
    ("k_proj", ["q_proj", "v_proj"]),
    ("q_proj", ["k_proj", "v_proj"]),
    ("up_proj", ["gate_proj", "down_proj"]),
    ("down_proj", ["gate_proj", "up_proj"]),
];

/// Reports tensors that a few layers lack, if the rest of the key `is_compared`.
fn incomplete(
    stack: &Stack<'_>,
    group: &[u64],
    is_compared: impl Fn(&str) -> bool,
    findings: &mut Findings<'_>,
) {
    let layers: Vec<(u64, &Layer<'_>)> =
        group.iter().filter_map(|at| Some((*at, stack.layers.get(at)?))).collect();
    let mut lacking: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    let rests: BTreeSet<&str> = layers
        .iter()
        .flat_map(|(_, layer)| layer.keys().copied())
        .filter(|rest| !is_of_expert(rest) && is_compared(rest))
        .collect();
    for rest in &rests {
        let without: Vec<_> =
            layers.iter().filter(|(_, layer)| !layer.contains_key(rest)).collect();
        if without.is_empty() || without.len() > few(layers.len()) || layers.len() < 3 {
            continue;
        }
        for (at, layer) in without {
            let peers = layers.iter().filter(|(_, peer)| peer.contains_key(rest));
            let peers: Vec<&Layer<'_>> = peers.map(|(_, peer)| *peer).collect();
            // A layer with experts is only compared with others that have them.
            let has_experts = |layer: &Layer<'_>| has_experts(layer, module(rest));
            let is_like = !has_experts(layer) || peers.iter().all(|peer| has_experts(peer));
            let is_part = match layer.keys().any(|own| module(own) == module(rest)) {
                // The module is there, and has nothing that its peers lack.
                true => {
                    is_like
                        && layer
                            .keys()
                            .filter(|own| module(own) == module(rest) && !is_of_expert(own))
                            .all(|own| peers.iter().any(|peer| peer.contains_key(own)))
                }
                // The module is missing. In some models, the first layer has no norm of its own.
                false => {
                    let norm = *at == 0 && rest.contains("norm");
                    !norm
                        && layer.keys().all(|own| peers.iter().any(|peer| peer.contains_key(own)))
                        && is_uniform(&peers)
                }
            };
            if is_part {
                lacking.entry(*at).or_default().insert((*rest).to_owned());
            }
        }
    }
    for (at, layer) in &layers {
        for (third, [one, two]) in TRIPLES {
            let own = layer.keys().filter(|rest| !is_of_expert(rest) && is_compared(rest));
            for rest in own {
                let other = rest.replace(one, two);
                let needed = rest.replace(one, third);
                let is_pair =
                    rest.contains(&format!("{one}.weight")) && layer.contains_key(other.as_str());
                if is_pair && !layer.contains_key(needed.as_str()) {
                    lacking.entry(*at).or_default().insert(needed);
                }
            }
        }
    }
    for (at, layer) in &layers {
        let own = layer.keys().filter(|rest| is_compared(rest));
        for rest in own.filter(|rest| rest.ends_with("q_proj.weight")) {
            let module = rest.strip_suffix("q_proj.weight").unwrap_or(rest);
            // Whatever else is in the module may be the projection of the output.
            let is_other = |own: &&str| {
                let part = own.strip_prefix(module).and_then(|rest| rest.split('.').next());
                part.is_some_and(|part| {
                    let inputs = ["q_proj", "k_proj", "v_proj"].contains(&part);
                    !inputs && !part.contains("norm") && !part.contains("rotary")
                })
            };
            if module.ends_with("attn.") && !layer.keys().any(is_other) {
                lacking.entry(*at).or_default().insert(format!("{module}o_proj.weight"));
            }
        }
    }
    for (at, rests) in lacking {
        let names: Vec<&str> = rests.iter().map(String::as_str).collect();
        let key = format!("{}.{at}.{}", stack.path, names.first().unwrap_or(&""));
        let text = format!("`{}.{at}` (layer {at}) lacks {}", stack.path, listed(&names, 5));
        let file = stack.layers.get(&at).and_then(|layer| layer.values().next());
        findings.add_key(&LAYER_INCOMPLETE, file.map_or("", |(file, _)| file), &key, text);
    }
}

fn has_experts(layer: &Layer<'_>, name: &str) -> bool {
    layer.keys().any(|rest| module(rest) == name && is_of_expert(rest))
}

/// Returns whether the tensors that layers share have one shape, as in a transformer.
fn is_uniform(layers: &[&Layer<'_>]) -> bool {
    let Some((first, rest)) = layers.split_first() else { return false };
    rest.iter().all(|layer| {
        layer.iter().all(|(name, (_, entry))| {
            first.get(name).is_none_or(|(_, other)| other.shape == entry.shape)
        })
    })
}

/// A tensor that differs from its peers, and what its peers have.
type Odd<'a> = (&'a str, &'a TensorEntry, &'a TensorEntry);

/// Reports tensors whose shape or dtype differs from those of the other layers. Only those are
/// compared whose rest of the key `is_compared`.
fn differences(
    stack: &Stack<'_>,
    group: &[u64],
    is_compared: impl Fn(&str) -> bool,
    findings: &mut Findings<'_>,
) {
    let layers: Vec<(u64, &Layer<'_>)> =
        group.iter().filter_map(|at| Some((*at, stack.layers.get(at)?))).collect();
    if layers.len() < MIN_GROUP {
        return;
    }
    let rests = layers.iter().flat_map(|(_, layer)| layer.keys().copied());
    // Attention within windows has other tables of relative positions than global attention.
    let is_table = |rest: &str| rest.contains("rel_pos");
    let rests: BTreeSet<&str> = rests.filter(|rest| is_compared(rest) && !is_table(rest)).collect();
    let (mut shapes, mut dtypes): (BTreeMap<u64, Vec<Odd<'_>>>, BTreeMap<u64, Vec<Odd<'_>>>) =
        Default::default();
    for rest in rests {
        let all: Vec<_> =
            layers.iter().filter_map(|(at, layer)| Some((*at, *layer.get(rest)?))).collect();
        for (at, file, entry, usual) in odd(&all, |entry| entry.shape.clone()) {
            shapes.entry(at).or_default().push((file, entry, usual));
        }
        for (at, file, entry, usual) in odd(&all, |entry| entry.dtype.clone()) {
            let is_float = |entry: &TensorEntry| FLOATS.contains(&entry.dtype.as_str());
            if is_float(entry) && is_float(usual) {
                dtypes.entry(at).or_default().push((file, entry, usual));
            }
        }
    }
    // In networks whose layers have shapes of their own, many differ.
    if shapes.len() <= few(layers.len()) {
        for (at, odd) in shapes {
            let Some((file, entry, usual)) = odd.first() else { continue };
            let text = format!(
                "`{}` is {}, and in the other layers it is {}{}",
                entry.key,
                shape_text(&entry.shape),
                shape_text(&usual.shape),
                others(odd.len(), at)
            );
            findings.add_key(&SHAPE_DIFFERS, file, &entry.key, text);
        }
    }
    if dtypes.len() <= few(layers.len()) {
        for (at, odd) in dtypes {
            let Some((file, entry, usual)) = odd.first() else { continue };
            let text = format!(
                "`{}` is {}, and in the other layers it is {}{}",
                entry.key,
                entry.dtype,
                usual.dtype,
                others(odd.len(), at)
            );
            findings.add_key(&DTYPE_DIFFERS, file, &entry.key, text);
        }
    }
}

fn others(count: usize, at: u64) -> String {
    match count {
        0 | 1 => String::new(),
        more => format!("; {} tensors of layer {at} differ", more),
    }
}

/// Returns the few tensors for which `of` gives another value than for most: their layer, file, and
/// one of the others.
fn odd<'a, T: Ord>(
    all: &[(u64, (&'a str, &'a TensorEntry))],
    of: impl Fn(&TensorEntry) -> T,
) -> Vec<(u64, &'a str, &'a TensorEntry, &'a TensorEntry)> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    for (_, (_, entry)) in all {
        *counts.entry(of(entry)).or_default() += 1;
    }
    let Some((usual, most)) = counts.iter().max_by_key(|(_, count)| **count) else {
        return Vec::new();
    };
    if all.len() < 3 || all.len() - most > few(all.len()) || *most < 2 {
        return Vec::new();
    }
    let Some((_, (_, peer))) = all.iter().find(|(_, (_, entry))| of(entry) == *usual) else {
        return Vec::new();
    };
    let differs = all.iter().filter(|(_, (_, entry))| of(entry) != *usual);
    differs.map(|(at, (file, entry))| (*at, *file, *entry, *peer)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_keys_at_their_layer() {
        assert_eq!(
            split("model.layers.12.mlp.up.weight"),
            Some(("model.layers", 12, "mlp.up.weight"))
        );
        assert_eq!(split("blk.0.attn_q.weight"), Some(("blk", 0, "attn_q.weight")));
        assert_eq!(
            split("bert.encoder.layer.3.output.dense.bias"),
            Some(("bert.encoder.layer", 3, "output.dense.bias"))
        );
        assert_eq!(split("classifier.layers.0.weight"), None, "a module in a row");
        assert_eq!(split("projector.2.weight"), None);
    }

    #[test]
    fn tells_the_language_model_from_other_parts() {
        assert!(
            is_other_part("vision_tower.encoder.layers") && is_other_part("model.visual.blocks")
        );
        assert!(is_other_part("mtp.layers") && !is_other_part("model.layers"));
        assert!(!is_other_part("bert.encoder.layer") && !is_other_part("transformer.h"));
    }
}
