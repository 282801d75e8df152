//! Maximal update parametrisation (muP) in configs. On the way to Hugging Face it is folded into
//! the weights. Its keys had other names before 2.3.

use statelens_checkpoint::{Error, Result, has_word};

use super::section::{need, number};
use crate::value::{Map, MapKey, Value};

/// How a table treats muP on the way to Hugging Face.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    /// Keeps it, because the other side has it, too.
    Kept,
    /// Removes its keys, because the weights are scaled.
    Converted,
    /// Like `Converted`, with T5's keys.
    ConvertedT5,
    /// Refuses configs that use it.
    Refused,
}

const OLD_KEYS: &str = "output_logits_scale embeddings_scale scale_qk_dot_by_d";
const KEYS: &str = "
    mup_base_hidden_size mup_base_filter_size attention_logits_alpha output_logits_alpha
    scale_output_logits_by_d embeddings_scale scale_qk_dot_by_d
";
const T5_KEYS: &str = "
    mup_base_d_model mup_base_d_ff mup_base_d_kv encoder_attention_logits_alpha
    decoder_attention_logits_alpha output_logits_alpha scale_output_logits_by_d embeddings_alpha
    scale_encoder_qk_dot_by_d scale_decoder_qk_dot_by_d
";

/// Returns the model's section without muP, if it uses muP and the other side doesn't.
pub(super) fn to_standard(model: &Map, policy: Policy) -> Result<Option<Map>> {
    let keys = match policy {
        Policy::Kept => return Ok(None),
        Policy::ConvertedT5 if is_mup(model) => T5_KEYS,
        Policy::ConvertedT5 => return Ok(None),
        Policy::Converted | Policy::Refused if is_mup(model) => KEYS,
        Policy::Converted | Policy::Refused if is_old_mup(model)? => OLD_KEYS,
        Policy::Converted | Policy::Refused => return Ok(None),
    };
    if policy == Policy::Refused {
        return Err(Error::refused("the config uses muP").expected(
            "a standard parametrisation: of this model muP can't be folded into the weights",
        ));
    }
    let is_left_out = |key: &MapKey| key.as_str().is_some_and(|key| has_word(keys, key));
    let kept = model.iter().filter(|(key, _)| !is_left_out(key));
    let mut standard: Map = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
    if standard.contains("share_embedding_weights") {
        standard.set("share_embedding_weights", false);
    }
    Ok(Some(standard))
}

/// Returns whether a config of 2.3 or later uses muP: any base size is set.
fn is_mup(model: &Map) -> bool {
    model.iter().any(|(key, value)| {
        key.as_str().is_some_and(|key| key.starts_with("mup_base_")) && !value.is_null()
    })
}

/// Returns whether a config of 2.2 or earlier uses muP: three scales are set.
pub(super) fn is_old_mup(model: &Map) -> Result<bool> {
    let set = |key: &str| model.get(key).is_some_and(Value::is_true);
    let all = OLD_KEYS.split_ascii_whitespace().all(set);
    if !all && (set("scale_qk_dot_by_d") || set("output_logits_scale")) {
        return Err(Error::refused(
            "the config has some of scale_qk_dot_by_d, embeddings_scale and output_logits_scale",
        )
        .expected("all of them, which is muP, or none"));
    }
    Ok(all)
}

/// Returns the keys of 2.3 for those of 2.2. The width comes from the optimizer's section, where it
/// is removed.
pub(super) fn from_2_2_to_2_3(root: &mut Map, model: &Map) -> Result<Map> {
    let optimizer = root.get_mut("optimizer").and_then(Value::as_map_mut);
    let rates = optimizer.and_then(|section| section.remove("adjust_learning_rate"));
    let kernel =
        rates.as_ref().and_then(Value::as_map).and_then(|rates| rates.get("decoder_kernel"));
    let kernel = kernel
        .and_then(Value::as_f64)
        .filter(|kernel| *kernel != 0.0 && kernel.is_finite())
        .ok_or_else(|| {
            Error::refused(
                "the config uses muP, and optimizer.adjust_learning_rate.decoder_kernel is not set",
            )
            .expected("a number, from which the width of the base model is computed")
        })?;
    let width = 1.0 / kernel;
    let mut new = Map::new();
    for (key, value) in model.iter() {
        match key.as_str() {
            Some("initializer") => new.set("initializer", scaled(value, width.sqrt(), 1.0)?),
            Some("output_layer_initializer") => {
                let layers = number(model, "num_hidden_layers")?;
                new.set(
                    "output_layer_initializer",
                    scaled(value, width.sqrt(), (2.0 * layers).sqrt())?,
                );
            }
            Some("output_logits_scale") => {
                for (key, base) in [
                    ("hidden_size", "mup_base_hidden_size"),
                    ("filter_size", "mup_base_filter_size"),
                ] {
                    new.set(base, number(model, key)? / width);
                }
                let scale = number(model, "output_logits_scale")?;
                new.set("output_logits_alpha", scale * width);
            }
            _ => new.set(key.clone(), value.clone()),
        }
    }
    Ok(new)
}

fn scaled(initializer: &Value, width: f64, depth: f64) -> Result<Value> {
    let scale = width * depth;
    let mut initializer = initializer.clone();
    let several = match &mut initializer {
        Value::List(list) => list.as_mut_slice(),
        one => std::slice::from_mut(one),
    };
    for one in several {
        let Some(section) = one.as_map_mut() else { continue };
        let name = need(section, "name").map_err(|error| error.context("an initializer"))?;
        let name = name.as_str().unwrap_or_default().to_lowercase();
        let std = section.get("std").and_then(Value::as_f64).unwrap_or(1.0);
        match name.as_str() {
            "normal" => section.set("std", std * scale),
            "truncated_normal" => {
                section.set("std", std * scale);
                for (key, default) in [("a", -2.0 * std), ("b", 2.0 * std)] {
                    let bound = section.get(key).and_then(Value::as_f64).unwrap_or(default);
                    section.set(key, bound * scale);
                }
            }
            _ => {}
        }
    }
    Ok(initializer)
}
