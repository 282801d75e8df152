//! Old and new keys of a model conversion, folded by layer, in the page's words.

use std::collections::{HashMap, HashSet};

use statelens_checkpoint::numbers;
use statelens_recipes::conversion::ModelConversion;
use statelens_recipes::engine::{Move, MoveKind, Unmatched};

use crate::family::message::KeyRow;
use crate::plan::worker::preview::{folded_rows, pattern};

/// Returns the rows: keys that no rule covers first, then those that are left out, then the others.
pub(super) fn rows(done: &ModelConversion) -> Vec<KeyRow> {
    let mut rows = folded(done.unmatched.iter().map(unmatched).collect());
    let moves = composed(&done.moves, &done.ends);
    let (out, kept): (Vec<KeyRow>, Vec<KeyRow>) =
        moves.iter().map(row).partition(|row| row.new.is_empty());
    rows.extend(folded(out));
    rows.extend(folded(kept));
    rows
}

fn unmatched(one: &Unmatched) -> KeyRow {
    KeyRow {
        old: one.key.clone(),
        new: String::new(),
        operations: "no rule".to_owned(),
        rearranged: false,
        times: 1,
        unmatched: true,
        nearest: one.nearest.clone().unwrap_or_default(),
    }
}

fn row(one: &KeyMapping) -> KeyRow {
    let side = |keys: &[String]| {
        let joined = numbers::joined(keys.iter().map(String::as_str), '.');
        joined.filter(|_| keys.len() > 2).unwrap_or_else(|| keys.join(" + "))
    };
    let is_copy = one.operations.is_empty();
    let operations = match one.to.is_empty() {
        true => "left out".to_owned(),
        false if is_copy => "copy".to_owned(),
        false => one.operations.join(", "),
    };
    KeyRow {
        old: side(&one.from),
        new: side(&one.to),
        operations,
        rearranged: !one.to.is_empty() && !is_copy,
        times: 1,
        unmatched: false,
        nearest: String::new(),
    }
}

/// Source keys, target keys, and the operations between them.
struct KeyMapping {
    from: Vec<String>,
    to: Vec<String>,
    /// Empty for a copy.
    operations: Vec<String>,
}

/// Composes the moves of several steps into single ones.
fn composed(moves: &[Move], ends: &[usize]) -> Vec<KeyMapping> {
    let mut mappings: Vec<KeyMapping> = Vec::new();
    let mut begin = 0;
    for (step, &end) in ends.iter().enumerate() {
        let own = moves.get(begin..end).unwrap_or_default();
        begin = end;
        // A step without rules changes nothing.
        if own.is_empty() {
            continue;
        }
        let mut before: HashMap<String, usize> = HashMap::new();
        for (at, mapping) in mappings.iter().enumerate() {
            before.extend(mapping.to.iter().map(|key| (key.clone(), at)));
        }
        let mut next: Vec<KeyMapping> = mappings
            .iter()
            .filter(|mapping| mapping.to.is_empty())
            .map(KeyMapping::again)
            .collect();
        for one in own {
            let known: Vec<&KeyMapping> = {
                let mut seen = HashSet::new();
                let all = one.from.iter().filter_map(|key| before.get(key));
                all.filter(|at| seen.insert(**at)).filter_map(|at| mappings.get(*at)).collect()
            };
            let from = match step == 0 || known.is_empty() {
                true => one.from.clone(),
                false => known.iter().flat_map(|mapping| mapping.from.clone()).collect(),
            };
            let mut operations: Vec<String> =
                known.iter().flat_map(|mapping| mapping.operations.clone()).collect();
            operations.extend(operation_of(one));
            operations.dedup();
            next.push(KeyMapping { from, to: one.to.clone(), operations });
        }
        mappings = next;
    }
    mappings
}

impl KeyMapping {
    fn again(&self) -> Self {
        Self { from: self.from.clone(), to: self.to.clone(), operations: self.operations.clone() }
    }
}

/// Describes what a rule does to its keys, in a few words; `None` if it only copies one.
fn operation_of(one: &Move) -> Option<String> {
    match one.kind {
        MoveKind::Create { .. } => return Some(format!("created{}", source_function(&one.rule))),
        MoveKind::Twice => return Some("copy once more".to_owned()),
        MoveKind::Convert => {}
    }
    let Some((_, operations)) = one.rule.split_once(" : ") else {
        let copies = one.to.len() > 1 && one.from.len() == 1;
        return copies.then(|| format!("copy to {} keys", one.to.len()));
    };
    let joins = one.from.len() > 1;
    let count = one.from.len().max(one.to.len());
    let mut said = Vec::new();
    for operation in operations.split(" when ").next().unwrap_or_default().split(' ') {
        let name = operation.split('(').next().unwrap_or_default();
        said.push(match name {
            "transpose" => "transpose".to_owned(),
            "rope" => "rotary order".to_owned(),
            "split" if joins => format!("join {}", parts(&one.from)),
            "split" => format!("split {}", parts(&one.to)),
            "stack" if joins => format!("stack {count}{}", experts(&one.from)),
            "stack" => format!("unstack {count}{}", experts(&one.to)),
            "concat" if joins => format!("join {}", parts(&one.from)),
            "concat" => format!("split {}", parts(&one.to)),
            "lead" => "reshape leading dimensions".to_owned(),
            "roll" => "roll rows".to_owned(),
            "add" => "add a number".to_owned(),
            "repeat" => "repeat".to_owned(),
            "tie" => "tied".to_owned(),
            _ => continue,
        });
    }
    (!said.is_empty()).then(|| said.join(", "))
}

/// Returns the function that makes a created key.
fn source_function(rule: &str) -> String {
    let maker = rule.split_once('=').map(|(_, maker)| maker.trim());
    let name = maker.and_then(|maker| maker.split(['(', ' ']).next()).unwrap_or_default();
    if name.is_empty() { String::new() } else { format!(": {name}") }
}

/// Returns ` experts` if all keys are of experts.
fn experts(keys: &[String]) -> &'static str {
    let all = !keys.is_empty() && keys.iter().all(|key| key.contains("experts"));
    if all { " experts" } else { "" }
}

/// Returns the components that distinguish keys, as in `q, k, v`; the number of keys if that is too
/// long.
fn parts(keys: &[String]) -> String {
    let split: Vec<Vec<&str>> = keys.iter().map(|key| key.split(['.', '_']).collect()).collect();
    let place = (0..split.first().map_or(0, Vec::len)).find(|at| {
        let own: HashSet<_> = split.iter().map(|parts| parts.get(*at)).collect();
        own.len() == keys.len()
    });
    let names: Vec<&str> = match place {
        Some(at) => split.iter().filter_map(|parts| parts.get(at).copied()).collect(),
        None => Vec::new(),
    };
    let short = |name: &&str| !name.is_empty() && name.len() <= 8 && name.parse::<u64>().is_err();
    match names.len() <= 4 && !names.is_empty() && names.iter().all(short) {
        true => names.join(", "),
        false => keys.len().to_string(),
    }
}

/// Folds rows that differ only in numbers into one, in the order of the first.
fn folded(rows: Vec<KeyRow>) -> Vec<KeyRow> {
    let alike = |row: &KeyRow| {
        (pattern(&row.old), pattern(&row.new), row.operations.clone(), row.nearest.clone())
    };
    folded_rows(
        rows,
        alike,
        |row| if row.old.is_empty() { &row.new } else { &row.old },
        |group| {
            let first = group.first()?;
            let side = |of: fn(&KeyRow) -> &str| match of(first).is_empty() {
                true => Some(String::new()),
                false => numbers::joined(group.iter().map(of), '.'),
            };
            let (old, new) = (side(|row| &row.old)?, side(|row| &row.new)?);
            Some(KeyRow { old, new, times: group.len() as u64, ..first.clone() })
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(from: &[&str], to: &[&str], rule: &str) -> Move {
        let all = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
        Move { from: all(from), to: all(to), rule: rule.to_owned(), kind: MoveKind::Convert }
    }

    fn folded_rows(moves: Vec<Move>, ends: Vec<usize>) -> Vec<(String, String, String, u64)> {
        let done = ModelConversion { parts: Vec::new(), unmatched: Vec::new(), moves, ends };
        let tuple = |row: KeyRow| (row.old, row.new, row.operations, row.times);
        rows(&done).into_iter().map(tuple).collect()
    }

    fn line(old: &str, new: &str, operations: &str, times: u64) -> (String, String, String, u64) {
        (old.into(), new.into(), operations.into(), times)
    }

    #[test]
    fn layers_fold_into_one_row_per_operation() {
        let mut moves = vec![moved(&["wte.w"], &["embed.w"], "wte.w <-> embed.w")];
        for layer in ["0", "1", "2"] {
            let old = format!("h.{layer}.attn.w");
            let new = ["q", "k", "v"].map(|name| format!("layers.{layer}.{name}.w"));
            let new: Vec<&str> = new.iter().map(String::as_str).collect();
            moves.push(moved(&[&old], &new, "a <-> b : transpose split(1; q H, k H, v H)"));
            moves.push(moved(&[&format!("h.{layer}.mask")], &[], "h.{n}.mask -> -"));
        }
        let count = moves.len();
        assert_eq!(
            folded_rows(moves, vec![count]),
            [
                line("h.0–2.mask", "", "left out", 3),
                line("wte.w", "embed.w", "copy", 1),
                line(
                    "h.0–2.attn.w",
                    "layers.0–2.q.w + layers.0–2.k.w + layers.0–2.v.w",
                    "transpose, split q, k, v",
                    3
                ),
            ]
        );
    }

    #[test]
    fn composes_steps_into_one_row() {
        let moves = vec![
            moved(&["a", "b"], &["ab"], "x <-> y : concat(0)"),
            moved(&["c"], &["d"], "c <-> d"),
            moved(&["ab"], &["new"], "ab <-> new : rope(H; R)"),
            moved(&["d"], &["e"], "d <-> e"),
        ];
        assert_eq!(
            folded_rows(moves, vec![2, 2, 4]),
            [line("a + b", "new", "join a, b, rotary order", 1), line("c", "e", "copy", 1)]
        );
    }

    #[test]
    fn experts_are_stacked() {
        let keys: Vec<String> = (0..8).map(|at| format!("l.0.experts.{at}.w1")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let moves = vec![moved(&keys, &["l.0.experts.fc"], "x <-> y : stack(0)")];
        assert_eq!(
            folded_rows(moves, vec![1]),
            [line("l.0.experts.0–7.w1", "l.0.experts.fc", "stack 8 experts", 1)]
        );
    }
}
