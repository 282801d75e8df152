//! User recipes: parses them, and applies them in both directions to keys that their own rules
//! match.

use statelens_checkpoint::{DType, Layout, Tensor};
use statelens_recipes::config::Value;
use statelens_recipes::engine::{ApplyOptions, Configs, State, StateValue, apply};
use statelens_recipes::families;
use statelens_recipes::language::{Captures, KeyPattern, Side};

/// Maximum number of keys of each block that get tensors.
const KEYS: usize = 24;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(recipe) = families::parse("fuzz.recipe", text) else { return };
    let config: Value = [
        ("num_heads", 4i64),
        ("num_attention_heads", 4),
        ("num_key_value_heads", 2),
        ("hidden_size", 8),
        ("vocab_size", 16),
        ("max_position_embeddings", 8),
        ("num_local_experts", 2),
        ("n_head", 4),
    ]
    .into_iter()
    .map(|(key, number)| (key, Value::Int(number)))
    .collect::<statelens_recipes::config::Map>()
    .into();
    for block in recipe.blocks.iter().take(4) {
        for towards in [Side::Right, Side::Left] {
            let patterns = block.rules.iter().flat_map(|rule| match towards {
                Side::Right => rule.left.iter(),
                Side::Left => rule.right.iter(),
            });
            let mut state = State::default();
            for (at, pattern) in patterns.take(KEYS / 2).enumerate() {
                for members in [[0, 0], [1, 1]] {
                    state.set(filled(pattern, &members), StateValue::Tensor(tensor(at), None));
                }
            }
            let configs = Configs { left: &config, right: &config };
            for ranks in [1, 2] {
                let options = ApplyOptions { ranks, ..ApplyOptions::default() };
                let Ok(done) = apply(block, towards, &state, configs, options) else { continue };
                for (_, item) in done.state.iter() {
                    if let StateValue::Tensor(tensor, _) = item {
                        assert!(tensor.numel().is_some(), "more elements than can be counted");
                    }
                }
            }
        }
    }
}

/// Returns a key that matches the pattern, with usual values for its placeholders.
fn filled(pattern: &KeyPattern, members: &[usize]) -> String {
    let fill = |name: &str| match name {
        "wb" | "bm" => "bias",
        "ed" => "encoder",
        "be" => "bert",
        "mp" | "dw" => "",
        _ => "0",
    };
    let captures: Captures =
        pattern.holes().map(|name| (name.to_owned(), fill(name).to_owned())).collect();
    pattern.fill(&captures, members)
}

fn tensor(at: usize) -> Tensor {
    let shapes: [&[u64]; 5] = [&[16, 8], &[8], &[4, 8, 8], &[24, 8], &[]];
    let shape = shapes[at % shapes.len()].to_vec();
    Tensor::new(DType::F32, shape, Layout::Fill([0; 4].into()))
}
