//! Configs in sections, for tables whose keys of one side are paths such as `outer.inner`.

use statelens_checkpoint::{Error, Result};

use super::section::{need, put};
use crate::value::{List, Map, Value};

/// Flattens nested keys to `outer.inner`.
pub(super) fn flatten(config: Map) -> Map {
    let mut flat = Map::new();
    let mut todo: Vec<(String, Value)> = Vec::new();
    let push = |todo: &mut Vec<(String, Value)>, prefix: &str, map: Map| {
        let entries: Vec<_> = map.into_iter().collect();
        for (key, value) in entries.into_iter().rev() {
            if let Some(key) = key.as_str() {
                let key =
                    if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") };
                todo.push((key, value));
            }
        }
    };
    push(&mut todo, "", config);
    while let Some((key, value)) = todo.pop() {
        match value {
            Value::Map(map) => push(&mut todo, &key, map),
            value => flat.set(key, value),
        }
    }
    flat
}

/// Turns keys such as `outer.inner` into sections, and sets the backbone's sliding window in every
/// second layer.
pub(super) fn nest(config: Map, old: &Map) -> Result<Map> {
    let mut nested = Map::new();
    for (key, value) in config {
        let Some(key) = key.as_str() else { continue };
        let path: Vec<String> = key.split('.').map(str::to_owned).collect();
        put(&mut nested, &path, value)?;
    }
    if !old.get("sliding_window_every_other_decoder_layer").is_some_and(Value::is_true) {
        return Ok(nested);
    }
    let decoder = nested.get_mut("transformer_decoder").and_then(Value::as_map_mut);
    let Some(decoder) = decoder else { return Ok(nested) };
    const MAX_LAYERS: i64 = 10_000;
    let count = need(decoder, "num_hidden_layers")?
        .as_int()
        .filter(|count| (0..=MAX_LAYERS).contains(count));
    let count =
        count.ok_or_else(|| Error::refused("num_hidden_layers is not a number of layers"))?;
    let window = need(decoder, "layers")?.clone();
    window.can_repeat(usize::try_from(count).unwrap_or(usize::MAX))?;
    let mut none = window.clone();
    let attention =
        none.as_map_mut().and_then(|layer| layer.get_mut("self_attn")).and_then(Value::as_map_mut);
    if let Some(attention) = attention {
        attention.set("attention_sliding_window_length", Value::Null);
    }
    // Each kind is a single object with several occurrences, which YAML writes as aliases.
    let mut kinds = [none, window];
    for (mark, kind) in kinds.iter_mut().enumerate() {
        kind.share(u32::MAX - 16 - mark as u32);
    }
    let layers: List = (0..count).map(|layer| kinds[(layer % 2) as usize].clone()).collect();
    decoder.set("layers", layers);
    Ok(nested)
}
