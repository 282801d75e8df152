//! Checkpoints with a file for each rank of tensor parallelism. Their keys are `RANK/KEY`; `/`
//! separates the keys of nested dicts.

use indexmap::IndexMap;
use statelens_checkpoint::{
    Builder, Checkpoint, Dict, DictKey, Error, Int, Limits, Result, Value, ValueId,
};

use crate::engine::{Assembly, State, StateValue};
use crate::language::{Ranks, Recipe, RuleBlock};
use crate::value::Value as Plain;

/// Limit on ranks, larger than any in practice.
pub const MAX_RANKS: usize = 4096;
/// Limit on the nesting of dicts.
const MAX_DEPTH: usize = 16;

/// Returns the blocks of a recipe that have a file per rank.
pub fn of(recipe: &Recipe) -> impl Iterator<Item = (&RuleBlock, &Ranks)> {
    recipe.blocks.iter().filter_map(|block| Some((block, block.ranks.as_ref()?)))
}

/// Reads the tensors of all ranks from a checkpoint whose root has one dict per rank, in order.
pub(crate) fn read(source: &Checkpoint) -> Result<(State, u64)> {
    let Value::Dict(root) = source.value(source.resolve(source.root())) else {
        return Err(Error::refused("the checkpoint does not have a file per rank"));
    };
    let mut state = State::default();
    let mut open: Vec<(String, ValueId, usize)> = Vec::new();
    for (rank, (_, id)) in root.entries.iter().enumerate().rev() {
        open.push((rank.to_string(), source.resolve(*id), 0));
    }
    let ranks = open.len() as u64;
    // The stack is filled in reverse, so that the first rank is visited first.
    while let Some((path, id, depth)) = open.pop() {
        if let Some((_, tensor)) = source.tensor_of(id) {
            state.set(path, StateValue::Tensor(tensor.clone(), Some(id)));
            continue;
        }
        match source.value(id) {
            Value::Dict(dict) if depth < MAX_DEPTH => {
                for (key, id) in dict.entries.iter().rev() {
                    if let DictKey::Str(key) = key {
                        let path = format!("{path}/{}", key.to_lossy());
                        open.push((path, source.resolve(*id), depth + 1));
                    }
                }
            }
            Value::Int(number) => {
                if let Ok(number) = number.to_string().parse() {
                    state.set_fact(path, Plain::Int(number));
                }
            }
            Value::Float(number) => state.set_fact(path, Plain::Float(*number)),
            _ => {}
        }
    }
    Ok((state, ranks))
}

/// Returns a checkpoint per rank, with the name of its file.
pub(crate) fn write(
    source: &Checkpoint,
    state: &State,
    block: &RuleBlock,
    ranks: &Ranks,
    count: u64,
) -> Result<Vec<(Option<String>, Checkpoint)>> {
    let mut files = Vec::new();
    for rank in 0..count.min(MAX_RANKS as u64) as usize {
        let mut assembly = Assembly::of(source);
        let mut tree = DictTree::default();
        let own = format!("{rank}/");
        for (key, item) in state.iter() {
            if let Some(path) = key.strip_prefix(&own) {
                let one = State::only(path, item.clone());
                let id = assembly.items(&one)?.pop().map(|(_, id)| id);
                tree.put(path, id.ok_or_else(|| Error::refused("nothing under a key"))?)?;
            }
        }
        let mut entries = tree.entries(assembly.builder())?;
        for set in &block.sets {
            let value = match set.value.constant()? {
                Plain::Int(number) => Value::Int(Int::from(number)),
                Plain::Float(number) => Value::Float(number),
                other => return Err(Error::refused(format!("{} is not a number", other.quoted()))),
            };
            entries.push((DictKey::from(set.name.as_str()), assembly.value(value)?));
        }
        let root = assembly.dict(entries)?;
        files.push((Some(ranks.name(rank)), assembly.finish(root)?));
    }
    let all = |key: &str| {
        let rank = key.split_once('/').and_then(|(rank, _)| rank.parse::<u64>().ok());
        rank.is_some_and(|rank| rank < count)
    };
    match state.keys().find(|key| !all(key)) {
        Some(key) => Err(Error::refused(format!("`{key}` does not begin with a rank"))),
        None => Ok(files),
    }
}

#[derive(Default)]
struct DictTree {
    branches: IndexMap<String, DictBranch>,
}

enum DictBranch {
    Leaf(ValueId),
    Tree(DictTree),
}

impl DictTree {
    fn put(&mut self, path: &str, id: ValueId) -> Result<()> {
        Limits::check("dicts in dicts", path.matches('/').count() as u64, MAX_DEPTH as u64)?;
        let clash = || Error::refused(format!("`{path}` is both a tensor and a dict"));
        let mut at = self;
        let mut rest = path;
        while let Some((key, after)) = rest.split_once('/') {
            let next = || DictBranch::Tree(Self::default());
            match at.branches.entry(key.to_owned()).or_insert_with(next) {
                DictBranch::Tree(tree) => at = tree,
                DictBranch::Leaf(_) => return Err(clash()),
            }
            rest = after;
        }
        match at.branches.insert(rest.to_owned(), DictBranch::Leaf(id)) {
            None => Ok(()),
            Some(_) => Err(clash()),
        }
    }

    /// Adds the entries to a builder. Recurses; [`DictTree::put`] bounds the depth.
    fn entries(self, builder: &mut Builder) -> Result<Vec<(DictKey, ValueId)>> {
        let mut entries = Vec::with_capacity(self.branches.len());
        for (key, branch) in self.branches {
            let id = match branch {
                DictBranch::Leaf(id) => id,
                DictBranch::Tree(tree) => {
                    let entries = tree.entries(builder)?;
                    builder.push(Value::Dict(Dict { entries, ..Dict::default() }))?
                }
            };
            entries.push((DictKey::from(key.as_str()), id));
        }
        Ok(entries)
    }
}
