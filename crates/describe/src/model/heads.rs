//! Sizes inferred from shapes: hidden size, intermediate size, heads.

use std::collections::BTreeMap;

use super::roles::{ModelComponent, Role};
use super::stacks::Stack;
use super::weights::{Weight, Weights};

/// A size, and the evidence for it.
pub(super) type SizeAndSource = (u64, String);

/// Returns the hidden size: the length of the layers' norms, else the width of the embedding.
pub(super) fn hidden(weights: &Weights, stacks: &[Stack]) -> Option<SizeAndSource> {
    let main = stacks.first().filter(|stack| stack.layers)?;
    let norms = weights.of(Role::Norm).filter(|weight| in_stack(weight, main));
    let lengths = norms.filter_map(|weight| match weight.shape[..] {
        [length] => Some((length, weight)),
        _ => None,
    });
    let mut counts: BTreeMap<u64, (u64, &Weight)> = BTreeMap::new();
    for (length, weight) in lengths {
        counts.entry(length).or_insert((0, weight)).0 += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, (count, _))| *count);
    let by_norms =
        most.map(|(length, (_, weight))| (length, format!("the length of {}", weight.key)));
    by_norms.or_else(|| {
        let weight = weights.of(Role::Tokens).find(|weight| weight.shape.len() == 2)?;
        Some((*weight.shape.get(1)?, format!("the width of {}", weight.key)))
    })
}

/// Returns the width of the feed-forward layers: the other dimension of the down projection.
pub(super) fn intermediate(
    weights: &Weights,
    stacks: &[Stack],
    hidden: u64,
) -> Option<SizeAndSource> {
    let main = stacks.first().filter(|stack| stack.layers)?;
    let weight = weights.of(Role::Down).find(|weight| {
        in_stack(weight, main) && weight.shape.len() == 2 && weight.shape.contains(&hidden)
    })?;
    let [a, b] = weight.shape[..] else { return None };
    Some((if a == hidden { b } else { a }, format!("the shape of {}", weight.key)))
}

/// The attention heads of a layer.
#[derive(Debug, Default)]
pub(super) struct Heads {
    pub(super) queries: Option<SizeAndSource>,
    /// Number of key and value heads.
    pub(super) keys: Option<SizeAndSource>,
    pub(super) size: Option<SizeAndSource>,
    /// Number of query heads per key head.
    pub(super) shared: Option<SizeAndSource>,
    /// Number of rows of the queries of all heads, if the keys have heads of the same size.
    pub(super) rows: Option<SizeAndSource>,
    /// Number of rows of a matrix of queries, keys and values, and the hidden size.
    pub(super) fused: Option<(SizeAndSource, u64)>,
}

/// Names of matrices of queries, keys and values.
const FUSED: [&str; 6] = ["c_attn", "query_key_value", "qkv_proj", "wqkv", "qkv", "linear_qkv"];

/// Returns what shapes determine about heads with certainty.
pub(super) fn heads(weights: &Weights, stacks: &[Stack]) -> Heads {
    let mut heads = Heads::default();
    let Some(main) = stacks.first().filter(|stack| stack.layers) else { return heads };
    let first =
        |role| weights.of(role).find(move |weight| in_stack(weight, main) && is_weight(weight));
    let (query, key) = (first(Role::Query), first(Role::Key));
    if query.is_none() {
        heads.fused = fused(weights, main, hidden(weights, stacks));
    }
    // In JAX and Keras, heads are a separate dimension: [hidden, heads, size].
    if let Some((weight, [_, count, size])) = query.and_then(|query| three(query)) {
        let basis = format!("the shape of {}", weight.key);
        heads.queries = Some((count, basis.clone()));
        heads.size = Some((size, basis));
        heads.keys = key
            .and_then(three)
            .map(|(weight, [_, count, _])| (count, format!("the shape of {}", weight.key)));
        return heads;
    }
    let outputs = |weight: &Weight| match (&*weight.shape, &*weight.parsed.leaf) {
        ([_, outputs], "kernel") | ([outputs, _], _) => Some(*outputs),
        _ => None,
    };
    let (mut wide, narrow) = (query.and_then(outputs), key.and_then(outputs));
    // Gated attention has the gates, one for each row, in the same matrix (Qwen3-Next).
    let output = weights.all.iter().find(|w| in_stack(w, main) && w.parsed.name() == "o_proj");
    if let (Some(rows), Some(output)) = (wide, output)
        && output.shape.get(1).and_then(|inputs| inputs.checked_mul(2)) == Some(rows)
    {
        wide = Some(rows / 2);
    }
    if let (Some(wide), Some(_), Some(query)) = (wide, narrow, query) {
        heads.rows = Some((wide, format!("the shape of {}", query.key)));
    }
    if let (Some(wide), Some(narrow), Some(key)) = (wide, narrow, key)
        && narrow > 0
        && wide.is_multiple_of(narrow)
    {
        heads.shared = Some((wide / narrow, format!("the shape of {}", key.key)));
    }
    let norm = weights.of(Role::QueryNorm).find(|weight| {
        in_stack(weight, main)
            && weight.parsed.name().contains('q')
            && !weight.parsed.name().contains("_a_")
    });
    if let (Some(norm), Some(wide)) = (norm, wide)
        && let [size] = norm.shape[..]
        && size > 0
        && size < wide
        && wide.is_multiple_of(size)
    {
        let basis = format!("the length of {}", norm.key);
        heads.size = Some((size, basis.clone()));
        heads.queries = Some((wide / size, basis.clone()));
        heads.keys = narrow
            .filter(|narrow| narrow.is_multiple_of(size))
            .map(|narrow| (narrow / size, basis));
    }
    let each = weights
        .of(Role::PerHead)
        .find(|weight| in_stack(weight, main) || weight.parsed.index.is_some());
    if let Some(weight) = each
        && heads.queries.is_none()
        && let Some(count) = weight.shape.last()
    {
        heads.queries = Some((*count, format!("the shape of {}", weight.key)));
    }
    heads
}

/// Returns the rows of the first matrix of queries, keys and values in a stack of a language model.
fn fused(
    weights: &Weights,
    main: &Stack,
    hidden: Option<SizeAndSource>,
) -> Option<(SizeAndSource, u64)> {
    let (hidden, _) = hidden.filter(|_| !main.prefix.contains("vis"))?;
    let weight = weights.all.iter().find(|weight| {
        let key = &weight.parsed;
        let is_cross = key.modules.iter().any(|part| part.contains("cross"));
        in_stack(weight, main)
            && is_weight(weight)
            && FUSED.contains(&key.name())
            && matches!(&*key.leaf, "" | "weight")
            && !is_cross
    })?;
    let rows = match weight.shape[..] {
        [rows, inputs] if inputs == hidden => rows,
        // GPT-2 has the transposed matrix.
        [inputs, rows] if inputs == hidden => rows,
        _ => return None,
    };
    Some(((rows, format!("the shape of {}", weight.key)), hidden))
}

fn three<'a>(weight: &'a Weight<'a>) -> Option<(&'a Weight<'a>, [u64; 3])> {
    Some((weight, weight.shape[..].try_into().ok()?))
}

fn is_weight(weight: &Weight) -> bool {
    weight.component == ModelComponent::Attention && weight.shape.len() >= 2
}

/// Returns whether the weight is in one of the stack's layers.
pub(super) fn in_stack(weight: &Weight, stack: &Stack) -> bool {
    weight.parsed.stack().is_some_and(|(prefix, _)| prefix == stack.prefix)
}
