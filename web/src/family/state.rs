//! A config that is filled in from the file: what shapes say, and fields for the rest.

use crate::rows::Row;

/// A field that shapes do not determine.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigField {
    /// Its key in the config.
    pub key: &'static str,
    /// Its name on the page.
    pub label: &'static str,
    /// The value to begin with: from the file, or the usual one; empty if it must be typed.
    pub value: String,
    /// Whether the file has the value.
    pub is_read: bool,
}

/// A config in the form of Hugging Face that is to be completed.
#[derive(Debug, Clone, PartialEq)]
pub struct GuidedConfig {
    /// The value of `model_type`.
    pub family: &'static str,
    /// Facts read from shapes: key, name on the page, value.
    pub read: Vec<(&'static str, &'static str, u64)>,
    /// The fields to complete. The number of heads comes first.
    pub fields: Vec<ConfigField>,
    tied: bool,
    /// Rows of the query and key projections, whose ratio is that of their heads; 0 if unknown.
    projections: (u64, u64),
}

/// Other names of fields in the arguments of trainers.
const ALIASES: [(&str, &[&str]); 5] = [
    ("num_attention_heads", &["num_attention_heads", "n_heads", "n_head", "num_heads", "heads"]),
    ("n_head", &["n_head", "n_heads", "num_heads", "num_attention_heads", "heads"]),
    ("rope_theta", &["rope_theta", "rope_base", "rotary_base"]),
    (
        "max_position_embeddings",
        &["max_position_embeddings", "max_seq_len", "block_size", "max_position", "seq_length"],
    ),
    ("rms_norm_eps", &["rms_norm_eps", "norm_eps", "layer_norm_eps", "layer_norm_epsilon"]),
];

/// Families with the keys of a Llama, and the values of `model_type`.
const LLAMAS: [&str; 3] = ["llama", "mistral", "qwen2"];

impl GuidedConfig {
    /// Reads what the rows of a checkpoint say about a model of this name; `None` for a family whose
    /// config has more to fill in, or if the shapes do not fit.
    pub fn of(model: &str, rows: &[Row]) -> Option<Self> {
        let family = LLAMAS.into_iter().chain(["gpt2"]).find(|family| model == *family)?;
        let shape = |end: &str| {
            let row = rows.iter().find(|row| row.key.ends_with(end) && row.kind.has_shape())?;
            match row.shape.as_slice() {
                [rows, columns] => Some((*rows, *columns)),
                _ => None,
            }
        };
        let layers = |before: &str| {
            let number = |row: &Row| {
                let (_, rest) = row.key.split_once(before)?;
                rest.split('.').next()?.parse::<u64>().ok()
            };
            rows.iter().filter_map(number).max().map(|last| last.saturating_add(1))
        };
        let tied =
            !rows.iter().any(|row| row.key.ends_with("lm_head.weight") && row.link.is_none());
        let field = |key: &'static str, label: &'static str, usual: &str| {
            let known = argument(rows, key);
            let is_read = known.is_some();
            ConfigField { key, label, value: known.unwrap_or_else(|| usual.to_owned()), is_read }
        };
        if family == "gpt2" {
            let (vocabulary, hidden) = shape("wte.weight")?;
            let (positions, _) = shape("wpe.weight")?;
            return Some(Self {
                family,
                read: vec![
                    ("n_layer", "layers", layers("h.")?),
                    ("n_embd", "hidden", hidden),
                    ("vocab_size", "vocabulary", vocabulary),
                    ("n_positions", "positions", positions),
                ],
                fields: vec![
                    field("n_head", "heads", ""),
                    field("layer_norm_epsilon", "norm epsilon", "1e-5"),
                ],
                tied,
                projections: (0, 0),
            });
        }
        let (vocabulary, hidden) = shape("embed_tokens.weight")?;
        let (query, key) = (shape("q_proj.weight")?.0, shape("k_proj.weight")?.0);
        Some(Self {
            family,
            read: vec![
                ("num_hidden_layers", "layers", layers("layers.")?),
                ("hidden_size", "hidden", hidden),
                ("intermediate_size", "MLP", shape("gate_proj.weight")?.0),
                ("vocab_size", "vocabulary", vocabulary),
            ],
            fields: vec![
                field("num_attention_heads", "heads", ""),
                field("rope_theta", "rope base", "10000.0"),
                field("max_position_embeddings", "positions", "4096"),
                field("rms_norm_eps", "norm epsilon", "1e-6"),
            ],
            tied,
            projections: (query, key),
        })
    }

    /// Returns the number of key and value heads for a number of heads, if they differ.
    pub fn key_heads(&self, heads: u64) -> Option<u64> {
        let (query, key) = self.projections;
        let size = query.checked_div(heads)?;
        let known = size > 0 && query % heads == 0 && key % size == 0;
        known.then(|| key / size).filter(|heads| *heads > 0)
    }

    /// Returns the config as JSON.
    ///
    /// # Errors
    /// The missing or misfitting part, as a sentence.
    pub fn text(&self, values: &[String]) -> Result<String, String> {
        let mut lines = vec![format!("\"model_type\": \"{}\"", self.family)];
        if LLAMAS.contains(&self.family) {
            let name = match self.family {
                "mistral" => "MistralForCausalLM",
                "qwen2" => "Qwen2ForCausalLM",
                _ => "LlamaForCausalLM",
            };
            lines.push(format!("\"architectures\": [\"{name}\"]"));
            lines.push("\"hidden_act\": \"silu\"".to_owned());
        } else {
            lines.push("\"architectures\": [\"GPT2LMHeadModel\"]".to_owned());
            lines.push("\"activation_function\": \"gelu_new\"".to_owned());
        }
        lines.extend(self.read.iter().map(|(key, _, value)| format!("\"{key}\": {value}")));
        lines.push(format!("\"tie_word_embeddings\": {}", self.tied));
        for (at, field) in self.fields.iter().enumerate() {
            let value = values.get(at).map_or("", |value| value.trim());
            if value.is_empty() {
                return Err(format!("Type the {}.", field.label));
            }
            if at == 0 {
                let heads: u64 = value
                    .parse()
                    .ok()
                    .filter(|heads| *heads > 0)
                    .ok_or_else(|| "The number of heads is a whole number.".to_owned())?;
                let width = self.read.get(1).map_or(0, |(.., hidden)| *hidden);
                match self.projections {
                    (0, _) if !width.is_multiple_of(heads) => {
                        return Err(format!("{heads} heads do not divide a width of {width}."));
                    }
                    (0, _) => {}
                    (query, key) => {
                        let key_heads = self.key_heads(heads).ok_or_else(|| {
                            format!(
                                "{heads} heads do not fit projections of {query} and {key} rows."
                            )
                        })?;
                        lines.push(format!("\"num_key_value_heads\": {key_heads}"));
                        if query / heads != width / heads {
                            lines.push(format!("\"head_dim\": {}", query / heads));
                        }
                    }
                }
                lines.push(format!("\"{}\": {heads}", field.key));
            } else {
                let number: f64 = value
                    .parse()
                    .ok()
                    .filter(|number: &f64| number.is_finite() && *number > 0.0)
                    .ok_or_else(|| format!("The {} is a number.", field.label))?;
                let text = match value.parse::<u64>() {
                    Ok(whole) => whole.to_string(),
                    Err(_) => format!("{number:?}"),
                };
                lines.push(format!("\"{}\": {text}", field.key));
            }
        }
        Ok(format!("{{\n  {}\n}}\n", lines.join(",\n  ")))
    }
}

/// Returns the value of a field among the arguments that a trainer has saved with the model.
fn argument(rows: &[Row], key: &str) -> Option<String> {
    let (_, names) = ALIASES.iter().find(|(own, _)| *own == key)?;
    names.iter().find_map(|name| {
        let is_it = |row: &&Row| {
            let last = row.key.rsplit(['.', '/']).next().unwrap_or(&row.key);
            last == *name && !row.kind.has_shape() && row.value.parse::<f64>().is_ok()
        };
        rows.iter().find(is_it).map(|row| row.value.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::sample::{tensor, value};

    fn llama() -> Vec<Row> {
        let mut rows = vec![tensor("model.embed_tokens.weight", "float32", &[1000, 128])];
        for layer in 0..12 {
            for (name, shape) in [
                ("self_attn.q_proj", [128, 128]),
                ("self_attn.k_proj", [32, 128]),
                ("mlp.gate_proj", [344, 128]),
            ] {
                let key = format!("model.layers.{layer}.{name}.weight");
                rows.push(tensor(&key, "float32", &shape));
            }
        }
        rows.push(tensor("lm_head.weight", "float32", &[1000, 128]));
        rows
    }

    #[test]
    fn shapes_fill_in_the_config() {
        let config = GuidedConfig::of("llama", &llama()).unwrap();
        let read: Vec<_> = config.read.iter().map(|(_, label, value)| (*label, *value)).collect();
        assert_eq!(read, [("layers", 12), ("hidden", 128), ("MLP", 344), ("vocabulary", 1000)]);
        let mut values: Vec<String> = config.fields.iter().map(|it| it.value.clone()).collect();
        assert_eq!(config.text(&values).unwrap_err(), "Type the heads.");
        values[0] = "7".into();
        assert_eq!(
            config.text(&values).unwrap_err(),
            "7 heads do not fit projections of 128 and 32 rows."
        );
        values[0] = "8".into();
        assert_eq!(config.key_heads(8), Some(2));
        let text = config.text(&values).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        for (key, expected) in [
            ("num_attention_heads", serde_json::json!(8)),
            ("num_key_value_heads", serde_json::json!(2)),
            ("num_hidden_layers", serde_json::json!(12)),
            ("rope_theta", serde_json::json!(10_000.0)),
            ("rms_norm_eps", serde_json::json!(1e-6)),
            ("max_position_embeddings", serde_json::json!(4096)),
            ("tie_word_embeddings", serde_json::json!(false)),
        ] {
            assert_eq!(json[key], expected, "{key}: {text}");
        }
        assert_eq!(json.get("head_dim"), None);
    }

    #[test]
    fn arguments_of_the_trainer_are_used() {
        let mut rows = llama();
        rows.push(value("args.n_heads", "4"));
        rows.push(value("args.rope_theta", "500000.0"));
        let config = GuidedConfig::of("llama", &rows).unwrap();
        let fields: Vec<_> = config.fields.iter().map(|it| (&*it.value, it.is_read)).collect();
        assert_eq!(fields[..2], [("4", true), ("500000.0", true)]);
        assert_eq!(GuidedConfig::of("t5", &rows), None);
        assert_eq!(GuidedConfig::of("gpt2", &rows), None);
    }
}
